//! Checks and helpers of the workspace.

fn main() {}
