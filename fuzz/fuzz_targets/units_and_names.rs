//! Text that people type: whatever parses must print as something that parses to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towpath_types::{AppName, ByteSize, Digest, Millis};

fuzz_target!(|text: &str| {
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    if let Ok(duration) = text.parse::<Millis>() {
        assert_eq!(duration.to_string().parse(), Ok(duration));
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text);
    }
    if let Ok(name) = AppName::new(text) {
        assert_eq!(name.as_str(), text);
    }
});
