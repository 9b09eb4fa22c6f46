#!/usr/bin/env python3
"""What the death of a node and of a zone costs behind a gateway that runs alone.

`zones.py BINARY` starts a gateway in zone `a` and four nodes of one static upstream on loopback addresses, two in zone `a`
and two in zone `b`, keeps constant load on it, and does one thing after the other:
  a node is killed, comes back, the whole of zone `a` is killed, comes back
and prints a row for each:
  sent, failed   requests, and those that were not answered with 200 within 5 s
  slowest        the longest time until an answer, in milliseconds
  shift          seconds from the moment until the last answer that was not as it should be: an error, or a node of the other
                 zone while one of its own is there
With CHECK=1 exits 1 when a request failed, or a shift took longer than its bound.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

NODES = {"a1": "127.0.0.11", "a2": "127.0.0.12", "b1": "127.0.0.21", "b2": "127.0.0.22"}
PORT = 18480
CLIENTS, RATE = 8, 400
PATIENCE_S = 5.0
# How long each thing is watched, and the longest shift that is good.
WATCHED_S = 6.0
SHIFT_S = {"kill": 1.0, "return": 4.0}

NODE = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    def do_GET(self):
        body = sys.argv[1].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    def handle_error(self, *_):
        pass
Server((sys.argv[2], int(sys.argv[3])), Answer).serve_forever()
"""


class Node:
    def __init__(self, name):
        self.name, self.process = name, None

    def start(self):
        self.process = subprocess.Popen([sys.executable, "-c", NODE, self.name, NODES[self.name], str(PORT)])
        until(lambda: can_connect(NODES[self.name], PORT), f"node {self.name}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def can_connect(address, port):
    try:
        socket.create_connection((address, port), timeout=1).close()
        return True
    except OSError:
        return False


def until(holds, what):
    end = time.monotonic() + 30
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"never: {what}")
        time.sleep(0.02)


class Client(threading.Thread):
    """One request after the other, by the clock; notes what became of each."""

    def __init__(self, port, number, stop):
        super().__init__(daemon=True)
        self.port, self.stop, self.connection = port, stop, None
        self.offset = number / RATE
        # (when it was sent, when it ended, who answered or None)
        self.book = []

    def run(self):
        due = time.monotonic() + self.offset
        while not self.stop.is_set():
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due + CLIENTS / RATE, time.monotonic())
            sent = time.monotonic()
            self.book.append((sent, *self.ask()))

    def ask(self):
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            self.connection.request("GET", "/", headers={"host": "zones.test"})
            answer = self.connection.getresponse()
            body = answer.read().decode()
            return time.monotonic(), body if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            self.connection = None
            return time.monotonic(), None


def config(directory):
    nodes = "\n".join(
        f"        - {{host: {address}, port: {PORT}, weight: 1, metadata: {{zone: {name[0]}}}}}"
        for name, address in NODES.items()
    )
    file = directory / "apisix.yaml"
    checks = "{active: {http_path: /, healthy: {interval: 1, successes: 1}, unhealthy: {interval: 1, tcp_failures: 1}}}"
    file.write_text(
        f"routes:\n  - id: zones\n    uri: /*\n    upstream:\n      type: roundrobin\n      checks: {checks}\n"
        f"      nodes:\n{nodes}\n#END\n"
    )
    return file


def watch(name, kind, expected, act, clients):
    """Does something, watches what follows, and prints its row; whether it is as good as it should be."""
    began = time.monotonic()
    act()
    acted = time.monotonic()
    time.sleep(WATCHED_S)
    book = [entry for client in clients for entry in list(client.book) if entry[0] >= began]
    failed = sum(who is None for _, _, who in book)
    wrong = [ended for _, ended, who in book if who is None or who not in expected]
    shift = max((ended - began for ended in wrong), default=0.0)
    slowest = max(ended - sent for sent, ended, _ in book) * 1000
    print(f"{name:<24} {len(book):>6} {failed:>6} {slowest:>9.1f} {shift:>7.2f}", flush=True)
    return failed == 0 and shift <= SHIFT_S[kind] + (acted - began)


def main():
    binary = Path(sys.argv[1]).resolve()
    nodes = {name: Node(name) for name in NODES}
    stop, gateway, clients, good = threading.Event(), None, [], True
    with tempfile.TemporaryDirectory(prefix="towpath-zones-") as text:
        directory = Path(text)
        try:
            for node in nodes.values():
                node.start()
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            arguments = ["gateway", "--file", str(config(directory)), "--listen", f"127.0.0.1:{port}"]
            arguments += ["--data-dir", str(directory / "data"), "--ready-file", str(directory / "ready")]
            environment = {**os.environ, "TOWPATH_ZONE": "a"}
            log = open(directory / "gateway.log", "w")
            gateway = subprocess.Popen([binary, *arguments], env=environment, stdout=log, stderr=log)
            until(lambda: (directory / "ready").exists(), "the gateway is ready")
            clients = [Client(port, number, stop) for number in range(CLIENTS)]
            for client in clients:
                client.start()
            own, other = {"a1", "a2"}, {"b1", "b2"}
            print(f"{'':<24} {'sent':>6} {'failed':>6} {'slowest':>9} {'shift':>7}")
            good &= watch("all are there", "kill", own, lambda: None, clients)
            good &= watch("a node is killed", "kill", {"a2"}, nodes["a1"].kill, clients)
            good &= watch("it comes back", "return", own, nodes["a1"].start, clients)
            good &= watch("its zone is killed", "kill", other, lambda: [nodes[n].kill() for n in sorted(own)], clients)
            good &= watch("the zone comes back", "return", own, lambda: [nodes[n].start() for n in sorted(own)], clients)
        finally:
            stop.set()
            for client in clients:
                client.join()
            for process in [gateway, *(node.process for node in nodes.values())]:
                if process and process.poll() is None:
                    process.kill()
                    process.wait()
    if os.environ.get("CHECK") == "1" and not good:
        sys.exit("worse than its bounds")


if __name__ == "__main__":
    main()
