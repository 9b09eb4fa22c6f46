"""Thousands of light cells on one manager: a change of 10,000 instances, then 100 instances on each of 1,000 cells."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from stack import end, wait_until

CELLS = int(os.environ.get("CELLS", "1000"))
INSTANCES = int(os.environ.get("INSTANCES", "100"))
CHANGE = int(os.environ.get("CHANGE", "10000"))
APPS = int(os.environ.get("APPS", "100"))
STEADY_S = int(os.environ.get("STEADY_S", "20"))
GIVE_UP_S = 900
# For the fill alone: the change of 10,000 is made with the usual settings.
FAST = "[rollout]\nstarts_per_second = 1000\n"


class Fleet:
    """`towpath simulate cells`, whose last line is kept."""

    def __init__(self, stack):
        self.instances = self.ready = 0
        # A little more room than is asked for, so that the spread is not forced.
        command = [stack.binary, "simulate", "cells", "--count", CELLS, "--instances", INSTANCES * 2, "--nats", stack.nats.url]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            words = dict(word.split("=") for word in line.split())
            self.instances, self.ready = int(words["instances"]), int(words["ready"])

    def stop(self):
        end(self.process, signal.SIGTERM)


def push_all(stack, manager):
    """Pushes APPS apps without instances, with the help of one real cell, which is stopped then."""
    builder = stack.directory / "builder"
    ready = stack.directory / "builder.ready"
    command = [stack.binary, "cell", "--data-dir", builder, "--nats", stack.nats.url, "--api", manager.url, "--token-file", manager.data / "cell-token", "--ready-file", ready]
    log = stack.directory / "builder.log"
    cell = subprocess.Popen(list(map(str, command)), stdout=open(log, "wb"), stderr=subprocess.STDOUT)
    try:
        wait_until("the cell that builds", ready.exists, cell, log)
        site = stack.directory / "site"
        site.mkdir()
        (site / "index.html").write_text("hello")
        environment = dict(os.environ, TOWPATH_API=manager.url, TOWPATH_TOKEN_FILE=str(stack.directory / "manager-0" / "token"), NO_COLOR="1")

        def push(n):
            command = [stack.binary, "push", str(site), "--app", f"cell-{n}", "--instances", "0"]
            for _ in range(5):
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                if done.returncode == 0:
                    return
                time.sleep(1)
            sys.exit(f"a push failed:\n{done.stdout}{done.stderr}")

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(push, range(APPS)))
    finally:
        end(cell, signal.SIGTERM)


def scale_all(stack, manager, each):
    """Wants so many instances of each app; seconds until the manager reports all of them as ready."""
    began = time.monotonic()

    def scale(n):
        for _ in range(20):
            key = {"idempotency-key": f"scale-{n}-{each}"}
            status, _, body = stack.call(manager, "PATCH", f"/v1/apps/cell-{n}/groups/base", {"count": each}, key)
            if status == 202:
                return
            # Busy: as any client does, it comes again.
            time.sleep(0.5)
        sys.exit(f"scaling failed: {status} {body}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(scale, range(APPS)))
    missing = list(range(APPS))
    told = began
    while missing:
        time.sleep(0.25)
        while missing and ready(stack, manager, missing[-1]) >= each:
            missing.pop()
        if time.monotonic() - began > GIVE_UP_S:
            sys.exit(f"{len(missing)} groups are not complete after {GIVE_UP_S} s")
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"  {told - began:.0f} s: {APPS - len(missing)} of {APPS} groups are complete", flush=True)
    return time.monotonic() - began


def ready(stack, manager, n):
    status, _, body = stack.call(manager, "GET", f"/v1/apps/cell-{n}/groups")
    return body["items"][0]["ready"] if status == 200 and body["items"] else 0


def run(stack, manager):
    push_all(stack, manager)
    fleet = stack.add(Fleet(stack))
    wait_until("the light cells", lambda: len(stack.call(manager, "GET", "/v1/cells")[2]["items"]) >= min(CELLS, 100))
    time.sleep(5)
    cpu = manager.cpu_s()
    changed_s = scale_all(stack, manager, CHANGE // APPS)
    print(f"{CHANGE} instances were placed and reported ready in {changed_s:.1f} s; {manager.cpu_s() - cpu:.1f} s of the manager's CPU; the cells have {fleet.instances}", flush=True)
    manager.stop()
    manager.config.write_text(FAST)
    manager.start()
    time.sleep(10)
    before = manager.memory()
    wanted = CELLS * INSTANCES
    filled_s = scale_all(stack, manager, wanted // APPS)
    print(f"{wanted} instances were ready after {filled_s:.1f} s more", flush=True)
    time.sleep(5)
    cpu, began = manager.cpu_s(), time.monotonic()
    time.sleep(STEADY_S)
    cores = (manager.cpu_s() - cpu) / (time.monotonic() - began)
    per_instance = (manager.memory() - before) / max(1, wanted - CHANGE)
    print(f"steady: {CELLS} cells, {fleet.ready} instances ready; the manager has {manager.memory() / 2**20:.0f} MiB", flush=True)
    return [
        ("placed_and_ready_s", changed_s, "<=", 60.0),
        ("steady_cores", cores, "<=", 1.0),
        ("bytes_per_instance", per_instance, "<=", 2048.0),
    ]
