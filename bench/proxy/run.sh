#!/bin/sh
# CPU per proxied request: nginx, HAProxy and Towpath in turn, same backend, one worker each.
# ROUNDS, SECONDS_EACH, CHECK=1 (exit 1 over the target); see run.py.
set -eu
cd "$(dirname "$0")/../.."
cargo build --quiet --release --locked -p towpath-gateway --example standalone
exec python3 bench/proxy/run.py "${CARGO_TARGET_DIR:-target}/release/examples/standalone"
