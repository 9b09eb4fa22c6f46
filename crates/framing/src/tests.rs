use super::*;
use proptest::prelude::*;

const OK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn limits() -> FramingLimits {
    FramingLimits { head_bytes: 4096, headers: 20 }
}

/// The verdict on bytes that are shown in pieces of the given sizes (the last one repeats): total passed, and the stop.
fn judge_in_pieces(bytes: &[u8], sizes: &[usize]) -> Verdict {
    let mut guard = Guard::new(limits());
    let (mut passed, mut shown, mut stop) = (0, 0, None);
    let mut sizes =
        sizes.iter().copied().chain(std::iter::repeat(*sizes.last().unwrap_or(&bytes.len()).max(&1)));
    while shown < bytes.len() && stop.is_none() {
        shown = bytes.len().min(shown + sizes.next().unwrap().max(1));
        let verdict = guard.judge(&bytes[passed..shown]);
        passed += verdict.pass;
        stop = verdict.stop;
    }
    Verdict { pass: passed, stop }
}

fn refusal(text: &str) -> Option<Refusal> {
    match judge_in_pieces(text.as_bytes(), &[text.len()]).stop {
        Some(Stop::BadHead(refusal) | Stop::BadBody(refusal)) => Some(refusal),
        _ => None,
    }
}

#[test]
fn messages_in_order_pass_whole() {
    for text in [
        OK.to_owned(),
        format!("{OK}{OK}{OK}"),
        format!("\r\n{OK}"),
        "GET / HTTP/1.0\r\n\r\n".into(),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET http://a:80/x?y HTTP/1.1\r\nhost:   a:80  \r\n\r\n".into(),
        "M-SEARCH /%20 HTTP/1.1\r\nHost: [::1]:8080\r\nX: \t \u{e9} \r\nEmpty:\r\n\r\n".into(),
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello{OK}"),
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n{OK}"),
        format!("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\n\r\n{OK}"),
        "POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\n\r\nA\r\n0123456789\r\n00\r\nX-Sum: 1\r\n\r\n".into(),
    ] {
        assert_eq!(judge_in_pieces(text.as_bytes(), &[text.len()]), Verdict { pass: text.len(), stop: None }, "{text}");
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let with = |lines: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n");
    for (text, expected) in [
        (with("Content-Length: 5\r\nTransfer-Encoding: chunked"), Refusal::LengthAndEncoding),
        (with("Transfer-Encoding: chunked\r\nContent-Length: 5"), Refusal::LengthAndEncoding),
        (with("Content-Length: 5\r\nContent-Length: 5"), Refusal::LengthTwice),
        (with("Content-Length: 5\r\nContent-Length: 6"), Refusal::LengthTwice),
        (with("Content-Length: 5, 5"), Refusal::LengthValue),
        (with("Content-Length: +5"), Refusal::LengthValue),
        (with("Content-Length: -5"), Refusal::LengthValue),
        (with("Content-Length: 0x5"), Refusal::LengthValue),
        (with("Content-Length: 5 5"), Refusal::LengthValue),
        (with("Content-Length:"), Refusal::LengthValue),
        (with("Content-Length: 99999999999999999999"), Refusal::LengthValue),
        (with("Content-Length : 5"), Refusal::HeaderName),
        (with("Content_Length: 5"), Refusal::Underscore),
        (with("Transfer_Encoding: chunked"), Refusal::Underscore),
        (with("Transfer-Encoding: gzip, chunked"), Refusal::Encoding),
        (with("Transfer-Encoding: chunked, identity"), Refusal::Encoding),
        (with("Transfer-Encoding: \"chunked\""), Refusal::Encoding),
        (with("Transfer-Encoding: xchunked"), Refusal::Encoding),
        (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), Refusal::Encoding),
        (with("Transfer-Encoding:\x0bchunked"), Refusal::Control),
        (with("X: a\r\n b"), Refusal::Fold),
        (with("X: a\r\n\tb"), Refusal::Fold),
        (with("X: a\nY: b"), Refusal::BareLf),
        (with("X: a\rY: b"), Refusal::BareCr),
        (with("X: a\0b"), Refusal::Control),
        (with("X: a\x7fb"), Refusal::Control),
        (with("X\0: a"), Refusal::HeaderName),
        (with("X"), Refusal::HeaderName),
        (with(": a"), Refusal::HeaderName),
        (with("X\r: a"), Refusal::BareCr),
        (with("Host: a"), Refusal::HostTwice),
        ("GET / HTTP/1.1\r\n\r\n".into(), Refusal::HostMissing),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), Refusal::HostValue),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n".into(), Refusal::HostValue),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), Refusal::HostValue),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into(), Refusal::HostValue),
        ("GET / HTTP/1.1\r\nHost: a:port\r\n\r\n".into(), Refusal::HostValue),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::HostMismatch),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Target),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Target),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Target),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Target),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Target),
        ("GET /#x HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Target),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::RequestLine),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::RequestLine),
        ("GET / x HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::RequestLine),
        ("GET /\r\n\r\n".into(), Refusal::RequestLine),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n".into(), Refusal::RequestLine),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".into(), Refusal::Version),
        ("GET / http/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Version),
        ("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n".into(), Refusal::Version),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Method),
        ("PRI * HTTP/2.0\r\n\r\n".into(), Refusal::Method),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Method),
        ("GE\tT / HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Method),
        (" / HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::Method),
        ("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::RequestLine),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refusal::BareLf),
        ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(), Refusal::Encoding),
    ] {
        is_refused(&text, expected);
    }
}

