"""What the benches of the gateway have in common: processes that end with the bench, their CPU time, load and its figures."""
import atexit
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
CHECK = os.environ.get("CHECK", "0") not in ("", "0")
children = []


def start(command, **more):
    """A process that ends with the bench at the latest."""
    more = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL} | more
    child = subprocess.Popen([str(part) for part in command], **more)
    children.append(child)
    return child


def stop_all():
    for child in reversed(children):
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    for child in reversed(children):
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    children.clear()


def workspace(name):
    """A directory that is removed at the end, after all processes have ended."""
    work = Path(tempfile.mkdtemp(prefix=f"towpath-bench-{name}-"))
    work.chmod(0o755)  # nginx serves as another user when started by root
    atexit.register(lambda: (stop_all(), shutil.rmtree(work, ignore_errors=True)))
    # A signal ends the bench through the same door.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return work


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def ready(port):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def family(pid):
    """The process and all its descendants."""
    pids, todo = [], [pid]
    while todo:
        one = todo.pop()
        pids.append(one)
        for children_file in Path(f"/proc/{one}/task").glob("*/children"):
            todo += [int(child) for child in children_file.read_text().split()]
    return pids


def cpu_seconds(pids):
    """User and kernel time of all threads, since they began."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def resident_bytes(pid):
    """What the process has in memory."""
    fields = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss_Anon:\s+(\d+) kB", fields, re.M)[1]) * 1024


class Gateway:
    """`towpath gateway --file` with one worker, on free ports."""

    def __init__(self, binary, work, resources, settings=None, workers=1):
        self.dir = work
        self.file = work / "apisix.json"
        self.write(resources)
        settings = {"listen": ["127.0.0.1:0"], "admin": "127.0.0.1:0", "workers": workers} | (settings or {})
        config = work / "towpath.toml"
        config.write_text(toml({"gateway": settings}))
        ready_file = work / "ready.json"
        self.log = open(work / "gateway.log", "wb")
        self.process = start([binary, "gateway", "--config", config, "--file", self.file, "--data-dir", work / "data",
                              "--ready-file", ready_file], stderr=self.log)
        end = time.monotonic() + 60
        while not (ready_file.exists() and ready_file.stat().st_size):
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"the gateway did not start:\n{(work / 'gateway.log').read_text()}")
            time.sleep(0.02)
        about = json.loads(ready_file.read_text())
        self.port, self.metrics = int(about["gateway"].rsplit(":", 1)[1]), about["metrics"]
        self.pid = self.process.pid

    def write(self, resources):
        """The whole content, in one go."""
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(resources))
        new.rename(self.file)


def toml(tables):
    """Nested tables of numbers, texts and lists, in an order in which TOML takes them."""
    lines = []

    def table(name, values):
        if name:
            lines.append(f"[{name}]")
        for key, value in values.items():
            if not isinstance(value, dict):
                lines.append(f"{key} = {literal(value)}")
        for key, value in values.items():
            if isinstance(value, dict):
                table(f"{name}.{key}" if name else key, value)

    def literal(value):
        if isinstance(value, list):
            return "[" + ", ".join(map(literal, value)) + "]"
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{key} = {literal(each)}" for key, each in value.items()) + " }"
        return json.dumps(value)

    table("", tables)
    return "\n".join(lines) + "\n"


def wrk(url, connections, seconds, *headers):
    """Requests that were answered, and their p99 in milliseconds."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", *(part for each in headers for part in ("-H", each)), url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # Where connections are to be closed, wrk counts each as an error of reading.
    closing = any(each.lower() == "connection: close" for each in headers)
    broken = re.search(r"Socket errors: connect [1-9]" if closing else "Socket errors", out)
    if "Non-2xx" in out or broken or not re.search(r"[1-9]\d* requests in", out):
        sys.exit(f"errors while measuring {url}:\n{out}")
    p99, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", out).groups()
    return int(re.search(r"(\d+) requests in", out)[1]), float(p99) * {"us": 0.001, "ms": 1, "s": 1000}[unit]


def h2load(url, connections, streams, seconds, *headers):
    """Requests that were answered over HTTP/2, and their mean time in milliseconds (it has no percentiles)."""
    command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}", *(part for each in headers for part in ("-H", each)), url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    total, good = re.search(r"requests: (\d+) total.*?(\d+) succeeded", out).groups()
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", out)
    if not int(good) or any(int(codes[n]) for n in (2, 3, 4)):
        sys.exit(f"errors while measuring {url}:\n{out}")
    return int(good), 0.0


def compare(rounds, scenarios, contenders):
    """Runs `scenarios` ({name: load(contender) -> (requests, p99)}) in turns against `contenders` ({name: (pid, …)});
    the first contender is the reference. Returns {(scenario, contender): (µs, p99, ratio)}, medians over rounds of ratios
    within a round."""
    seen = {}
    for number in range(rounds + 1):
        for scenario, load in scenarios.items():
            for name, contender in contenders.items():
                pids = family(contender[0])
                before = cpu_seconds(pids)
                requests, p99 = load(name, contender)
                cost = (cpu_seconds(pids) - before) / requests * 1e6
                if number:  # the first round warms up
                    seen.setdefault((scenario, name), []).append((cost, p99))
    reference = next(iter(contenders))
    figures = {}
    for (scenario, name), values in seen.items():
        base = [cost for cost, _ in seen[scenario, reference]]
        ratio = statistics.median(cost / one for (cost, _), one in zip(values, base))
        figures[scenario, name] = (statistics.median(cost for cost, _ in values), statistics.median(p99 for _, p99 in values), ratio)
    return figures


def verdict(figures):
    """Prints `name=value (target …)` for each `(name, value, limit)`; a limit of None = no target. Exits 1 with CHECK=1 over one."""
    missed = []
    print("== figures")
    for name, value, limit in figures:
        over = limit is not None and value > limit
        target = "" if limit is None else f" (target <= {limit:g}{', MISSED' if over else ''})"
        print(f"{name}={value:.2f}{target}")
        missed += [name] if over else []
    if CHECK and missed:
        sys.exit(f"missed: {', '.join(missed)}")
