"""Writes by 1,000 clients beside pgbench's, and reads, from one manager."""

import json
import os
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SECONDS = int(os.environ.get("SECONDS", "10"))
CLIENTS = int(os.environ.get("CLIENTS", "1000"))
APPS = 1000
UPDATE = "\\set id random(1, 1000)\nUPDATE bench.rows SET value = value + 1 WHERE id = :id;\n"


def make_apps(stack, manager, count, name="app"):
    def make(n):
        status, _, body = stack.call(manager, "PUT", f"/v1/apps/{name}-{n}", {})
        if status not in (200, 201):
            sys.exit(f"the app {name}-{n} could not be made: {status} {body}")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(make, range(count)))


def wrk(stack, manager, kind, run, connections):
    environment = dict(os.environ, TOKEN=stack.token, APPS=str(APPS), LOAD=kind, RUN=run)
    command = ["wrk", "-t2", f"-c{connections}", f"-d{SECONDS}s", "--timeout", "30s", "-s", str(HERE / "write.lua"), manager.url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    figures = [line for line in done.stdout.splitlines() if line.startswith("FIGURES ")]
    if not figures:
        sys.exit(f"wrk failed:\n{done.stdout}{done.stderr}")
    return json.loads(figures[0].removeprefix("FIGURES "))


def pgbench(stack, script, connections):
    program = shutil.which("pgbench")
    command = [program, "-n", "-f", str(script), "-c", str(connections), "-j", "2", "-T", str(SECONDS), "-h", "127.0.0.1", "-p", str(stack.postgres.port), "-U", "postgres", "postgres"]
    done = subprocess.run(command, capture_output=True, text=True)
    rates = [line for line in done.stdout.splitlines() if line.startswith("tps = ")]
    if not rates:
        sys.exit(f"pgbench failed:\n{done.stdout}{done.stderr}")
    return float(rates[0].split()[2])


def run(stack, manager):
    """Figures, each with its target; prints what happens on the way."""
    postgres = stack.postgres
    make_apps(stack, manager, APPS)
    postgres.sql("CREATE SCHEMA bench; CREATE TABLE bench.rows (id int PRIMARY KEY, value bigint NOT NULL); INSERT INTO bench.rows SELECT n, 0 FROM generate_series(1, 1000) n")
    script = stack.directory / "update.sql"
    script.write_text(UPDATE)
    script.chmod(0o644)
    connections = int(postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'towpath'"))
    revision = lambda: int(postgres.sql("SELECT revision FROM towpath.meta"))
    ratios, p99s, reads = [], [], []
    for number in range(ROUNDS):
        plain = pgbench(stack, script, connections)
        before, cpu = revision(), manager.cpu_s()
        wrote = wrk(stack, manager, "write", str(number), CLIENTS)
        committed = min(wrote["requests"] - wrote["refused"], revision() - before) / wrote["seconds"]
        cores = (manager.cpu_s() - cpu) / wrote["seconds"]
        cpu = manager.cpu_s()
        read = wrk(stack, manager, "read", str(number), 64)
        read_us = (manager.cpu_s() - cpu) / max(1, read["requests"]) * 1e6
        rate = (read["requests"] - read["refused"]) / read["seconds"]
        ratios.append(committed / plain)
        p99s.append(wrote["p99_ms"])
        reads.append(rate)
        print(
            f"round {number + 1}: pgbench {plain:.0f}/s by {connections} connections; {CLIENTS} clients {committed:.0f}/s, p50 {wrote['p50_ms']:.0f} ms, p99 {wrote['p99_ms']:.0f} ms, "
            f"refused {wrote['refused']}, broken off {wrote['broken']}, manager {cores:.2f} cores; reads {rate:.0f}/s, p99 {read['p99_ms']:.1f} ms, {read_us:.0f} µs of the manager's CPU each",
            flush=True,
        )
    return [
        ("writes_vs_pgbench", statistics.median(ratios), ">=", 0.5),
        ("write_p99_ms", statistics.median(p99s), None, None),
        ("reads_per_s", statistics.median(reads), ">=", 10_000),
    ]