fn is_refused(text: &str, expected: Refusal) {
    assert_eq!(refusal(text), Some(expected), "{text:?}");
    let whole = judge_in_pieces(text.as_bytes(), &[text.len()]);
    assert_eq!(judge_in_pieces(text.as_bytes(), &[1]), whole, "byte by byte: {text:?}");
}

#[test]
fn chunks_that_could_be_read_in_two_ways_are_refused() {
    let chunked =
        |body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    for (text, expected) in [
        (chunked("5 \r\nhello"), Refusal::ChunkSize),
        (chunked("0x5\r\nhello"), Refusal::ChunkSize),
        (chunked("\r\nhello"), Refusal::ChunkSize),
        (chunked("-5\r\n"), Refusal::ChunkSize),
        (chunked("ffffffffffffffff\r\n"), Refusal::ChunkSize),
        (chunked("5\nhello"), Refusal::ChunkSize),
        (chunked("5\rxhello"), Refusal::BareCr),
        (chunked("5;a\nhello"), Refusal::ChunkExtension),
        (chunked("5\r\nhelloX"), Refusal::ChunkEnd),
        (chunked("5\r\nhello\n"), Refusal::ChunkEnd),
        (chunked("0\r\nX : y\r\n\r\n"), Refusal::Trailer),
        (chunked("0\r\nContent-Length: 5\r\n\r\n"), Refusal::Trailer),
        (chunked("0\r\n X: y\r\n\r\n"), Refusal::Trailer),
        (chunked("0\r\nX: y\n\r\n"), Refusal::Trailer),
    ] {
        is_refused(&text, expected);
    }
}

#[test]
fn limits_on_heads_hold_even_if_no_line_ever_ends() {
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(5000));
    assert_eq!(refusal(&long), Some(Refusal::HeadBytes));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(20));
    assert_eq!(refusal(&many), Some(Refusal::HeadCount));
    assert_eq!(refusal(&"A".repeat(100)), Some(Refusal::Method));
    assert_eq!(refusal("\x16\x03\x01\x02\x00"), Some(Refusal::Method), "a TLS hello on a clear-text port");
}

#[test]
fn what_follows_an_upgrade_request_waits_for_its_answer() {
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    let bytes = format!("{upgrade}\x01\x02");
    let mut guard = Guard::new(limits());
    assert_eq!(guard.judge(bytes.as_bytes()), Verdict { pass: upgrade.len(), stop: Some(Stop::Upgrade) });
    assert_eq!(guard.judge(b"\x01\x02"), Verdict { pass: 0, stop: Some(Stop::Upgrade) });
    let mut refused = guard.clone();
    guard.resume(true);
    assert_eq!(guard.judge(b"\x01\x02"), Verdict { pass: 2, stop: None });
    refused.resume(false);
    assert_eq!(refused.judge(b"\x01\x02"), Verdict { pass: 0, stop: Some(Stop::BadHead(Refusal::Method)) });
}

