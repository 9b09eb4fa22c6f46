#!/usr/bin/env python3
"""Bytes of memory that an idle connection costs the gateway: CONNECTIONS (10,000) kept ones of clients that have had one
answer each, then WEBSOCKETS (5,000) through to an upstream. `idle.py BINARY`. Figures come last.
"""
import os
import re
import resource
import selectors
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import measure  # noqa: E402

CONNECTIONS = int(os.environ.get("CONNECTIONS", "10000"))
WEBSOCKETS = int(os.environ.get("WEBSOCKETS", "5000"))
GET = b"GET /mock HTTP/1.1\r\nhost: bench.localhost\r\n\r\n"
UPGRADE = (b"GET /ws HTTP/1.1\r\nhost: bench.localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
           b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n")
SWITCH = (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
          b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")


def upstream():
    """Switches protocols for whoever asks and keeps the connection; in a thread of its own. Returns its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)

    def serve():
        selector = selectors.DefaultSelector()
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    selector.register(listener.accept()[0], selectors.EVENT_READ)
                elif b"\r\n\r\n" in key.fileobj.recv(4096):
                    key.fileobj.sendall(SWITCH)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def open_all(port, count, question, wanted):
    """That many connections, each of which has had its answer."""
    opened = []
    for number in range(count):
        # One address has 28,000 ports for us.
        one = socket.create_connection(("127.0.0.1", port), timeout=30)
        one.sendall(question)
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = one.recv(4096)
            if not more:
                sys.exit(f"connection {number} was closed after {answer!r}")
            answer += more
        if wanted not in answer:
            sys.exit(f"connection {number} got {answer[:200]!r}")
        opened.append(one)
    return opened


def until_dozing(gateway, count):
    """Waits until so many have given back what they do not need while they are idle."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        text = urllib.request.urlopen(gateway.metrics, timeout=10).read().decode()
        if float(re.search(r"^towpath_gateway_connections_dozing (\S+)", text, re.M)[1]) >= count:
            return time.sleep(1)  # the allocator gives pages back a moment later
        time.sleep(0.2)
    sys.exit("the connections do not doze")


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = CONNECTIONS + 2 * WEBSOCKETS + 1000
    if hard < need:
        sys.exit(f"the limit of open files is {hard}; this bench needs {need} (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, need), hard))
    work = measure.workspace("idle")
    node = {f"127.0.0.1:{upstream()}": 1}
    gateway = measure.Gateway(sys.argv[1], work, {"routes": [
        {"id": "mock", "uri": "/mock", "plugins": {"mocking": {"response_example": "ok"}}},
        {"id": "ws", "uri": "/ws", "enable_websocket": True, "upstream": {"type": "roundrobin", "nodes": node}},
    ]}, {"timeouts": {"keep_alive": "1h"}})
    warm = open_all(gateway.port, 200, GET, b" 200 ") + open_all(gateway.port, 200, UPGRADE, b" 101 ")
    until_dozing(gateway, 200)
    before = measure.resident_bytes(gateway.pid)
    kept = open_all(gateway.port, CONNECTIONS, GET, b" 200 ")
    until_dozing(gateway, CONNECTIONS)
    middle = measure.resident_bytes(gateway.pid)
    tunnels = open_all(gateway.port, WEBSOCKETS, UPGRADE, b" 101 ")
    after = measure.resident_bytes(gateway.pid)
    for one in warm + kept + tunnels:
        one.close()
    measure.verdict([
        ("bytes_per_idle_connection", (middle - before) / CONNECTIONS, None),
        ("bytes_per_websocket", (after - middle) / WEBSOCKETS, None),
    ])


main()
