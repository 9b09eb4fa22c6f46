"""Constant load on a cluster: requests through each gateway, and changes through any manager."""

import http.client
import json
import threading
import time

# Requests a second through each gateway, by so many clients; half of them on kept connections.
RATE, CLIENTS = 40, 8
# A client gives a request up after so long.
PATIENCE_S = 5.0
# Apps that are changed in turn, and changes a second.
APPS, CHANGES = 12, 12


class Client(threading.Thread):
    """One request after the other through one gateway, by the clock; notes what became of each."""

    def __init__(self, port, host, number, stop):
        super().__init__(daemon=True)
        self.port, self.host, self.stop = port, host, stop
        self.number, self.kept, self.connection = number, number % 2 == 0, None
        # (when it was sent, when it ended, what went wrong or None)
        self.book = []

    def run(self):
        period = CLIENTS / RATE
        due = time.monotonic() + period * self.number / CLIENTS
        while not self.stop.is_set():
            time.sleep(max(0.0, due - time.monotonic()))
            # One that had to wait sends no burst afterwards.
            due = max(due + period, time.monotonic())
            sent = time.monotonic()
            self.book.append((sent, *self.ask()))

    def ask(self):
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            self.connection.request("GET", "/", headers={"host": self.host})
            answer = self.connection.getresponse()
            answer.read()
            if not self.kept:
                self.close()
            return time.monotonic(), None if answer.status == 200 else str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return time.monotonic(), type(error).__name__

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Changer(threading.Thread):
    """Changes the apps in turn, each change at one manager, and at the next if that one does not do it."""

    def __init__(self, ports, token, stop):
        super().__init__(daemon=True)
        self.ports, self.stop, self.at = ports, stop, 0
        self.headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        # App → when its last change that was acknowledged was sent first, and when it was acknowledged.
        self.done = {}
        self.threads = []

    def run(self):
        for number in range(APPS):
            thread = threading.Thread(target=self.keep_changing, args=(f"ledger-{number}", number), daemon=True)
            thread.start()
            self.threads.append(thread)

    def keep_changing(self, app, number):
        at, value = number, 0
        while not self.stop.is_set():
            value += 1
            begun = time.monotonic()
            while not self.change(app, value, self.ports[at % len(self.ports)]) and not self.stop.is_set():
                at += 1
                time.sleep(0.1)
            self.done[app] = (begun, time.monotonic())
            time.sleep(APPS / CHANGES)

    def change(self, app, value, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
        try:
            # The same key wherever it is sent again: whatever became of an attempt, it is made once.
            headers = dict(self.headers, **{"idempotency-key": f"{app}-{value}"})
            connection.request("PATCH", f"/v1/apps/{app}", json.dumps({"env": {"VALUE": str(value)}}), headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def all_changed_since(self, moment):
        """The second at which the last of the apps had a change acknowledged that began after the moment; None = not all have."""
        ends = [end for begun, end in list(self.done.values()) if begun > moment]
        return max(ends) if len(ends) == APPS else None
