#!/usr/bin/env bash
# Scans a TLS listener of the gateway with sslscan and fails when anything weak is spoken.
#   scripts/tls-scan.sh [HOST:PORT [NAME]]    without an address it builds and starts a gateway of its own
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/ensure.sh "The scan" cc openssl sslscan

dir=$(mktemp -d); pid=
cleanup() { [ -z "$pid" ] || { kill "$pid" && wait "$pid"; } 2>/dev/null || true; rm -rf "$dir"; }
trap cleanup EXIT

address=${1:-}; name=${2:-scan.test}
if [ -z "$address" ]; then
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$name" -addext "subjectAltName=DNS:$name" \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
  cargo build -q --locked -p towpath-gateway --example standalone
  # It ends with its standard input.
  mkfifo "$dir/stdin"
  TLS="127.0.0.1:0,$dir/cert.pem,$dir/key.pem" "${CARGO_TARGET_DIR:-target}/debug/examples/standalone" \
    "$dir/data" 127.0.0.1:0 1 127.0.0.1:9 <"$dir/stdin" >"$dir/said" 2>"$dir/log" &
  pid=$!
  exec 3>"$dir/stdin"
  for _ in $(seq 600); do grep -q listening "$dir/said" && break; kill -0 "$pid" || { cat "$dir/log" >&2; exit 1; }; sleep 0.1; done
  # "listening on [clear text, TLS], admin on …"
  address=$(grep -o '127\.0\.0\.1:[0-9]*' "$dir/said" | sed -n 2p)
fi

sslscan --no-colour --sni-name="$name" "$address" | tee "$dir/scan"

fail=0
bad() { echo "BAD: $1" >&2; fail=1; }
for protocol in SSLv2 SSLv3 TLSv1.0 TLSv1.1; do
  grep -Eq "^$protocol +disabled" "$dir/scan" || bad "$protocol is not disabled"
done
for protocol in TLSv1.2 TLSv1.3; do
  grep -Eq "^$protocol +enabled" "$dir/scan" || bad "$protocol is not enabled"
done
accepted=$(grep -E '^(Preferred|Accepted)' "$dir/scan" || true)
[ -n "$accepted" ] || bad "no cipher is accepted"
if weak=$(grep -Ev 'ECDHE-(RSA|ECDSA)-(AES(128|256)-GCM-SHA(256|384)|CHACHA20-POLY1305)|TLS_(AES_(128|256)_GCM_SHA(256|384)|CHACHA20_POLY1305_SHA256)' <<<"$accepted"); then
  bad "these ciphers are weak: $weak"
fi
grep -q 'Secure session renegotiation supported\|Session renegotiation not supported' "$dir/scan" || bad "renegotiation is insecure"
grep -q 'Compression disabled\|OpenSSL version does not support compression' "$dir/scan" || bad "compression is on"
if grep -q 'vulnerable to heartbleed' <(grep -v 'not vulnerable' "$dir/scan"); then bad "heartbleed"; fi
[ "$fail" -eq 0 ] && echo "TLS 1.2 and 1.3 alone, forward secrecy and AEAD alone: fine"
exit "$fail"
