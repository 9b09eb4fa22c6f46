#!/usr/bin/env bash
# The demo: builds Towpath, starts it, pushes the sample shop, and shows what to try.
#   examples/shop/demo.sh            stays in the foreground; Ctrl-C stops it
#   CHECK=1 examples/shop/demo.sh    tries every printed command, stops, and exits 0 or 1
set -euo pipefail
shop=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$shop/../.." && pwd)
cd "$root"
CHECK=${CHECK:-}
target=${CARGO_TARGET_DIR:-$root/target}

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m'; dim=$'\e[2m'; green=$'\e[32m'; red=$'\e[31m'; off=$'\e[0m'; else bold=; dim=; green=; red=; off=; fi
say() { printf '\n%s%s%s\n' "$bold" "$1" "$off"; }

say "Building Towpath (the first time takes some minutes)"
cargo build --release --locked --package towpath
bin=$target/release/towpath
# So that what is printed below can be typed as it stands.
export PATH=$target/release:$PATH

# CHECK uses a fresh data directory and free ports, so that it neither meets nor disturbs a running demo.
if [ -n "$CHECK" ]; then
  data=$(mktemp -d "${TMPDIR:-/tmp}/towpath-demo.XXXXXX"); listen=127.0.0.1:0; api=127.0.0.1:0
else
  data=$target/demo/data; listen=127.0.0.1:${PORT:-8080}; api=127.0.0.1:${API_PORT:-7700}
  mkdir -p "$data"
fi
ready=$(mktemp -u "${TMPDIR:-/tmp}/towpath-ready.XXXXXX")
log=$data/up.log

up=
stop() {
  local code=$?
  trap - EXIT INT TERM
  if [ -n "$up" ] && kill -0 "$up" 2>/dev/null; then kill -TERM "$up"; wait "$up" || code=$?; fi
  rm -f "$ready"
  [ -n "$CHECK" ] && rm -rf "$data"
  exit "$code"
}
trap stop EXIT
# Ctrl-C is how this ends when all is well.
trap 'echo; echo "Stopping…"; exit 0' INT
trap 'exit 143' TERM

say "Starting towpath up"
# In a session of its own: Ctrl-C reaches this script alone, which then ends the platform once, and waits for it.
setsid "$bin" up --data-dir "$data" --listen "$listen" --api-listen "$api" --ready-file "$ready" >"$log" 2>&1 &
up=$!
for _ in $(seq 300); do
  [ -s "$ready" ] && break
  kill -0 "$up" 2>/dev/null || { up=; cat "$log"; echo "${red}towpath up did not start${off}" >&2; exit 1; }
  sleep 0.1
done
[ -s "$ready" ] || { echo "${red}towpath up was not ready within 30 s${off}" >&2; exit 1; }
field() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$ready" "$1"; }
export TOWPATH_API; TOWPATH_API=$(field api)
export TOWPATH_TOKEN_FILE; TOWPATH_TOKEN_FILE=$(field token_file)
gateway=$(field gateway); port=${gateway##*:}; port=${port%/}

say "Pushing the shop: a Node catalogue, a Go orders service, a Python front"
towpath push "$shop/catalogue"
towpath push "$shop/orders"
towpath push "$shop/front"

say "Pushing the lane summer: one changed service, nothing else"
lane=$(mktemp -d "${TMPDIR:-/tmp}/towpath-lane.XXXXXX")
cp -r "$shop/catalogue/." "$lane/"; cp -r "$shop/lanes/summer/catalogue/." "$lane/"
towpath push "$lane" --lane summer --instances 1
rm -rf "$lane"

# What to try: a line for people, the command, what its output must match.
tries=(
  "the shop, all services from base|curl -s http://shop.localhost:$port/served|\"catalogue\": {\"lane\": \"base\""
  "same URL with the tag: the catalogue of lane summer, base for the rest|curl -s -H 'towpath-lane: summer' http://shop.localhost:$port/served|\"front\": {\"lane\": \"base\".*\"catalogue\": {\"lane\": \"summer\""
  "two hops deep: orders of base asked the catalogue of lane summer|curl -s -H 'towpath-lane: summer' http://shop.localhost:$port/served|\"orders > catalogue\": {[^}]*\"lane\": \"summer\""
  "the tag as a cookie, as a browser would send it|curl -s -b towpath_lane=summer http://shop.localhost:$port/|Summer sale"
  "the tag in the host name|curl -s http://summer--catalogue.localhost:$port/products|Straw hat"
  "an order, placed through the front|curl -s -X POST http://shop.localhost:$port/buy|\"count\": 1"
  "all apps|towpath apps|catalogue"
  "one app: groups, release, instances|towpath app catalogue|summer"
  "who would get a request, and why|towpath explain http://catalogue.localhost:$port/products -H 'towpath-lane: summer'|summer"
  "three copies instead of two|towpath scale shop 3|3"
  "what an app printed|towpath logs shop --tail 5|listens on"
  "its releases; towpath rollback goes back to the one before|towpath releases catalogue|base"
  "the whole platform|towpath status|GATEWAY"
)

say "Try this$([ -z "$CHECK" ] && echo " in another terminal")"
[ -z "$CHECK" ] && printf '  %sexport PATH=%s:$PATH TOWPATH_API=%s TOWPATH_TOKEN_FILE=%s%s\n' "$dim" "$target/release" "$TOWPATH_API" "$TOWPATH_TOKEN_FILE" "$off"
failed=0
for line in "${tries[@]}"; do
  IFS='|' read -r what command wanted <<<"$line"
  printf '\n  %s# %s%s\n  %s\n' "$dim" "$what" "$off" "$command"
  if [ -n "$CHECK" ]; then
    output=$(timeout 60 bash -c "$command" 2>&1) && status=0 || status=$?
    if [ $status -eq 0 ] && tr '\n' ' ' <<<"$output" | grep -qE -- "$wanted"; then
      printf '    %sok%s\n' "$green" "$off"
    else
      failed=$((failed + 1))
      printf '    %sfailed (exit %s), wanted: %s%s\n%s\n' "$red" "$status" "$wanted" "$off" "$output"
    fi
  fi
done

if [ -n "$CHECK" ]; then
  kill -TERM "$up"; code=0; wait "$up" || code=$?; up=
  [ $code -eq 0 ] || { echo "${red}towpath up ended with $code after SIGTERM${off}"; tail -n 20 "$log"; failed=$((failed + 1)); }
  [ $failed -eq 0 ] || { echo "${red}$failed of the commands failed${off}"; exit 1; }
  say "Every command of the demo works"
  exit 0
fi

printf '\n  The shop:            %shttp://shop.localhost:%s%s\n  API and its manual:  %s%s%s\n  Log:                 %s\n  Stop with Ctrl-C; a later start brings everything back.\n\n' "$bold" "$port" "$off" "$bold" "$TOWPATH_API" "$off" "$log"
wait "$up"
