"""PostgreSQL, NATS and managers on free ports, in a temporary directory of their own."""

import glob
import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

DEADLINE_S = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def postgres_program(name):
    """A program of the newest PostgreSQL that is installed."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: int(path.split("/")[4]))
    return found[-1] if found else shutil.which(name) or sys.exit(f"{name} is not here; install postgresql")


def wait_until(what, so, process=None, log=None):
    end = time.monotonic() + DEADLINE_S
    while not (value := so()):
        if time.monotonic() > end or (process is not None and process.poll() is not None):
            sys.exit(f"{what} did not come up\n{log.read_text()[-2000:] if log and log.exists() else ''}")
        time.sleep(0.02)
    return value


class Postgres:
    """A durable server with the settings that a fresh installation has, but for memory and connections."""

    def __init__(self, directory):
        self.directory, self.port = directory / "postgres", free_port()
        self.directory.mkdir()
        # It refuses to run as root.
        root = os.geteuid() == 0
        users = [name for name in ("postgres", "nobody") if root and any(user.pw_name == name for user in pwd.getpwall())]
        self.user = users[0] if users else None
        if self.user:
            directory.chmod(0o755)
            shutil.chown(self.directory, self.user)
        data = self.directory / "data"
        self.call([postgres_program("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"])
        settings = ["listen_addresses=127.0.0.1", "shared_buffers=256MB", "max_connections=200", f"unix_socket_directories={self.directory}"]
        self.command = [postgres_program("postgres"), "-D", data, "-p", self.port, *(word for setting in settings for word in ("-c", setting))]
        self.begin()
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def begin(self):
        """Starts it, again if it was killed, and waits until it takes connections."""
        log, pid_file = self.directory / "log", self.directory / "data" / "postmaster.pid"
        # What a killed one has left says "ready", too.
        pid_file.unlink(missing_ok=True)
        self.process = subprocess.Popen(list(map(str, self.command)), user=self.user, stdout=open(log, "ab"), stderr=subprocess.STDOUT)
        wait_until("PostgreSQL", lambda: pid_file.exists() and "ready" in pid_file.read_text(), self.process, log)

    def call(self, command):
        done = subprocess.run(list(map(str, command)), user=self.user, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def sql(self, text):
        return self.call([shutil.which("psql") or postgres_program("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", text]).strip()

    def stop(self):
        end(self.process, signal.SIGINT)


class Nats:
    def __init__(self, directory):
        self.port, self.log = free_port(), directory / "nats.log"
        self.begin()
        self.url = f"nats://127.0.0.1:{self.port}"

    def begin(self):
        """Starts it, again if it was killed, and waits until it takes connections."""
        program = shutil.which("nats-server") or "/usr/sbin/nats-server"
        self.process = subprocess.Popen([program, "-a", "127.0.0.1", "-p", str(self.port)], stdout=open(self.log, "ab"), stderr=subprocess.STDOUT)
        wait_until("NATS", lambda: answers(self.port), self.process, self.log)

    def stop(self):
        end(self.process, signal.SIGTERM)


class Manager:
    """A `towpath manager`, which may be killed and started again on the same port."""

    def __init__(self, stack, name, config=""):
        self.stack, self.name, self.port = stack, name, free_port()
        self.data = stack.directory / name
        self.data.mkdir(mode=0o700)
        self.config = stack.directory / f"{name}.toml"
        self.config.write_text(config)
        self.start()

    def start(self):
        self.begin()
        self.wait()

    def begin(self):
        ready = self.stack.directory / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        command = [self.stack.binary, "manager", "--config", self.config, "--data-dir", self.data, "--nats", self.stack.nats.url, "--postgres", self.stack.postgres.url]
        command += ["--listen", f"127.0.0.1:{self.port}", "--ready-file", ready]
        self.log = self.stack.directory / f"{self.name}.log"
        self.process = subprocess.Popen(list(map(str, command)), stdout=open(self.log, "ab"), stderr=subprocess.STDOUT)
        self.ready = ready

    def wait(self):
        wait_until(self.name, lambda: self.ready.exists() and self.ready.stat().st_size, self.process, self.log)
        self.about = json.loads(self.ready.read_text())

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def cpu_s(self):
        """CPU time of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Resident bytes of the process."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        end(self.process, signal.SIGTERM)


class Stack:
    def __init__(self, binary):
        self.binary = binary
        self.directory = Path(tempfile.mkdtemp(prefix="towpath-control-"))
        self.parts = []
        self.postgres = self.add(Postgres(self.directory))
        self.nats = self.add(Nats(self.directory))

    def add(self, part):
        self.parts.append(part)
        return part

    def manager(self, name, config=""):
        return self.add(Manager(self, name, config))

    @property
    def token(self):
        return (self.directory / "manager-0" / "token").read_text().strip()

    def call(self, manager, method, path, body=None, headers=None, timeout=60):
        """One request to a manager: status, headers and the decoded body."""
        connection = http.client.HTTPConnection("127.0.0.1", manager.port, timeout=timeout)
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json", **(headers or {})}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), json.loads(data) if data else None

    def stop(self):
        for part in reversed(self.parts):
            part.stop()
        if os.environ.get("KEEP"):
            print(f"logs are in {self.directory}", file=sys.stderr)
        else:
            shutil.rmtree(self.directory, ignore_errors=True)


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def end(process, how):
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def owner_port(stack, manager, app):
    _, _, owner = stack.call(manager, "GET", f"/v1/managers/owner/{app}")
    return urlsplit(owner["address"]).port
