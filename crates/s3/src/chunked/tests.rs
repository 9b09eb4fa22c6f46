use super::*;
use crate::sigv4::{Scope, SigningKey};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// As in "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks".
fn chunks(seed: &str) -> Chunks {
    let scope = Scope { day: "20130524".into(), region: "us-east-1".into(), service: "s3".into() };
    let stamp = format!("20130524T000000Z\n{scope}\n");
    Chunks { key: SigningKey::derive(SECRET, &scope), stamp, last: read_hex32(seed.as_bytes()).unwrap() }
}

const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const TRAILER_SEED: &str = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";

/// A body of chunks with these signatures, and what comes after the last.
fn body(chunks: &[(usize, &str)], end: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (size, signature) in chunks {
        out.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        if *size > 0 {
            out.extend(std::iter::repeat_n(b'a', *size));
            out.extend_from_slice(b"\r\n");
        }
    }
    out.extend_from_slice(end.as_bytes());
    out
}

fn documented() -> Vec<u8> {
    body(
        &[
            (65_536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
            (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
            (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
        ],
        "\r\n",
    )
}

fn documented_with_trailer() -> Vec<u8> {
    body(
        &[
            (65_536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"),
            (1024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"),
            (0, "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"),
        ],
        "x-amz-checksum-crc32c:sOO8/Q==\r\n\
         x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n",
    )
}

/// Reads a body in pieces of this size: what came through before the end, and then.
fn read(mut verifier: Verifier, body: &[u8], size: usize) -> Result<(Vec<u8>, Vec<u8>), S3Error> {
    let mut out = VecDeque::new();
    for piece in body.chunks(size) {
        verifier.push(Bytes::copy_from_slice(piece), &mut out)?;
    }
    let before = out.into_iter().flatten().collect();
    Ok((before, verifier.end()?.map(|last| last.to_vec()).unwrap_or_default()))
}

fn decode(decoder: Result<Decoder, S3Error>, body: &[u8], size: usize) -> Result<usize, ErrorCode> {
    let verifier = Verifier::of_chunks(decoder.map_err(|error| error.code)?, Output::Decoded);
    let (mut all, last) = read(verifier, body, size).map_err(|error| error.code)?;
    all.extend(last);
    assert!(all.iter().all(|&byte| byte == b'a'));
    Ok(all.len())
}

#[test]
fn the_documented_chunks_verify_however_they_come() {
    for size in [1, 7, 1000, 100_000] {
        assert_eq!(decode(Decoder::new(66_560, Some(chunks(SEED)), None), &documented(), size), Ok(66_560));
        let decoder = Decoder::new(66_560, Some(chunks(TRAILER_SEED)), Some("x-amz-checksum-crc32c"));
        assert_eq!(decode(decoder, &documented_with_trailer(), size), Ok(66_560));
    }
}

#[test]
fn a_body_may_go_on_as_it_came() {
    let verifier =
        Verifier::of_chunks(Decoder::new(66_560, Some(chunks(SEED)), None).unwrap(), Output::AsItCame);
    let (before, last) = read(verifier, &documented(), 1000).unwrap();
    assert_eq!((before.len() + last.len(), last.is_empty()), (documented().len(), false));
}

#[test]
fn each_byte_that_is_changed_is_seen_before_the_last_piece_goes_on() {
    let (good, with_trailer) = (documented(), documented_with_trailer());
    let places = |len: usize| [3, 20, 100, 60_000, 65_000, 65_700, 66_000, len - 100, len - 20];
    for at in places(good.len()) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(decode(Decoder::new(66_560, Some(chunks(SEED)), None), &bad, 5000).is_err(), "{at}");
    }
    for at in places(with_trailer.len()) {
        let mut bad = with_trailer.clone();
        bad[at] ^= 1;
        let decoder = Decoder::new(66_560, Some(chunks(TRAILER_SEED)), Some("x-amz-checksum-crc32c"));
        assert!(decode(decoder, &bad, 5000).is_err(), "{at}");
    }
}

#[test]
fn a_body_that_is_cut_or_too_long_is_refused() {
    let good = documented();
    for end in [0, 10, 500, 65_700, good.len() - 100, good.len() - 3] {
        let decoder = Decoder::new(66_560, Some(chunks(SEED)), None);
        assert_eq!(decode(decoder, &good[..end], 4096), Err(ErrorCode::IncompleteBody), "{end}");
    }
    for length in [66_559, 66_561] {
        let decoder = Decoder::new(length, Some(chunks(SEED)), None);
        assert_eq!(decode(decoder, &good, 4096), Err(ErrorCode::IncompleteBody), "{length}");
    }
    let mut more = good.clone();
    more.extend_from_slice(b"x");
    assert_eq!(
        decode(Decoder::new(66_560, Some(chunks(SEED)), None), &more, 4096),
        Err(ErrorCode::InvalidRequest)
    );
    // The last line end is left out by some.
    let decoder = Decoder::new(66_560, Some(chunks(SEED)), None);
    assert_eq!(decode(decoder, &good[..good.len() - 2], 4096), Ok(66_560));
}

#[test]
fn chunks_without_signatures_have_a_checksum_behind_them() {
    let body = |sum: &str| format!("3\r\naaa\r\n6\r\naaaaaa\r\n0\r\n{sum}\r\n\r\n").into_bytes();
    let mut checksum = Checksum::of_header("x-amz-checksum-crc32").unwrap();
    checksum.add(b"aaaaaaaaa");
    let right = format!("x-amz-checksum-crc32:{}", checksum.text());
    let make = || Decoder::new(9, None, Some("x-amz-checksum-crc32"));
    assert_eq!(decode(make(), &body(&right), 4), Ok(9));
    assert_eq!(decode(make(), &body("x-amz-checksum-crc32:AAAAAA=="), 4), Err(ErrorCode::BadDigest));
    assert_eq!(
        decode(make(), &body("x-amz-checksum-crc32c:AAAAAA=="), 4),
        Err(ErrorCode::MalformedTrailerError)
    );
    assert_eq!(decode(make(), &body(""), 4), Err(ErrorCode::MalformedTrailerError));
    assert_eq!(
        decode(Decoder::new(9, None, Some("x-own")), &body(&right), 4),
        Err(ErrorCode::InvalidRequest)
    );
    assert_eq!(decode(make(), b"3\r\naaa\r\nzz\r\n", 4), Err(ErrorCode::InvalidRequest));
    assert_eq!(decode(make(), b"3\r\naaax\n", 4), Err(ErrorCode::InvalidRequest));
    assert_eq!(decode(make(), b"ffffffffffffffff\r\naaax\n", 4), Err(ErrorCode::IncompleteBody));
    assert_eq!(decode(make(), &[b'1'; 4096], 4), Err(ErrorCode::InvalidRequest));
    let flood = b"0\r\n".iter().copied().chain(std::iter::repeat_n(*b"a:b\r\n", 4000).flatten());
    let flood: Vec<u8> = flood.collect();
    assert_eq!(decode(Decoder::new(0, None, Some("")), &flood, 4096), Err(ErrorCode::MalformedTrailerError));
}

#[test]
fn a_plain_body_is_compared_with_its_hash() {
    let hash = sha256(b"Welcome to Amazon S3.");
    let (before, last) = read(Verifier::of_hash(hash), b"Welcome to Amazon S3.", 5).unwrap();
    assert_eq!((before.as_slice(), last.as_slice()), (b"Welcome to Amazon S3".as_slice(), b".".as_slice()));
    let error = read(Verifier::of_hash(hash), b"Welcome to Amazon S4.", 5).unwrap_err();
    assert_eq!(error.code, ErrorCode::XAmzContentSHA256Mismatch);
    assert!(read(Verifier::of_hash(EMPTY_SHA256), b"", 5).unwrap().1.is_empty());
}

proptest::proptest! {
    #[test]
    fn whatever_comes_ends_and_what_is_read_is_never_more_than_announced(
        body in proptest::collection::vec(proptest::prop_oneof![
            proptest::strategy::Just(b'\r'), proptest::strategy::Just(b'\n'), proptest::strategy::Just(b'0'),
            proptest::strategy::Just(b'2'), proptest::strategy::Just(b';'), proptest::strategy::Just(b'a')
        ], 0..60), size in 1_usize..8
    ) {
        let mut read = 0;
        let mut decoder = Decoder::new(10, None, Some("")).unwrap();
        for piece in body.chunks(size) {
            if decoder.push(Bytes::copy_from_slice(piece), |data| read += data.len()).is_err() {
                break;
            }
        }
        let _ = decoder.end();
        proptest::prop_assert!(read <= 10);
    }
}
