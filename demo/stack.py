"""The local stack as a process of the replay: the API that everybody calls, and what its functions logged.

It is ``osqueue dev`` as anybody would start it: an HTTP front, real Lambda runtime processes with the real handlers,
and the schedule that calls the reaper.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo.crew import ChildProcesses
from demo.plan import ReplayPlan
from osqueue.contract.functions import LOG_LEVEL

NAME = "stack"
PROCESSES = 4  # of each function
REAP_S = 1.0  # between two calls of the reaper
READY_S = 60.0  # in which it has to say where it is
LOOK_S = 0.05


class StackNotStarted(Exception):
    """The stack did not come up. The message holds what it said."""


def log_of(plan: ReplayPlan) -> Path:
    """What the functions logged."""
    return plan.notes / "functions.log"


def start(crew: ChildProcesses, plan: ReplayPlan) -> str:
    """Start the stack over the replay's store and wait until it answers; its address."""
    where = ("--port", "0", "--store", plan.store_address, "--log-file", str(log_of(plan)), "--json")
    how = ("--processes", str(PROCESSES), "--schedule-seconds", str(REAP_S))
    verbose = {LOG_LEVEL: "DEBUG"}  # every request, idle ones as well: they are counted
    crew.serve(NAME, "osqueue", "dev", *where, *how, variables=verbose)
    until = time.monotonic() + READY_S
    said = ""
    while time.monotonic() < until:
        crew.check()
        said = plan.output(NAME).read_text(errors="replace")
        if said.endswith("\n") and said.lstrip().startswith("{"):
            return str(json.loads(said)["url"])
        time.sleep(LOOK_S)
    raise StackNotStarted(
        f"the local stack was not ready after {READY_S:.0f} s. It said: {said or 'nothing'}"
    )


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """What the functions logged: one object of JSON for each request, and one for each metric."""
    if not path.exists():
        return
    with path.open(errors="replace") as log:
        for line in log:
            start = line.find("{")
            if start >= 0:
                try:
                    yield json.loads(line[start:])
                except json.JSONDecodeError:  # its process was killed in the middle of it
                    continue


def requests_to_store(path: Path) -> Counter[str]:
    """What the functions asked of the store, by kind."""
    total: Counter[str] = Counter()
    for line in lines(path):
        total.update(line.get("requests", {}))
    return total


def passes(path: Path) -> int:
    """How often the schedule's reaper went over all queues, as its metric tells."""
    return sum(int(sum(line["ReaperPasses"])) for line in lines(path) if "ReaperPasses" in line)
