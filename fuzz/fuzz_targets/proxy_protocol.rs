//! Headers of the PROXY protocol: a verdict stays when more bytes come, and what was read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towpath_gateway::framing::proxy_protocol::{Malformed, Version, parse, write};

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    for cut in 0..bytes.len().min(300) {
        match parse(&bytes[..cut]) {
            Ok(None) => {}
            early => assert_eq!(early, whole, "at {cut}"),
        }
    }
    let Ok(Some(header)) = whole else {
        assert!(matches!(whole, Ok(None) | Err(Malformed)));
        return;
    };
    assert!(header.len <= bytes.len());
    for version in [Version::V1, Version::V2] {
        let mut written = Vec::new();
        write(&mut written, version, header.addresses);
        let again = parse(&written).expect("it is right").expect("it is whole");
        assert_eq!(again.len, written.len());
        let plain = |one: std::net::SocketAddr| (one.ip().to_canonical(), one.port());
        let ends = |header: towpath_gateway::framing::proxy_protocol::Header| {
            header.addresses.map(|both| (plain(both.source), plain(both.destination)))
        };
        assert_eq!(ends(again), ends(header));
    }
});
