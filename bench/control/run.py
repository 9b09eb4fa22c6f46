#!/usr/bin/env python3
"""The control plane under load, and under kills: real managers over PostgreSQL and NATS, in a temporary directory.

`run.py BINARY [PART]…`; the parts are
  load    1,000 clients write to one manager beside pgbench's single-row updates on the same server, as many connections as
          the manager has; then they read. ROUNDS of SECONDS each.
  kills   KILLS times one of three managers is killed under 500 writes a second, by clients that repeat with the same
          Idempotency-Key at another; what they were told is compared with what the database noted.
  scale   CPU time for each write of 1, 2 and 4 managers: what they could do with a core each.
  cells   1,000 light cells (`towpath simulate cells`) with 100 instances each on one manager.

With CHECK=1 exits 1 when a target is missed. Figures come last.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import cells  # noqa: E402
import kills  # noqa: E402
import load  # noqa: E402
import scale  # noqa: E402
from stack import Stack  # noqa: E402


def with_stack(binary, managers, part, config=""):
    stack = Stack(binary)
    try:
        return part(stack, [stack.manager(f"manager-{n}", config) for n in range(managers)])
    finally:
        stack.stop()


def parts(binary):
    return {
        "load": lambda: with_stack(binary, 1, lambda stack, managers: load.run(stack, managers[0])),
        "kills": lambda: with_stack(binary, 3, kills.run),
        "scale": lambda: scale.run(lambda managers, part: with_stack(binary, managers, part)),
        "cells": lambda: with_stack(binary, 1, lambda stack, managers: cells.run(stack, managers[0])),
    }


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    known = parts(str(Path(sys.argv[1]).resolve()))
    wanted = sys.argv[2:] or list(known)
    figures = []
    for name in wanted:
        print(f"== {name}", flush=True)
        figures += known[name]()
    missed = 0
    print("== figures")
    for name, value, how, target in figures:
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        good = how is None or {">=": value >= target, "<=": value <= target, "==": value == target}[how] if how else True
        missed += not good
        print(f"{name}={text}" + (f" (target {how} {target}{'' if good else ', MISSED'})" if how else ""))
    if missed and os.environ.get("CHECK"):
        sys.exit(1)


if __name__ == "__main__":
    main()
