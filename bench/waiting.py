"""What waiting for results costs: GETs a second by number of waiters, and how soon they hear of the end.

Files without flushes. Jobs that nobody runs are waited for, some seconds after the wait began; for the latency a
worker completes jobs after 0.1 to 2.6 s, in the waiter's process or in another one.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from bench import ours
from bench.fleet import run_one, run_together
from bench.row import BenchOptions, Figure, at_most, ratio

CROWDS = ((1, 1), (1, 10), (1, 100), (8, 10))  # processes, waiters in each
MORE_MAX = 1.2  # looks of a process with many waiters over those of one with a single one: they look together


def run(options: BenchOptions) -> Iterator[Figure]:
    alone = 0.0
    for processes, waiters in CROWDS:
        with TemporaryDirectory(prefix="osqueue-bench-") as folder:
            timing = ("--waiters", waiters, "--seconds", max(3.0, options.seconds))
            command = ours.finished("waiters", address(folder), *timing)
            answers = run_together([command] * processes)
        gets = sum(answer["gets"] / answer["seconds"] for answer in answers)
        what = f"processes: {processes}, waiters in each: {waiters}"
        others = sum(answer["others"] for answer in answers)
        yield Figure(f"{what}, GETs a second", gets, "requests/s", note=f"{others} others")
        alone = alone or gets
        yield at_most(
            f"{what}, GETs of a process over one waiter's", ratio(gets / processes, alone), MORE_MAX, "x"
        )
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        here = run_one(ours.finished("wake", address(folder)))["seconds"]
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        caller, server = run_together(
            [ours.finished("caller", address(folder)), ours.finished("server", address(folder))]
        )
    apart = [got - called for got, called in zip(caller["answered"], server["called"], strict=True)]
    for name, seconds in (("in the waiter's process", here), ("in another process", apart)):
        note = f"at most {max(seconds) * 1000:,.1f} ms; median of {len(seconds)}"
        yield Figure(f"completed {name}, heard after", statistics.median(seconds) * 1000, "ms", note=note)
    yield Figure(
        "in the same process over another", ratio(statistics.median(here), statistics.median(apart)), "x"
    )


def address(folder: str) -> str:
    return f"file://{folder}?fsync=off"
