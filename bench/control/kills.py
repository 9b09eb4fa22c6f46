"""Managers are killed under writes: how long until what they owned is served again, and whether anything was lost or done twice."""

import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time

from stack import owner_port

KILLS = int(os.environ.get("KILLS", "50"))
RATE = 500
WRITERS = 50
EVICTION_S = 6.0
# What is asked for is one second more; nobody waits longer than this for what never comes.
GIVE_UP_S = 60.0

TRIGGER = """
CREATE SCHEMA IF NOT EXISTS bench;
CREATE TABLE bench.effects (n bigserial PRIMARY KEY, name text NOT NULL, revision bigint NOT NULL, spec text NOT NULL);
CREATE FUNCTION bench.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO bench.effects (name, revision, spec) VALUES (NEW.name, NEW.revision, NEW.spec); RETURN NEW; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON towpath.resources FOR EACH ROW WHEN (NEW.kind = 'app' AND NEW.name LIKE 'kill-%') EXECUTE FUNCTION bench.note();
"""


class Writer(threading.Thread):
    """Writes 1, 2, 3 … to one app, each until a manager says that it is done; notes what it was told."""

    def __init__(self, stack, ports, number, stop):
        super().__init__(daemon=True)
        self.app, self.ports, self.stop = f"kill-{number}", ports, stop
        self.headers = {"authorization": f"Bearer {stack.token}", "content-type": "application/json"}
        self.events, self.at, self.connection = [], number % len(ports), None
        # When the last write that was acknowledged had begun, and when it was acknowledged.
        self.last = (0.0, 0.0)
        self.odd = {}

    def run(self):
        period, value = WRITERS / RATE, 0
        due = time.monotonic() + random.random() * period
        while not self.stop.is_set():
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due + period, time.monotonic())
            value += 1
            self.write(value)

    def write(self, value):
        begun = time.monotonic()
        while True:
            try:
                status, tag, body = self.ask(value)
                if status == 200:
                    self.events.append({"is": "acked", "key": self.app, "value": value, "revision": int(tag.strip('"'))})
                    self.last = (begun, time.monotonic())
                    return
                if status != 503:
                    self.odd[status] = self.odd.get(status, 0) + 1
            except (OSError, http.client.HTTPException):
                pass
            self.close()
            self.at = (self.at + 1) % len(self.ports)
            if time.monotonic() - begun > GIVE_UP_S:
                self.events.append({"is": "sent", "key": self.app, "value": value})
                return
            time.sleep(0.02 + 0.08 * random.random())

    def ask(self, value):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.ports[self.at], timeout=20)
        headers = dict(self.headers, **{"idempotency-key": f"{self.app}-{value}"})
        self.connection.request("PATCH", f"/v1/apps/{self.app}", json.dumps({"env": {"VALUE": str(value)}}), headers)
        answer = self.connection.getresponse()
        return answer.status, answer.getheader("etag", ""), answer.read()

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def until(what, so, longest=GIVE_UP_S):
    end = time.monotonic() + longest
    while not so():
        if time.monotonic() > end:
            sys.exit(f"did not happen: {what}")
        time.sleep(0.02)


def all_live(stack, manager, count):
    def states():
        status, _, listed = stack.call(manager, "GET", "/v1/managers")
        return [row["state"] for row in listed["items"]].count("live") if status == 200 else 0

    return lambda: states() == count


def kill_one(stack, managers, victim, writers):
    """Kills a manager; seconds until a write that began afterwards was acknowledged for each app that it owned."""
    other = next(manager for manager in managers if manager is not victim)
    owned = [writer for writer in writers if owner_port(stack, other, writer.app) == victim.port]
    killed = time.monotonic()
    victim.kill()
    until("what the killed manager owned is served again", lambda: all(writer.last[0] > killed for writer in owned))
    # The first such write of each: `last` may be a later one by now, by less than this loop's pause.
    served = max((writer.last[1] - killed for writer in owned), default=0.0)
    victim.start()
    until("all managers are back", all_live(stack, other, len(managers)))
    return served, len(owned)


def run(stack, managers):
    from load import make_apps

    make_apps(stack, managers[0], WRITERS, "kill")
    stack.postgres.sql(TRIGGER)
    until("all managers know each other", all_live(stack, managers[0], len(managers)))
    stop = threading.Event()
    ports = [manager.port for manager in managers]
    writers = [Writer(stack, ports, number, stop) for number in range(WRITERS)]
    began = time.monotonic()
    for writer in writers:
        writer.start()
    times = []
    for number in range(KILLS):
        time.sleep(1.0)
        served, owned = kill_one(stack, managers, managers[number % len(managers)], writers)
        times.append(served)
        print(f"kill {number + 1}: {owned} of {WRITERS} apps were its own; all served again after {served:.2f} s", flush=True)
    stop.set()
    for writer in writers:
        writer.join(GIVE_UP_S + 30)
    seconds = time.monotonic() - began
    history = stack.directory / "history.jsonl"
    acked = write_history(stack, writers, history)
    checked = subprocess.run(["cargo", "xtask", "history", str(history)], capture_output=True, text=True)
    verdict = next((line for line in checked.stdout.splitlines() if line.startswith("acknowledged=")), "")
    print(checked.stdout.strip() or checked.stderr.strip(), flush=True)
    counts = dict(word.split("=") for word in verdict.split())
    odd = {}
    for writer in writers:
        for status, count in writer.odd.items():
            odd[status] = odd.get(status, 0) + count
    print(f"{acked / seconds:.0f} writes/s were acknowledged over {seconds:.0f} s; answers other than 200 and 503: {odd or 'none'}", flush=True)
    nothing = {"lost": -1, "twice": -1, "wrong": -1, **counts}
    return [
        ("kills", KILLS, None, None),
        ("served_again_s_worst", max(times, default=0.0), "<=", EVICTION_S + 1.0),
        ("acknowledged", acked, ">=", 1),
        ("lost", int(nothing["lost"]), "==", 0),
        ("done_twice", int(nothing["twice"]), "==", 0),
        ("wrong", int(nothing["wrong"]), "==", 0),
    ]


def write_history(stack, writers, file):
    acked = 0
    with open(file, "w") as out:
        for writer in writers:
            for event in writer.events:
                acked += event["is"] == "acked"
                out.write(json.dumps(event) + "\n")
        rows = stack.postgres.sql("SELECT name || '|' || revision || '|' || (spec::json->'env'->>'VALUE') FROM bench.effects ORDER BY n")
        for row in rows.splitlines():
            name, revision, value = row.split("|")
            out.write(json.dumps({"is": "effect", "key": name, "value": int(value), "revision": int(revision)}) + "\n")
    return acked
