#!/usr/bin/env python3
"""How fresh is the gateway's table?

1. From the moment an app listens to the first 200 for it through the gateway: the platform has to see that it listens,
   probe it, announce it and take it into the table. The app notes the time when its listen() returns; a client asks every
   millisecond, on a kept connection, and notes the time when it has read the answer. So the app's own work on its first
   two connections, the pause between questions and the client's are in the figure. Milliseconds, over ROUNDS starts;
   percentiles by nearest rank.
2. From SIGKILL of an instance under load to the last request sent to it: connect failures counted by the gateway (at
   most one a worker is the target), and answers other than 200 seen by clients (none is the target).

Runs a platform of its own in a temporary directory. With CHECK=1 exits 1 when a target is missed. Figures come last.
"""

import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("ROUNDS", "100"))
KILLS = int(os.environ.get("KILLS", "10"))
TARGET_MS = 20.0
HOST = "fresh.localhost"
DEADLINE_S = 30


class Platform:
    """A `towpath up` on free ports with a data directory of its own."""

    def __init__(self, binary):
        self.binary = binary
        self.data = Path(tempfile.mkdtemp(prefix="towpath-fresh-"))
        # Built apps run as other users, who have to reach their directories.
        self.data.chmod(0o755)
        ready = self.data / "ready.json"
        self.log = open(self.data / "up.log", "wb")
        arguments = ["up", "--data-dir", self.data / "data", "--listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0", "--ready-file", ready]
        # One worker, so that the count of all workers is the count of the worst.
        environment = dict(os.environ, TOWPATH_GATEWAY_WORKERS="1")
        self.process = subprocess.Popen([binary, *map(str, arguments)], env=environment, stdout=self.log, stderr=self.log)
        end = time.monotonic() + DEADLINE_S
        while not (ready.exists() and ready.stat().st_size):
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"towpath up did not start:\n{(self.data / 'up.log').read_text()}")
            time.sleep(0.05)
        about = json.loads(ready.read_text())
        self.gateway, self.api = urlsplit(about["gateway"]), urlsplit(about["api"])
        self.token = Path(about["token_file"]).read_text().strip()
        self.environment = dict(os.environ, TOWPATH_API=about["api"], TOWPATH_TOKEN_FILE=about["token_file"], NO_COLOR="1")
        self.about = about

    def run(self, *arguments):
        """A command of the command line; its failure ends the bench."""
        done = subprocess.run([self.binary, *map(str, arguments)], env=self.environment, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            sys.exit(f"towpath {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def get(self, path):
        """A resource of the API."""
        connection = http.client.HTTPConnection(self.api.hostname, self.api.port, timeout=10)
        connection.request("GET", path, headers={"authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return json.loads(body)

    def metric(self, pattern):
        """Sum of all gateway metrics whose line matches."""
        metrics = urlsplit(self.about["metrics"])
        connection = http.client.HTTPConnection(metrics.hostname, metrics.port, timeout=10)
        connection.request("GET", metrics.path or "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.log.close()
        shutil.rmtree(self.data, ignore_errors=True)


class Client:
    """Asks for the app through the gateway, on a kept connection, with as little work as possible: it runs on the same cores."""

    QUESTION = f"GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()

    def __init__(self, platform):
        self.at, self.socket = (platform.gateway.hostname, platform.gateway.port), None

    def ask(self):
        """Status and body of one answer. OSError when the gateway cuts the connection."""
        if self.socket is None:
            self.socket = socket.create_connection(self.at, timeout=10)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket.sendall(self.QUESTION)
            answer = b""
            while True:
                head, end, body = answer.partition(b"\r\n\r\n")
                length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE) if end else None
                if length and len(body) >= int(length[1]):
                    break
                more = self.socket.recv(65536)
                if not more:
                    raise ConnectionError("the gateway ended the connection inside an answer")
                answer += more
            if b"\r\nconnection: close" in head.lower():
                self.close()
            return int(head.split(b" ", 2)[1]), body
        except OSError:
            self.close()
            raise

    def close(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def first_answer_ms(platform):
    """Starts the stopped app and returns how long after it listened the first 200 came."""
    starter = subprocess.Popen([platform.binary, "start", "fresh"], env=platform.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    client, end = Client(platform), time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < end:
            status, body = client.ask()
            if status == 200:
                return (time.time_ns() - int(body.split()[0])) / 1e6
            time.sleep(0.001)
        sys.exit("the app did not answer within 30 s of its start")
    finally:
        client.close()
        starter.wait(timeout=60)


def measure_starts(platform):
    times = []
    for round in range(ROUNDS):
        platform.run("stop", "fresh")
        times.append(first_answer_ms(platform))
        if sys.stderr.isatty():
            print(f"\r{round + 1}/{ROUNDS} starts", end="", file=sys.stderr, flush=True)
    return sorted(times)


class Load:
    """Eight clients, each on a kept connection, that count answers by status until told to stop."""

    def __init__(self, platform):
        self.platform, self.on, self.statuses = platform, True, {}
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.client, daemon=True) for _ in range(8)]
        for thread in self.threads:
            thread.start()

    def client(self):
        counts, client = {}, Client(self.platform)
        while self.on:
            try:
                key, _ = client.ask()
            except OSError as error:
                key = type(error).__name__
            counts[key] = counts.get(key, 0) + 1
        client.close()
        with self.lock:
            for key, count in counts.items():
                self.statuses[key] = self.statuses.get(key, 0) + count

    def stop(self):
        self.on = False
        for thread in self.threads:
            thread.join()
        return self.statuses


def all_ready(platform, wanted):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        instances = platform.get("/v1/apps/fresh/instances")["items"]
        if sum(instance["state"] == "ready" for instance in instances) == wanted:
            return instances
        time.sleep(0.05)
    sys.exit(f"the app did not come back to {wanted} ready instances within 30 s")


def measure_kills(platform):
    """Connect failures a kill and worker, and the answers that clients got, over KILLS kills under load."""
    platform.run("scale", "fresh", 4)
    worst, load = 0.0, Load(platform)
    try:
        for kill in range(KILLS):
            # In turn: one that dies again and again is started again ever later.
            instances = sorted(all_ready(platform, 4), key=lambda instance: instance["id"])
            before = platform.metric(r"towpath_gateway_connect_failures_total\b")
            os.kill(instances[kill % len(instances)]["pid"], signal.SIGKILL)
            time.sleep(1.0)  # the load goes on; whatever would be sent to the dead one is sent by now
            worst = max(worst, platform.metric(r"towpath_gateway_connect_failures_total\b") - before)
    finally:
        statuses = load.stop()
    return worst, statuses


def main():
    binary = str(Path(sys.argv[1]).resolve())
    platform = Platform(binary)
    try:
        platform.run("push", HERE / "app")
        times = measure_starts(platform)
        platform.run("start", "fresh")
        failures, statuses = measure_kills(platform)
        workers = max(1.0, platform.metric(r"towpath_gateway_workers\b"))
    finally:
        platform.stop()
    p50, p90, p99 = (times[math.ceil(share * len(times)) - 1] for share in (0.5, 0.9, 0.99))
    bad = sum(count for status, count in statuses.items() if status != 200)
    print(f"\nstarts: {ROUNDS}; kills under load: {KILLS}; answers: {statuses}")
    print(f"fresh_p50_ms={p50:.1f}")
    print(f"fresh_p90_ms={p90:.1f}")
    print(f"fresh_max_ms={times[-1]:.1f}")
    print(f"worst_connect_failures_per_worker={failures / workers:.2f}")
    print(f"failed_requests={bad}")
    print(f"fresh_p99_ms={p99:.1f}")
    if os.environ.get("CHECK", "0") not in ("", "0") and (p99 > TARGET_MS or failures / workers > 1 or bad):
        sys.exit(f"a target was missed: p99 <= {TARGET_MS} ms, at most one connect failure a worker, no failed request")


if __name__ == "__main__":
    main()
