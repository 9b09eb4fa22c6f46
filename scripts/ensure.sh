#!/usr/bin/env bash
# Installs what a target needs and this machine lacks, saying what and why.
#   scripts/ensure.sh <what for> <need>…     needs: see the table below
# Asks first, unless the user is root, CI is set or YES=1. Debian and Ubuntu only; elsewhere it says what to install.
set -euo pipefail

what_for=$1; shift

have() { command -v "$1" >/dev/null 2>&1; }
have cargo || { echo "$what_for needs Rust 1.90 or newer, and cargo is not here: install it first (rustup is the usual way)." >&2; exit 1; }
have_postgres() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || have postgres; }

# need | check | package | why   (so no check has a bar in it)
table='
cc|have cc|gcc libc6-dev|a C compiler builds SQLite and zstd
cxx|have c++|g++|a C++ compiler builds the fuzzer
python3|have python3|python3|runs the Python sample apps
venv|python3 -c "import ensurepip"|python3-venv python3-pip|installs packages of Python apps
node|have node|nodejs|runs the Node sample apps
npm|have npm|npm|installs packages of Node apps
java|have javac|default-jdk-headless|builds and runs the Java sample app
maven|have mvn && [ -e /usr/share/maven-repo/org/apache/maven/plugins/maven-jar-plugin ] && [ -e /usr/share/maven-repo/org/apache/maven/plugins/maven-compiler-plugin ] && [ -e /usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin ]|maven libmaven-jar-plugin-java libmaven-compiler-plugin-java libmaven-resources-plugin-java libsurefire-java|builds the Java sample app, with plugins that need no download
go|have go|golang-go|builds the Go sample app
php|have php|php-cli|runs the PHP sample app
curl|have curl|curl|talks to the demo
git|have git|git|is used by the tests
nats|have nats-server|nats-server|is the bus of a cluster; the tests start it
postgres|have_postgres|postgresql|is the store of a cluster; the tests start it
pgbouncer|have /usr/sbin/pgbouncer|pgbouncer|pools connections to the store in a test
redis|have redis-server|redis-server|answers through a stream route in a test
iproute|have ip|iproute2|gives a test a network of its own
openssl|have openssl|openssl|makes certificates, and is a client of a test
faketime|compgen -G '/usr/lib/*/faketime/libfaketime.so.1'|libfaketime|gives a process of a test another time
sslscan|have sslscan|sslscan|tells what a TLS listener speaks
nginx|have nginx|nginx-light|is a peer in the benches
haproxy|have haproxy|haproxy|is a peer in the benches, and a proxy in front in a test
wrk|have wrk|wrk|makes the load in the benches
h2load|have h2load|nghttp2-client|makes the load over HTTP/2 in the benches
'

packages=(); reasons=()
for need in "$@"; do
  line=$(grep "^$need|" <<<"$table") || { echo "scripts/ensure.sh: no need is called '$need'" >&2; exit 2; }
  IFS='|' read -r _ check package why <<<"$line"
  if ! eval "$check" >/dev/null 2>&1; then
    packages+=($package); reasons+=("  $package: $why")
  fi
done
[ ${#packages[@]} -eq 0 ] && exit 0

echo "$what_for needs packages that are not here:"
printf '%s\n' "${reasons[@]}"
if ! have apt-get; then
  echo "This machine has no apt-get: install these by its own means, then run the command again." >&2; exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! have sudo; then
    echo "Neither root nor sudo is here. As root: apt-get install --no-install-recommends ${packages[*]}" >&2; exit 1
  fi
  # sudo keeps no environment; where nobody is there to type a password, it is not to wait for one.
  as_root=(sudo ${CI:+-n} env DEBIAN_FRONTEND=noninteractive)
  if [ -z "${CI:-}${YES:-}" ]; then
    if [ ! -t 0 ]; then
      echo "Nobody is there to be asked: set YES=1 to have them installed with sudo apt-get." >&2; exit 1
    fi
    read -r -p "Install them with sudo apt-get? [Y/n] " answer || answer=n
    case "$answer" in ''|[yY]*) ;; *) echo "Nothing was installed." >&2; exit 1 ;; esac
  fi
fi
export DEBIAN_FRONTEND=noninteractive
# Debian starts a database cluster and a web server on installation; ours are started by the tests themselves.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null && "${as_root[@]}" chmod +x $policy
  trap '"${as_root[@]}" rm -f $policy' EXIT
fi
log=$(mktemp)
echo "Installing…"
if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2; echo "The installation failed; its last lines are above." >&2; exit 1
fi
rm -f "$log"
