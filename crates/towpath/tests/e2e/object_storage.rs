//! S3 clients from PyPI through the gateway to an S3 server: `tests/object-storage`.

use crate::platform::run_within;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/object-storage")
}

/// The Python with the clients and the server, installed if it is not there yet.
fn python() -> PathBuf {
    let done = run_within(Command::new(folder().join("ensure.sh")), Duration::from_secs(540)).ok();
    Path::new(done.stdout.trim()).join("bin/python")
}

#[test]
fn boto3_and_the_aws_cli_work_through_the_gateway() {
    let mut proof = Command::new(python());
    proof.arg(folder().join("proof.py")).arg(env!("CARGO_BIN_EXE_towpath"));
    let done = run_within(proof, Duration::from_secs(150)).ok();
    assert!(done.stdout.contains("all shown"), "{done:#?}");
}

#[test]
fn the_table_of_operations_is_that_of_botocore() {
    let mut check = Command::new(python());
    check.arg(folder().join("operations.py")).arg("--check");
    check.arg(folder().join("../../crates/s3/tests/operations.jsonl"));
    let done = run_within(check, Duration::from_secs(60)).ok();
    assert!(done.stdout.contains("116 operations"), "{done:#?}");
}
