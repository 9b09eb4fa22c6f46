//! The files for operators are read by the programs that they are for.

use crate::platform::BIN;
use std::path::Path;
use std::process::Command;

#[test]
fn units_configuration_and_compose_file_are_right() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/check.sh");
    let output = Command::new("bash").arg(check).arg(BIN).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("nats.conf is valid"), "{said}");
}
