"""How long the first call of a process takes beside another one that is busy, on the stores of one machine.

One process enqueues, claims and completes without a pause. Beside it a producer, a worker and a caller, which waits
for its result, come one after the other, each 1.2 to 1.8 s after the one before: by then the busy process commits
alone again. The time of a visitor's first call is given in commits: calls of the busy process, the median against the
median and the 99th percentile against the 99th percentile, since whatever else the machine does meets both.

In memory both are threads of one process. Valkey is a server of the system's for this run alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.embedded_wake import percentile
from bench.fleet import Answer, run_together
from bench.row import BenchOptions, Figure, at_most, ratio
from bench.slow_disk import environment as slower
from tests.support.valkey_server import BINARY, ValkeyServer

VISITS = 48
VISITS_MIN = 6
FIRST_CALL_MAX = 3.0  # commits
SLOW_FLUSH_MS = 4
PERCENTILES = (50, 99)


def run(options: BenchOptions) -> Iterator[Figure]:
    """Measure each kind of store in turn."""
    visits = max(VISITS_MIN, round(VISITS * options.scale))
    with tempfile.TemporaryDirectory(prefix="osqueue-bench-") as folder:
        for place, address, environment in places(Path(folder)):
            busy, visitor = measured(address, environment, visits)
            for percent in PERCENTILES:
                commit_s, first_s = (
                    percentile(busy["calls_s"], percent),
                    percentile(visitor["calls_s"], percent),
                )
                note = f"{first_s * 1000:,.1f} ms, a commit {commit_s * 1000:,.1f} ms; {visits} visits"
                name = f"{place}, first call beside a busy process, p{percent}"
                yield at_most(name, ratio(first_s, commit_s), FIRST_CALL_MAX, "commits", note)
            result_ms = percentile(visitor["results_s"], PERCENTILES[0]) * 1000
            yield Figure(f"{place}, a caller's result beside a busy process, p50", result_ms, "ms")


def places(folder: Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield each place with its address and its environment. It works until the next one is asked for."""
    yield "memory", "memory://visit", {}
    yield "folder", f"file://{folder}/flushed", {}
    yield "folder without flushes", f"file://{folder}/unflushed?fsync=off", {}
    slow = slower(SLOW_FLUSH_MS, folder)
    yield f"folder, a flush {SLOW_FLUSH_MS} ms longer", f"file://{folder}/slow", slow
    if BINARY is not None:
        with valkey(folder / "valkey") as address:
            yield "valkey", address, {}


@contextmanager
def valkey(folder: Path) -> Iterator[str]:
    """Yield an address on a server that runs meanwhile."""
    server = ValkeyServer(folder)
    server.start()
    try:
        yield server.address("visit")
    finally:
        server.end()


def measured(address: str, environment: dict[str, str], visits: int) -> tuple[Answer, Answer]:
    """Return what the busy process and its visitors measured."""
    command = [
        "env",
        *(f"{name}={value}" for name, value in environment.items()),
        *(sys.executable, "-m", "bench.visit_worker", address, "--visits", str(visits)),
    ]
    if address.startswith("memory://"):
        [both] = run_together([[*command, "both"]])
        return both["busy"], both["visitor"]
    busy, visitor = run_together([[*command, "busy"], [*command, "visitor"]])
    return busy, visitor
