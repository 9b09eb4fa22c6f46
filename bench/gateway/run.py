#!/usr/bin/env python3
"""What `towpath gateway --file` costs beside nginx, in CPU microseconds (user + kernel, all threads) per request.

nginx proxies plainly with its access log on. Towpath serves 1,001 routes with request-id, limit-count, prometheus and its
access log on. One worker each, the same four backends, keep-alive on both sides. TLS is 1.3 with one ECDSA P-256 certificate and no
resumption. Contenders take turns; ratios are taken within a round, and the median over rounds counts.

`run.py BINARY [PART…]`: http, h2, tls, plugins (what each plugin adds by itself). ROUNDS, SECONDS_EACH, CHECK=1.
"""
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import measure  # noqa: E402

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("ROUNDS", "4"))
SECONDS = os.environ.get("SECONDS_EACH", "2")
HOST = "bench.localhost"
USED = {
    "request-id": {},
    "limit-count": {"count": 1_000_000_000, "time_window": 60, "key_type": "var", "key": "remote_addr"},
    "prometheus": {},
}
ALONE = {
    "request-id": USED["request-id"],
    "limit-count": USED["limit-count"],
    "limit-req": {"rate": 1e6, "burst": 1e6, "key_type": "var", "key": "remote_addr"},
    "limit-conn": {"conn": 100_000, "burst": 0, "default_conn_delay": 0.1, "key_type": "var", "key": "remote_addr"},
    "prometheus": USED["prometheus"],
    "proxy-rewrite": {"headers": {"set": {"x-from": "$remote_addr"}}},
    "response-rewrite": {"headers": {"set": {"x-served": "yes"}}},
    "cors": {},
    "ip-restriction": {"whitelist": ["127.0.0.0/8", "10.0.0.0/8"]},
    "ua-restriction": {"denylist": ["curl.*"]},
    "uri-blocker": {"block_rules": ["root.exe", "root.m+"]},
    "key-auth": {},
    "api-breaker": {"break_response_code": 503},
    "traffic-split": {"rules": [{"weighted_upstreams": [{"weight": 1}]}]},
}


def resources(backends):
    nodes = {f"127.0.0.1:{port}": 1 for port in backends}
    kept = {"size": 512, "requests": 1_000_000_000}
    routes = [{"id": f"r{n}", "host": f"a{n}.{HOST}", "uri": f"/some/{n}/*", "upstream_id": "backends"} for n in range(1000)]
    routes.append({"id": "bench", "host": HOST, "uri": "/*", "upstream_id": "backends", "plugins": USED})
    routes.append({"id": "plain", "host": f"plain.{HOST}", "uri": "/*", "upstream_id": "backends"})
    for name, config in ALONE.items():
        routes.append({"id": name, "host": f"{name}.{HOST}", "uri": "/*", "upstream_id": "backends", "plugins": {name: config}})
    consumers = [{"username": "jack", "plugins": {"key-auth": {"key": "bench-key"}}}]
    upstreams = [{"id": "backends", "type": "roundrobin", "nodes": nodes, "keepalive_pool": kept}]
    return {"routes": routes, "consumers": consumers, "upstreams": upstreams}


def render(work, name, values):
    text = (HERE.parent / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    target = work / Path(name).name.replace(".conf", f"-{Path(name).parent.name}.conf")
    target.write_text(text)
    return target


def certificate(work):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", work / "key.pem", "-out", work / "cert.pem"],
                   check=True, capture_output=True)


