"""A cluster on loopback: three managers, two gateways, three cells, NATS and PostgreSQL; parts of it may be killed and started again."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "control"))

from stack import Stack, answers, end, free_port, wait_until  # noqa: E402

HOST = "drill.localhost"


class Role:
    """A gateway or a cell, which may be killed and started again in its directory."""

    def __init__(self, stack, role, name, arguments):
        self.stack, self.role, self.name, self.arguments = stack, role, name, arguments
        self.data = stack.directory / name
        self.start()

    def start(self):
        ready = self.stack.directory / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        command = [self.stack.binary, self.role, "--data-dir", self.data, "--nats", self.stack.nats.url, "--node", self.name]
        command += ["--ready-file", ready, *self.arguments]
        log = self.stack.directory / f"{self.name}.log"
        self.process = subprocess.Popen(list(map(str, command)), stdout=open(log, "ab"), stderr=subprocess.STDOUT)
        wait_until(self.name, lambda: ready.exists() and ready.stat().st_size, self.process, log)
        self.about = json.loads(ready.read_text())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        end(self.process, signal.SIGTERM)
        for pid in processes_of(self.data):
            kill(pid, signal.SIGKILL)


class Cluster:
    def __init__(self, binary):
        self.stack = stack = Stack(binary)
        # Instances run as users of their own, who have to reach their directories.
        stack.directory.chmod(0o755)
        try:
            self.managers = [stack.manager(f"manager-{n}") for n in range(3)]
            self.gateways = [self.role("gateway", n, ["--listen", f"127.0.0.1:{free_port()}", "--zone", f"z{n}"]) for n in range(2)]
            self.gateway_ports = [int(gateway.about["gateway"].rsplit(":", 1)[1].rstrip("/")) for gateway in self.gateways]
            self.cells = [self.cell(n) for n in range(3)]
        except BaseException:
            stack.stop()
            raise

    def role(self, role, number, arguments):
        return self.stack.add(Role(self.stack, role, f"{role}-{number}", arguments))

    def cell(self, number):
        token = self.stack.directory / "manager-0" / "cell-token"
        os.environ["TOWPATH_CELL_UIDS"] = f"{230_000 + 1_000 * number}-{230_999 + 1_000 * number}"
        first = 23_000 + 500 * number
        arguments = ["--api", self.managers[number].url, "--token-file", token, "--ports", f"{first}-{first + 499}", "--zone", f"z{number}", "--stop-instances"]
        return self.role("cell", number, [*arguments, "--gateway-url", f"http://127.0.0.1:{self.gateway_ports[0]}"])

    def towpath(self, *arguments):
        environment = dict(os.environ, TOWPATH_API=self.managers[0].url, TOWPATH_TOKEN=self.stack.token)
        done = subprocess.run([self.stack.binary, *arguments], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"towpath {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")

    def ask(self, path):
        """GET at any manager that answers; None = nobody does."""
        for manager in self.managers:
            if manager.process.poll() is None:
                try:
                    status, _, body = self.stack.call(manager, "GET", path, timeout=2)
                    if status == 200:
                        return body
                except (OSError, ValueError):
                    pass
        return None

    def instances(self):
        """Instances of the app that are ready, as the managers know them."""
        listed = self.ask("/v1/apps/drill/instances")
        return [one for one in (listed or {"items": []})["items"] if one["state"] == "ready"]

    def live_managers(self):
        listed = self.ask("/v1/managers")
        return [row["state"] for row in (listed or {"items": []})["items"]].count("live")

    def owner(self, resource):
        address = self.ask(f"/v1/managers/owner/{resource}")["address"]
        return next(manager for manager in self.managers if manager.url == address)

    def stop(self):
        self.stack.stop()


def processes_of(directory):
    """Processes whose directory or command line lies below a directory: a cell's instances and what watches over them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                below = os.readlink(entry / "cwd").startswith(f"{directory}/")
            except OSError:
                continue
            if below or any(str(directory).encode() + b"/" in word for word in words):
                found.append(int(entry.name))
    return found


def kill(pid, how):
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass
