"""How soon whoever waits hears of a job, and what waiting costs: a part of ``embedded.py``.

Pairs of processes: one enqueues at random moments, 0.3 to 3 s apart, the other waits in a worker or in a claim. The
time runs from the enqueue's return, when the job is there, to the start of the handler, so it holds the commit of its
claim. A caller of ``enqueue_and_wait`` is paired with a process that runs its jobs: the time runs from just before
the completion's call to the caller's having the result. Each pair has a queue of its own, in a folder with flushes
and in a folder without them where every request takes 30 ms. All pairs run at once: they sleep most of the time.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence

from bench import ours
from bench.fleet import Answer, run_together
from bench.row import BenchOptions, Figure, at_most

PLACES = {"folder": "", "30 ms a request": "?fsync=off&latency_ms=30"}
PAIRS = 4  # of each kind, so that there are a hundred jobs in less than a minute
JOBS = 26  # of each pair
JOBS_MIN = 4
WAYS = ("run", "claim")  # how a process waits for jobs
NAMES = {
    "run": "q.run",
    "claim": "claim(wait=)",
    "ask": "enqueue_and_wait",
}
GOALS_MS = {("folder", 50): 10.0, ("folder", 99): 50.0, ("30 ms a request", 50): 150.0}
PERCENTILES = (50, 90, 99)
IDLE_OBJECTS = (1, 20)  # Queue objects of one process, on one queue
IDLE_WARM_S = 14.0  # an idle process is one that has had no job for longer than looks stay quick
IDLE_GETS_MAX = 3.0  # a second


def wake(options: BenchOptions) -> Iterator[Figure]:
    """Everything that waits."""
    jobs = max(JOBS_MIN, round(JOBS * options.scale))
    commands: list[list[str]] = []
    roles: list[tuple[str, str, str]] = []  # of each command: the place, the way of waiting, the role
    with tempfile.TemporaryDirectory(prefix="osqueue-bench-") as folder:
        for place, suffix in PLACES.items():
            for way in (*WAYS, "ask"):
                for pair in range(PAIRS):
                    address = f"file://{folder}/{way}-{len(roles)}{suffix}"
                    for role in ("ask", "serve") if way == "ask" else ("send", way):
                        commands.append(ours.waiter(role, address, "--jobs", jobs, "--seed", pair))
                        roles.append((place, way, role))
        for way in WAYS:
            for objects in IDLE_OBJECTS:
                address = f"file://{folder}/idle-{way}-{objects}{PLACES['30 ms a request']}"
                timing = ("--warm", IDLE_WARM_S, "--seconds", max(3.0, options.seconds))
                commands.append(ours.waiter("idle", address, "--by", way, "--objects", objects, *timing))
                roles.append(("idle", way, str(objects)))
        answers = run_together(commands)
    found: dict[tuple[str, str, str], list[Answer]] = {}
    for key, answer in zip(roles, answers, strict=True):
        found.setdefault(key, []).append(answer)
    for place in PLACES:
        for way in WAYS:
            sent = [took for answer in found[place, way, "send"] for took in answer["took"]]
            waits = [wait for answer in found[place, way, way] for wait in answer["waits"]]
            heard = [wait - took for wait, took in zip(waits, sent, strict=True)]  # since the job was there
            note = (
                f"{len(waits)} jobs; their enqueues took {statistics.median(sent) * 1000:,.1f} ms before that"
            )
            yield from times(place, f"{NAMES[way]}, enqueued to handler", heard, GOALS_MS, note)
            gets = [answer["gets"] / answer["seconds"] for answer in found[place, way, way]]
            yield Figure(f"{place}, {NAMES[way]}, reads while jobs come", statistics.median(gets), "GETs/s")
        ends = zip(found[place, "ask", "ask"], found[place, "ask", "serve"], strict=True)
        waits = [wait for asked, served in ends for wait in apart(asked["moments"], served["moments"])]
        yield from times(place, "enqueue_and_wait, end to return", waits, {}, f"{len(waits)} jobs")
    for way in WAYS:
        for objects in IDLE_OBJECTS:
            [answer] = found["idle", way, str(objects)]
            what = f"30 ms a request, idle in {NAMES[way]}, Queue objects: {objects}"
            note = f"{answer['others']} other requests in {answer['seconds']:.0f} s"
            gets = answer["gets"] / answer["seconds"]
            yield at_most(what, gets, IDLE_GETS_MAX, "GETs/s", note)


def times(
    place: str, what: str, waits: Sequence[float], goals: dict[tuple[str, int], float], note: str
) -> Iterator[Figure]:
    for percent in PERCENTILES:
        figure, name = percentile(waits, percent) * 1000, f"{place}, {what}, p{percent}"
        if goal := goals.get((place, percent)):
            yield at_most(name, figure, goal, "ms", note)
        else:
            yield Figure(name, figure, "ms", note=note)
        note = ""


def percentile(values: Sequence[float], percent: int) -> float:
    """The least of the values that so many percent do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def apart(later: Sequence[float], earlier: Sequence[float]) -> list[float]:
    return [late - early for late, early in zip(later, earlier, strict=True)]
