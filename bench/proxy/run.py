#!/usr/bin/env python3
"""Compares what proxying costs: CPU microseconds (user + kernel, all threads) per request.

The work is the same for all: one worker, keep-alive on both sides, four endpoints, a request id, X-Forwarded-For, an
access log that is written in large pieces. Towpath does more: its framing guard, lanes, load balancing by in-flight,
latency and reported load, 1,001 routes, every request in a lane of its own instances, per-app metrics, Forwarded, traceparent.
HAProxy logs to syslog only, which does not run here; it logs nothing.

Contenders take turns in each round and scenario, so that a busy machine is busy for all; ratios are taken within a
round, and the median over rounds counts. The last line is the WORST ratio to nginx of all scenarios.
"""
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from measure import cpu_seconds, family, free_ports, ready, start, workspace, wrk  # noqa: E402

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("ROUNDS", "4"))
SECONDS = os.environ.get("SECONDS_EACH", "2")
TARGET = float(os.environ.get("TARGET", "1.10"))
SCENARIOS = [("1k", 32), ("1k", 256), ("64k", 32), ("64k", 256)]
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


def render(name, target, values):
    text = (HERE / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    target.write_text(text)
    return target


def load(port, path, connections, seconds):
    return wrk(f"http://127.0.0.1:{port}/{path}", connections, seconds, "Host: bench.localhost", "towpath-lane: blue")


def allocations(child):
    child.stdin.write(b"\n")
    child.stdin.flush()
    count, size = child.stdout.readline().split()
    return int(count), int(size)


def main():
    binary = sys.argv[1]
    work = workspace("proxy")
    (work / "www").mkdir()
    (work / "www/1k").write_bytes(b"x" * 1024)
    (work / "www/64k").write_bytes(b"y" * 65536)
    ports = free_ports(8)
    backends, (nginx_port, haproxy_port, towpath_port, counted_port) = ports[:4], ports[4:]
    values = {"WORK": work, "NGINX": nginx_port, "HAPROXY": haproxy_port}
    values |= {f"B{n + 1}": port for n, port in enumerate(backends)}
    start(["nginx", "-c", render("backend.conf", work / "backend.conf", values)])
    nginx = start(["nginx", "-c", render("nginx.conf", work / "nginx.conf", values)])
    haproxy = start(["haproxy", "-db", "-f", render("haproxy.cfg", work / "haproxy.cfg", values)])
    addresses = [f"127.0.0.1:{port}" for port in backends]
    towpath = start([binary, str(work / "towpath"), f"127.0.0.1:{towpath_port}", "1", *addresses], **PIPES)
    contenders = [("nginx", nginx_port, nginx), ("haproxy", haproxy_port, haproxy), ("towpath", towpath_port, towpath)]
    for port in backends + [port for _, port, _ in contenders]:
        ready(port)
    results = {}
    for path, connections in SCENARIOS:
        for _, port, _ in contenders:
            load(port, path, connections, 1)
    for _ in range(ROUNDS):
        for path, connections in SCENARIOS:
            for name, port, child in contenders:
                pids = family(child.pid)
                before = cpu_seconds(pids)
                requests, p99 = load(port, path, connections, SECONDS)
                cost = (cpu_seconds(pids) - before) / requests * 1e6
                results.setdefault((path, connections, name), []).append((cost, p99))
    counted = start([binary, str(work / "counted"), f"127.0.0.1:{counted_port}", "1", *addresses],
                    env=os.environ | {"COUNT_ALLOCATIONS": "1"}, **PIPES)
    ready(counted_port)
    counted.stdout.readline()
    load(counted_port, "1k", 32, 1)
    count, size = allocations(counted)
    requests, _ = load(counted_port, "1k", 32, 1)
    count, size = (after - before for after, before in zip(allocations(counted), (count, size)))
    report(results, count / requests, size / requests)


def report(results, allocations_each, bytes_each):
    print(f"{'scenario':<16}{'contender':<10}{'CPU us/request':>15}{'p99 ms':>9}{'ratio to nginx':>16}")
    worst, ratios = 0.0, []
    for path, connections in SCENARIOS:
        reference = [cost for cost, _ in results[path, connections, "nginx"]]
        for name in ("nginx", "haproxy", "towpath"):
            costs = [cost for cost, _ in results[path, connections, name]]
            p99 = statistics.median(p99 for _, p99 in results[path, connections, name])
            ratio = statistics.median(cost / base for cost, base in zip(costs, reference))
            print(f"{path + ', ' + str(connections):<16}{name:<10}{statistics.median(costs):>15.1f}{p99:>9.1f}{ratio:>16.2f}")
            if name == "towpath":
                worst = max(worst, ratio)
                ratios.append(ratio)
    print(f"towpath_allocations_per_request={allocations_each:.1f}")
    print(f"towpath_allocated_bytes_per_request={bytes_each:.0f}")
    print(f"cpu_ratio_geometric_mean={statistics.geometric_mean(ratios):.2f}")
    print(f"cpu_ratio_vs_nginx={worst:.2f}")
    if os.environ.get("CHECK") == "1" and worst > TARGET:
        sys.exit(f"the target is {TARGET}")


main()