#[test]
fn a_good_message_before_a_bad_one_passes() {
    let text = format!("{OK}GET / HTTP/1.1\nHost: a\n\n");
    let verdict = judge_in_pieces(text.as_bytes(), &[text.len()]);
    assert_eq!(verdict, Verdict { pass: OK.len(), stop: Some(Stop::BadHead(Refusal::BareLf)) });
}

proptest! {
    #[test]
    fn the_verdict_does_not_depend_on_how_the_bytes_arrive(
        text in prop::collection::vec(prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "POST /x HTTP/1.1\r\n", "Host: a\r\n", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n",
            "X: y\r\n", "\r\n", "abc", "3\r\nabc\r\n", "0\r\n\r\n", "\n", "\r", "\0", " ", "Upgrade: x\r\n", "5;x\r\n", ":",
        ]), 0..20),
        sizes in prop::collection::vec(1_usize..40, 1..10),
    ) {
        let bytes = text.concat().into_bytes();
        // Which of several faults is named may depend on it; whether and where it stops may not.
        let kind = |verdict: Verdict| (verdict.pass, verdict.stop.map(|stop| std::mem::discriminant(&stop)));
        let whole = kind(judge_in_pieces(&bytes, &[bytes.len()]));
        prop_assert_eq!(kind(judge_in_pieces(&bytes, &sizes)), whole);
        prop_assert_eq!(kind(judge_in_pieces(&bytes, &[1])), whole);
    }

    #[test]
    fn any_bytes_are_judged_without_panic_and_only_existing_ones_pass(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let verdict = judge_in_pieces(&bytes, &[7]);
        prop_assert!(verdict.pass <= bytes.len());
    }

    #[test]
    fn bodies_pass_whole_whatever_is_in_them(body in prop::collection::vec(any::<u8>(), 0..300), chunk in 1_usize..50) {
        let mut bytes = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for part in body.chunks(chunk) {
            bytes.extend_from_slice(format!("{:X}\r\n", part.len()).as_bytes());
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes.extend_from_slice(OK.as_bytes());
        prop_assert_eq!(judge_in_pieces(&bytes, &[chunk]), Verdict { pass: bytes.len(), stop: None });
    }
}

#[test]
fn an_upgrade_that_is_answered_while_its_body_is_under_way_is_remembered() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nContent-Length: 5\r\n\r\n";
    let next = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (switched, rest, heads) in [(false, next.as_slice(), 2), (true, b"\0\n".as_slice(), 1)] {
        let mut guard = Guard::new(FramingLimits::default());
        assert_eq!(guard.judge(head), Verdict { pass: head.len(), stop: None });
        assert_eq!(guard.judge(b"he"), Verdict { pass: 2, stop: None });
        guard.resume(switched);
        let rest = [b"llo", rest].concat();
        assert_eq!(guard.judge(&rest), Verdict { pass: rest.len(), stop: None });
        assert_eq!(guard.heads(), heads);
    }
}

#[test]
fn a_target_that_passes_is_one_that_the_parser_behind_takes_too() {
    for byte in 0..=255_u8 {
        for before in [b"/a".as_slice(), b"/a?b=", b"/?"] {
            let target = [before, &[byte], b"c"].concat();
            let taken = http::uri::PathAndQuery::try_from(target.as_slice());
            let passes = judge_target(&target).is_ok();
            assert!(!passes || taken.is_ok(), "{}", target.escape_ascii());
            let must_be_escaped = matches!(byte, 0..=b' ' | b'#' | b'<' | b'>' | 0x7f..);
            assert!(!(passes && must_be_escaped), "{}", target.escape_ascii());
        }
    }
    for target in ["/a<b", "/a>b", "/a`b", "/?<", "/?a\"b", "/a#b"] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(refusal(&text), Some(Refusal::Target), "{target}");
    }
    for target in ["/a\"b", "/{id}", "/a|b", "/?q=`{|}", "/[1]", "/a^b\\c"] {
        assert_eq!(judge_target(target.as_bytes()), Ok(()), "{target}");
    }
}
