//! The binary: roles and command line.

fn main() {}
