#!/usr/bin/env bash
# Builds a cargo tool that the checks need and this machine lacks, saying what and why.
#   scripts/ensure-cargo.sh <crate> <version> <why>
set -euo pipefail
crate=$1; version=$2; why=$3
command -v "$crate" >/dev/null 2>&1 && exit 0
if ! command -v cargo >/dev/null 2>&1; then
  echo "cargo is not here: install Rust 1.90 or newer first (rustup is the usual way)." >&2; exit 1
fi
echo "$crate is not here ($why); building it from crates.io, which takes a few minutes…"
cargo install --quiet --locked --debug "$crate" --version "$version"
