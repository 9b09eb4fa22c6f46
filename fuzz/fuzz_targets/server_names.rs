//! The beginning of a connection that is passed on by its server name: whatever the bytes, the answer stands once it is given.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towpath_gateway::fuzzing::server_name;

fuzz_target!(|bytes: &[u8]| {
    let whole = server_name(bytes);
    if let Some(Ok(Some(name))) = &whole {
        assert!(!name.is_empty() && name.len() <= 255, "no host name");
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase()), "{name:?}");
    }
    for length in 0..bytes.len() {
        let early = server_name(&bytes[..length]);
        assert!(early.is_none() || early == whole, "more bytes changed the answer");
    }
});
