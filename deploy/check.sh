#!/usr/bin/env bash
# Has the files of this folder read by the programs that they are for, as far as these are here.
#   deploy/check.sh [towpath binary]     prints what it checked; exits 1 when something is wrong
set -euo pipefail
towpath=${1:+$(realpath "$1")}
cd "$(dirname "$0")"
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
failed=0

if command -v systemd-analyze >/dev/null; then
  # Its programs and users are not on this machine.
  for unit in systemd/*.service; do
    name=$(basename "$unit"); [[ $name == *@* ]] && name=${name/@/@1}
    sed -e 's#/usr/local/bin/towpath#/bin/true#; s#^EnvironmentFile=/#EnvironmentFile=-/#' "$unit" >"$scratch/$(basename "$unit")"
    said=$(SYSTEMD_UNIT_PATH="$scratch:" systemd-analyze verify --man=no "$scratch/$name" 2>&1 | grep -F "$scratch" || true)
    if [ -n "$said" ]; then echo "$unit: $said"; failed=1; else echo "$unit: fine"; fi
  done
else
  echo "units: not checked, systemd-analyze is not here"
fi

if command -v nats-server >/dev/null; then
  NATS_NAME=n1 NATS_PASSWORD=p nats-server -t -c nats/nats.conf
fi

if python3 -c 'import yaml' 2>/dev/null; then
  NATS_PASSWORD=p POSTGRES_PASSWORD=p STICKY_KEY=k python3 - "$towpath" <<'PYTHON'
import os, re, subprocess, sys, tempfile, yaml
compose = yaml.safe_load(open("compose.yaml"))
services, volumes = compose["services"], compose["volumes"]
count = lambda start: sum(name.startswith(start) for name in services)
assert [count(s) for s in ("nats-", "postgres", "manager-", "gateway-", "cell-")] == [3, 1, 3, 2, 3], list(services)
for name, service in services.items():
    assert service["image"] and service["restart"] == "always", name
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        assert os.path.exists(source) if source.startswith(".") else source in volumes, (name, volume)
keys = {services[name]["environment"]["TOWPATH_GATEWAY_STICKY_KEY"] for name in services if name.startswith("gateway-")}
assert keys == {"/run/secrets/sticky-key"} and compose["secrets"]["sticky-key"], keys
# Each role's own settings check reads what it is given.
fill = lambda text: re.sub(r"\$\{(\w+):\?\}", lambda m: os.environ[m[1]], text)
checked = 0
for name, service in services.items():
    if service["image"] != "towpath" or not sys.argv[1]:
        continue
    environment = {key: fill(value) for key, value in service["environment"].items()}
    with tempfile.TemporaryDirectory() as home:
        environment |= {"HOME": home, "PATH": os.environ["PATH"]}
        # The check opens what settings name; these files are there only in the running containers.
        def there(value):
            if not value.startswith(("/run/secrets/", "/manager/")):
                return value
            path = os.path.join(home, os.path.basename(value))
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as secret:
                secret.write("0123456789abcdef" * 4 + "\n")
            return path

        environment = {key: there(value) for key, value in environment.items()}
        command = [there(argument) for argument in service["command"]]
        subprocess.run([sys.argv[1], *command, "--check"], env=environment, check=True, stdout=subprocess.DEVNULL)
    checked += 1
print(f"compose.yaml: {len(services)} services are fine, {checked} with their own --check")
PYTHON
else
  echo "compose.yaml: not checked, python3 has no yaml"
fi
exit $failed
