//! Bytes of an instance: read whole or in pieces, the same head, body and end follow, and a body is never longer than announced.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towpath_gateway::fuzzing::read_answer;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (head_only, step, bytes) = input;
    let whole = read_answer(head_only, bytes, bytes.len().max(1));
    assert_eq!(whole, read_answer(head_only, bytes, usize::from(step).max(1)));
});
