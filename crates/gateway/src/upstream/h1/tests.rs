use super::decoder::{Decoder, Piece};
use super::response_head::{find_end, parse};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;

fn head(text: &str, method: &Method) -> Result<super::response_head::ResponseHead, &'static str> {
    parse(&Bytes::from(text.to_owned()), method, HeaderMap::new())
}

#[test]
fn a_head_ends_with_its_blank_line() {
    for (text, end) in [
        ("HTTP/1.1 200 OK\r\n\r\nbody", Some(19)),
        ("HTTP/1.1 200 OK\n\nbody", Some(17)),
        ("HTTP/1.1 200 OK\r\n", None),
    ] {
        let mut from = 0;
        assert_eq!(find_end(text.as_bytes(), &mut from), end);
        let mut from = 0;
        let found = (1..=text.len()).find_map(|len| find_end(&text.as_bytes()[..len], &mut from));
        assert_eq!(found, end, "byte by byte");
    }
}

#[test]
fn framing_of_responses_is_read_strictly() {
    let with = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n");
    for bad in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: -1",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "X: a\r\n folded",
        "X: a\0b",
        "X : a",
    ] {
        assert!(head(&with(bad), &Method::GET).is_err(), "{bad}");
    }
    assert!(head("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &Method::GET).is_err());
    assert!(head("HTTP/2 200 OK\r\n\r\n", &Method::GET).is_err());
}

#[test]
fn hop_by_hop_headers_stay_here() {
    let head = head(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, x-hop\r\nKeep-Alive: timeout=5, max=9\r\nX-Hop: 1\r\nX-End: 2\r\n\
         Proxy-Connection: close\r\nContent-Length: 3\r\n\r\n",
        &Method::GET,
    )
    .unwrap();
    let mut names: Vec<_> = head.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "x-end"]);
    assert_eq!((head.keep, head.keep_seconds), (true, Some(5)));
}

#[test]
fn a_connection_is_kept_only_if_both_sides_know_where_the_response_ends() {
    for (text, keep) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", true),
    ] {
        let head = head(text, &Method::GET).unwrap();
        assert_eq!(head.keep, keep, "{text:?}");
    }
    let answer = head("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", &Method::HEAD).unwrap();
    assert_eq!((answer.status, answer.decoder.left()), (StatusCode::OK, Some(0)));
    assert_eq!(answer.headers["content-length"], "10", "HEAD says what GET would");
}

type Body = (Vec<u8>, Option<HeaderMap>);

/// Decodes what arrives in pieces; `Err` = malformed, `Ok(None)` = not ended.
fn decode(mut decoder: Decoder, pieces: &[&[u8]]) -> Result<Option<Body>, &'static str> {
    let mut body = Vec::new();
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match decoder.take(&mut input)? {
                Piece::Data(data) => body.extend_from_slice(&data),
                Piece::End(trailers) => return Ok(Some((body, trailers))),
                Piece::More => break,
            }
        }
    }
    Ok(None)
}

#[test]
fn chunks_are_taken_apart_strictly_and_trailers_kept() {
    let (body, trailers) =
        decode(Decoder::chunked(), &[b"5;x=y\r\nhello\r\n0\r\nGrpc-Status: 0\r\nContent-Length: 9\r\n\r\n"])
            .unwrap()
            .unwrap();
    assert_eq!(body, b"hello");
    let trailers = trailers.unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &"0".parse::<http::HeaderValue>().unwrap()));
    for bad in [
        "x\r\n",
        "\r\n",
        "5\nhello",
        "5\r\nhelloX",
        "5\r\nhello\rX",
        "ffffffffffffffff\r\n",
        "0\r\nnocolon\r\n\r\n",
    ] {
        assert!(decode(Decoder::chunked(), &[bad.as_bytes()]).is_err(), "{bad:?}");
    }
    let endless = vec![b'1'; 5000];
    assert!(decode(Decoder::chunked(), &[&endless]).is_err());
}

proptest! {
    #[test]
    fn a_chunked_body_comes_out_as_it_went_in(
        body in prop::collection::vec(any::<u8>(), 0..500), chunk in 1_usize..60, piece in 1_usize..40,
    ) {
        let mut wire = BytesMut::new();
        for part in body.chunks(chunk) {
            wire.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            wire.extend_from_slice(part);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        let pieces: Vec<&[u8]> = wire.chunks(piece).collect();
        prop_assert_eq!(decode(Decoder::chunked(), &pieces), Ok(Some((body.clone(), None))));
        let pieces: Vec<&[u8]> = body.chunks(piece).chain([b"tail".as_slice()]).collect();
        prop_assert_eq!(decode(Decoder::length(body.len() as u64), &pieces), Ok(Some((body, None))));
    }

    #[test]
    fn any_bytes_are_decoded_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(Decoder::chunked(), &[&bytes]);
        let _ = parse(&Bytes::from(bytes), &Method::GET, HeaderMap::new());
    }
}

#[test]
fn an_answer_in_pieces_is_read_like_a_whole_one() {
    use super::whole::{Answer, read_answer};
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n";
    for (text, wanted) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", Answer::Whole(200, b"abc".to_vec(), 0)),
        (chunked, Answer::Whole(200, b"abc".to_vec(), 1)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", Answer::Unfinished(200, b"ab".to_vec())),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3", Answer::Headless),
        ("HTTP/1.1 abc\r\n\r\n", Answer::BadHead),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naX", Answer::BadBody(200, b"a".to_vec())),
    ] {
        for step in 1..=text.len() {
            assert_eq!(read_answer(false, text.as_bytes(), step), wanted, "{step}: {text}");
        }
    }
}
