#!/usr/bin/env bash
# Installs the S3 clients and the S3 server of the object storage test, once, and prints where they are.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sum=$(sha256sum "$here/requirements.txt" | cut -c1-12)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/towpath-ci/object-storage-$sum
if [ ! -e "$venv/complete" ]; then
  mkdir -p "$(dirname "$venv")"
  exec 9>"$venv.lock"
  flock 9
  if [ ! -e "$venv/complete" ]; then
    echo "Installing boto3, the AWS CLI and moto into $venv…" >&2
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" >&2
    touch "$venv/complete"
  fi
fi
echo "$venv"
