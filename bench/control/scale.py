"""What more managers bring, if each has a core of its own: CPU time of every manager for the same kind of load, measured.

A cluster of N managers can do no more writes a second than its busiest one has CPU time for. So the load runs on 1, 2 and 4
managers, at whatever rate this machine gives, and the busiest one's CPU seconds for each write of the whole cluster are
taken; their inverse is what the cluster could do with a core for each manager, as long as the store keeps up. Forwarding to
owners, following the others' changes and an uneven ring are all in it.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import load

CLIENTS = int(os.environ.get("SCALE_CLIENTS", "400"))


def measure(stack, managers):
    """Writes a second that these managers could do with a core each, and CPU microseconds per write of each."""
    load.make_apps(stack, managers[0], load.APPS)
    before = [manager.cpu_s() for manager in managers]
    revision = lambda: int(stack.postgres.sql("SELECT revision FROM towpath.meta"))
    begun = revision()
    with ThreadPoolExecutor(len(managers)) as pool:
        list(pool.map(lambda n: load.wrk(stack, managers[n], "write", f"run-{n}", CLIENTS // len(managers)), range(len(managers))))
    writes = revision() - begun
    costs = [(manager.cpu_s() - cpu) / writes * 1e6 for manager, cpu in zip(managers, before)]
    return 1e6 / max(costs), costs, writes / load.SECONDS


def run(with_stack):
    possible = {}
    for count in (1, 2, 4):
        rate, costs, wrote = with_stack(count, measure)
        possible[count] = rate
        print(f"{count} managers: {wrote:.0f} writes/s here; CPU µs per write of the cluster: {', '.join(f'{cost:.0f}' for cost in costs)}; with a core each {rate:.0f} writes/s", flush=True)
    return [
        ("scale_2", possible[2] / possible[1], ">=", 1.8),
        ("scale_4", possible[4] / possible[1], ">=", 3.6),
    ]
