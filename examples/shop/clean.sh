#!/usr/bin/env bash
# Removes what the demo left: its data directory, and the files of its instances, which are elsewhere when the demo ran as
# root in a directory that other users may not pass through.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
data=${CARGO_TARGET_DIR:-$root/target}/demo/data
for runtime in /var/lib/towpath/cells/*/; do
  # Each says which data directory it belongs to.
  [ -f "$runtime/data-dir" ] && [ "$(cat "$runtime/data-dir")" = "$data/cell" ] || continue
  echo "removing $runtime"
  rm -rf "$runtime"
done
rm -rf "${data%/data}"