class Stage:
    """The backends, nginx and the gateway."""

    def __init__(self, binary):
        work = measure.workspace("gateway")
        (work / "www").mkdir()
        (work / "www/1k").write_bytes(b"x" * 1024)
        (work / "www/64k").write_bytes(b"y" * 65536)
        certificate(work)
        ports = measure.free_ports(8)
        backends, (self.nginx, self.nginx_h2, self.nginx_tls, self.tls) = ports[:4], ports[4:]
        values = {"WORK": work, "NGINX": self.nginx, "NGINX2": self.nginx_h2, "NGINXS": self.nginx_tls}
        values |= {f"B{n + 1}": port for n, port in enumerate(backends)}
        measure.start(["nginx", "-c", render(work, "proxy/backend.conf", values)])
        nginx = measure.start(["nginx", "-c", render(work, "gateway/nginx.conf", values)])
        tls = {"listen": f"127.0.0.1:{self.tls}", "certificate": str(work / "cert.pem"), "key": str(work / "key.pem")}
        self.gateway = measure.Gateway(binary, work, resources(backends), {"tls": [tls]})
        for port in ports:
            measure.ready(port)
        self.contenders = {"nginx": (nginx.pid,), "towpath": (self.gateway.pid,)}

    def port(self, name, kind):
        ours = {"http": self.gateway.port, "h2": self.gateway.port, "tls": self.tls}
        return {"http": self.nginx, "h2": self.nginx_h2, "tls": self.nginx_tls}[kind] if name == "nginx" else ours[kind]

    def h1(self, path, connections, kind="http", *headers):
        scheme = "https" if kind == "tls" else "http"
        return lambda name, _: measure.wrk(f"{scheme}://127.0.0.1:{self.port(name, kind)}/{path}", connections, SECONDS, f"Host: {HOST}", *headers)

    def h2(self, path, connections, streams, kind="h2"):
        scheme = "https" if kind == "tls" else "http"
        return lambda name, _: measure.h2load(f"{scheme}://127.0.0.1:{self.port(name, kind)}/{path}", connections, streams, SECONDS,
                                              f":authority: {HOST}")


def part_http(stage):
    return {f"{path}, {n}": (stage.h1(path, n), 1.0 if path == "1k" else 1.05) for path in ("1k", "64k") for n in (32, 256)}


def part_h2(stage):
    return {"h2 1k, 32x8": (stage.h2("1k", 32, 8), 1.0), "h2 64k, 8x4": (stage.h2("64k", 8, 4), 1.0)}


def part_tls(stage):
    return {
        "tls 1k, 32": (stage.h1("1k", 32, "tls"), 1.05),
        "tls handshakes, 32": (stage.h1("1k", 32, "tls", "Connection: close"), 1.05),
        "tls h2 1k, 32x8": (stage.h2("1k", 32, 8, "tls"), 1.05),
    }


def each_plugin(stage):
    """CPU of a request through a route with that plugin alone, less that of one without any."""
    hosts = {"plain": "plain"} | {name: name for name in ALONE}
    contenders = {name: (stage.gateway.pid, host) for name, host in hosts.items()}
    load = lambda _, c: measure.wrk(f"http://127.0.0.1:{stage.gateway.port}/1k", 32, 1, f"Host: {c[1]}.{HOST}", "apikey: bench-key")
    figures = measure.compare(max(2, ROUNDS // 2), {"1k": load}, contenders)
    base = figures["1k", "plain"][0]
    print(f"{'plugin':<20}{'own CPU us/request':>20}   (a request without any: {base:.1f})")
    for name in ALONE:
        print(f"{name:<20}{figures['1k', name][0] - base:>20.2f}")


def main():
    binary, parts = sys.argv[1], sys.argv[2:] or ["http", "h2", "tls", "plugins"]
    stage = Stage(binary)
    scenarios = {}
    for part in parts:
        if part != "plugins":
            scenarios |= {"http": part_http, "h2": part_h2, "tls": part_tls}[part](stage)
    found = measure.compare(ROUNDS, {name: load for name, (load, _) in scenarios.items()}, stage.contenders)
    print(f"{'scenario':<22}{'contender':<10}{'CPU us/request':>15}{'p99 ms':>9}{'ratio to nginx':>16}")
    for (scenario, name), (cost, p99, ratio) in found.items():
        print(f"{scenario:<22}{name:<10}{cost:>15.1f}{p99:>9.1f}{ratio:>16.2f}")
    if "plugins" in parts:
        each_plugin(stage)
    figure = lambda name: "cpu_ratio_" + name.replace(", ", "_").replace(" ", "_")
    measure.verdict([(figure(name), found[name, "towpath"][2], limit) for name, (_, limit) in scenarios.items()])


main()
