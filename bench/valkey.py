"""A queue on a Valkey or Redis server, against rq and arq on the same server.

Each process enqueues its jobs, one a call; when all have ended, each runs a worker until there is nothing to do. Jobs
do nothing. The server is one of the system's, for this run alone, with nothing but memory, since that is where
the others usually are. Sides take turns, each on an empty one.
"""

from __future__ import annotations

import shutil
import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import ours, peer
from bench.crew import BenchCrew
from bench.row import BenchOptions, Figure, at_least, exactly, ratio
from tests.support.valkey_server import BINARY, HOST, HOW_TO_INSTALL, ValkeyServer

OURS = "osqueue"
PEERS = ("rq", "arq")
CROWDS = (1, 8)  # processes
JOBS = 1_600  # of all processes together, one a call
BATCH = 100  # jobs a call
JOBS_BATCHED = 12_800  # of all processes together, so many a call
BATCHED = f"osqueue, {BATCH} a call"
OVER_ONE, OVER_BATCHED = 1.5, 5.0  # goals over each of them


def run(options: BenchOptions) -> Iterator[Figure]:
    if BINARY is None:
        raise RuntimeError(HOW_TO_INSTALL)
    peer.ensure()
    jobs = {
        side: _share(JOBS_BATCHED if side == BATCHED else JOBS, options.scale)
        for side in (OURS, BATCHED, *PEERS)
    }
    lost = 0
    with ExitStack() as stack:
        crews = {
            OURS: stack.enter_context(BenchCrew(ours.on_valkey(), max(CROWDS))),
            "": stack.enter_context(BenchCrew(peer.on_valkey(), max(CROWDS))),
        }
        for processes in CROWDS:
            rates: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
            for _ in range(options.rounds):
                for side, count in jobs.items():
                    crew = crews[OURS if side.startswith(OURS) else ""]
                    seconds, done = cycle(crew, side, processes, count)
                    lost += count - done
                    rates[side].append((count / seconds[0], count / seconds[1]))
            yield from figures(processes, rates)
    yield exactly("jobs that did not run", lost, 0, "jobs")


def _share(jobs: int, scale: float) -> int:
    """So much of them that every process has whole batches."""
    least = BATCH * max(CROWDS)
    return max(least, int(jobs * scale) // least * least)


def cycle(crew: BenchCrew, side: str, processes: int, jobs: int) -> tuple[list[float], int]:
    """The seconds of both phases, on a server of its own, and how many jobs ran."""
    batch = BATCH if side == BATCHED else 1
    folder = TemporaryDirectory(prefix="osqueue-bench-")
    server = ValkeyServer(Path(folder.name))
    server.start()
    try:
        order = {
            "address": f"valkey://{HOST}:{server.port}/0",
            "side": side,
            "batch": batch,
        }
        seconds, done = [], 0
        for phase in ("enqueue", "work"):
            answers = crew.round(processes, 0.0, do=phase, jobs=jobs // processes, **order)
            seconds.append(max(each["ended"] for each in answers) - min(each["begun"] for each in answers))
            done = sum(each["done"] for each in answers)
        return seconds, done
    finally:
        server.end()
        shutil.rmtree(folder.name, ignore_errors=True)


def figures(processes: int, rates: dict[str, list[tuple[float, float]]]) -> Iterator[Figure]:
    crowd = "1 process" if processes == 1 else f"{processes} processes"
    whole: dict[str, float] = {}
    for side, rounds in rates.items():
        enqueued, worked = (statistics.median(each) for each in zip(*rounds, strict=True))
        whole[side] = 1 / (1 / enqueued + 1 / worked)
        note = f"enqueue {enqueued:,.0f}/s, work {worked:,.0f}/s"
        yield Figure(f"{crowd}, {side}", whole[side], "jobs/s", note=note)
    for side, goal in ((OURS, OVER_ONE), (BATCHED, OVER_BATCHED)):
        for name in PEERS:
            yield at_least(f"{crowd}, {side}, over {name}", ratio(whole[side], whole[name]), goal)
