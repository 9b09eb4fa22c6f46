#!/usr/bin/env python3
"""What it costs to have many routes and to change them while traffic runs, on one `towpath up` (manager, store and gateway in one process).

1. ROUTES (100,000) routes are put over the Admin API: time, and bytes of memory each.
2. CHANGES (300) further routes, one at a time, under load: from the answer to the PUT to the first 200 through the gateway.
3. The p99 of requests at a constant rate, without changes and during them.
4. PAIRS (20,000) creations and deletions: memory before and after.

`config.py BINARY`. CHECK=1 exits 1 when a target is missed. Figures come last.
"""
import http.client
import json
import math
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import measure  # noqa: E402

ROUTES = int(os.environ.get("ROUTES", "100000"))
CHANGES = int(os.environ.get("CHANGES", "300"))
PAIRS = int(os.environ.get("PAIRS", "20000"))
RATE = 200  # requests a second of the constant load
CLIENTS = 16
local = threading.local()


class Platform:
    def __init__(self, binary, work):
        ready = work / "ready.json"
        arguments = [binary, "up", "--data-dir", work / "data", "--listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0", "--ready-file", ready]
        self.process = measure.start(arguments, stderr=open(work / "up.log", "wb"))
        end = time.monotonic() + 60
        while not (ready.exists() and ready.stat().st_size):
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"towpath up did not start:\n{(work / 'up.log').read_text()}")
            time.sleep(0.05)
        about = json.loads(ready.read_text())
        self.gateway, self.api = urlsplit(about["gateway"]), urlsplit(about["api"])
        self.token = Path(about["token_file"]).read_text().strip()

    def admin(self, method, path, body=None):
        """One request to the Admin API, on this thread's kept connection; again where that has ended, since all of them may be repeated."""
        headers = {"X-API-KEY": self.token, "content-type": "application/json"}
        for _ in range(200):
            connection = getattr(local, "api", None)
            if connection is None:
                connection = local.api = http.client.HTTPConnection(self.api.hostname, self.api.port, timeout=60)
            try:
                connection.request(method, f"/apisix/admin{path}", json.dumps(body) if body is not None else None, headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                local.api = None
                continue
            if answer.status not in (429, 503):
                break
            time.sleep(float(answer.headers.get("retry-after") or 1) / 10)  # too many at once
        # A deletion that was repeated finds nothing.
        if answer.status not in (200, 201) and not (method == "DELETE" and answer.status == 404):
            sys.exit(f"{method} {path}: {answer.status} {text[:300]}")

    def put(self, name):
        route = {"uri": f"/{name}/*", "host": f"{name}.bench.localhost", "plugins": {"mocking": {"response_example": name}}}
        self.admin("PUT", f"/routes/{name}", route)

    def status(self, host, path):
        """Status of one answer of the gateway, on this thread's kept connection."""
        connection = getattr(local, "gateway", None)
        if connection is None:
            connection = local.gateway = http.client.HTTPConnection(self.gateway.hostname, self.gateway.port, timeout=10)
            connection.connect()
            connection.sock.setsockopt(measure.socket.IPPROTO_TCP, measure.socket.TCP_NODELAY, 1)
        connection.request("GET", path, headers={"host": host})
        answer = connection.getresponse()
        answer.read()
        return answer.status


class Load(threading.Thread):
    """RATE requests a second at one of the routes, each timed from the moment at which it was due."""

    def __init__(self, platform):
        super().__init__(daemon=True)
        self.platform, self.on, self.times, self.bad = platform, True, [], 0

    def run(self):
        due = time.monotonic()
        while self.on:
            due += 1 / RATE
            time.sleep(max(0, due - time.monotonic()))
            begun = time.monotonic()
            self.bad += self.platform.status("r1.bench.localhost", "/r1/x") != 200
            self.times.append((time.monotonic() - begun) * 1000)

    def end(self):
        self.on = False
        self.join()
        return percentile(self.times, 0.99), self.bad


def percentile(times, share):
    return sorted(times)[math.ceil(share * len(times)) - 1]


def freshness(platform, number):
    """Milliseconds from the answer to a PUT to the first 200 for its route."""
    name = f"new{number}"
    platform.put(name)
    begun = time.monotonic()
    while platform.status(f"{name}.bench.localhost", f"/{name}/x") != 200:
        if time.monotonic() - begun > 10:
            sys.exit(f"route {name} was not served within 10 s")
        time.sleep(0.001)
    return (time.monotonic() - begun) * 1000


def main():
    work = measure.workspace("config")
    platform = Platform(sys.argv[1], work)
    pid = platform.process.pid
    platform.put("warm")
    empty, begun = measure.resident_bytes(pid), time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as clients:
        for done, _ in enumerate(clients.map(platform.put, (f"r{n}" for n in range(ROUTES))), 1):
            if done % 10_000 == 0:
                print(f"  {done} routes after {time.monotonic() - begun:.0f} s", flush=True)
    freshness(platform, "last")
    loaded_s = time.monotonic() - begun
    each = (measure.resident_bytes(pid) - empty) / max(ROUTES, 1)
    load = Load(platform)
    load.start()
    time.sleep(10)
    quiet_p99, bad_quiet = load.end()
    load = Load(platform)
    load.start()
    fresh = [freshness(platform, n) for n in range(CHANGES)]
    busy_p99, bad_busy = load.end()
    before = measure.resident_bytes(pid)

    def pair(n):
        platform.put(f"passing{n}")
        platform.admin("DELETE", f"/routes/passing{n}")

    halves = []
    with ThreadPoolExecutor(CLIENTS) as clients:
        for half in range(2):  # the first half fills what is bounded: caches, the audit log, the feed
            list(clients.map(pair, range(half * PAIRS // 2, (half + 1) * PAIRS // 2)))
            halves.append(measure.resident_bytes(pid))
    growth = (halves[1] - halves[0]) / max(PAIRS // 2, 1)
    print(f"{ROUTES} routes in {loaded_s:.0f} s; {CHANGES} further ones under load: p50 {percentile(fresh, 0.5):.1f} ms; "
          f"memory {before / 1e6:.0f} MB, after {PAIRS} creations and deletions {halves[1] / 1e6:.0f} MB")
    measure.verdict([
        ("load_s", loaded_s, None),
        ("bytes_per_route", each, None),
        ("failed_requests", bad_quiet + bad_busy, 0),
        ("quiet_p99_ms", quiet_p99, None),
        ("request_p99_during_changes_ratio", busy_p99 / quiet_p99, 1.5),
        ("bytes_kept_per_creation_and_deletion", growth, 64),
        ("fresh_p99_ms", percentile(fresh, 0.99), 50.0),
    ])


main()
