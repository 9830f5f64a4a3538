"""Enqueue, claim and complete by 8 callers on one queue object, with 1 and with 100 jobs per call.

Ours are 8 threads on a Queue, and 8 tasks on an AsyncQueue; the peer's are 8 tasks on its broker, which
groups them. Files are flushed to disk by ours (its default) and never by the peer. The peer enqueues and
completes one job per call, so its 100 are gathered.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import ours, peer
from bench.fleet import Answer, run_one
from bench.row import BenchOptions, Figure, at_least, ratio

CALLERS = 8
SIDES = ("jqueue", "osqueue threads", "osqueue tasks")
GOALS = {("memory", 1): 1.5, ("file", 1): 2.0, ("memory", 100): 10.0, ("file", 100): 10.0}


def run(options: BenchOptions) -> Iterator[Figure]:
    peer.ensure()
    for (store, batch), goal in GOALS.items():
        answers = compare(store, batch, options)
        theirs = rate(answers["jqueue"])
        for side, rounds in answers.items():
            what = f"{store}, {batch} a call, {side}"
            yield Figure(what, rate(rounds), "jobs/s", note=story(rounds))
            if side != "jqueue":
                yield at_least(f"{what}, over jqueue", ratio(rate(rounds), theirs), goal)


def compare(store: str, batch: int, options: BenchOptions) -> dict[str, list[Answer]]:
    """All sides in turn, each round on a new store."""
    answers: dict[str, list[Answer]] = {side: [] for side in SIDES}
    timing = ("--callers", CALLERS, "--batch", batch, "--seconds", options.seconds)
    for _ in range(options.rounds):
        for side in SIDES:
            with tempfile.TemporaryDirectory(prefix="osqueue-bench-") as folder:
                if side == "jqueue":
                    place = "memory" if store == "memory" else str(Path(folder) / "state.json")
                    command = peer.command("cycle", place, *timing)
                else:
                    address = "memory://" if store == "memory" else f"file://{folder}?fsync=off"
                    command = ours.command("cycle", address, *timing, "--by", side.split()[-1])
                answers[side].append(run_one(command))
    return answers


def rate(answers: Sequence[Answer]) -> float:
    return float(sum(answer["done"] for answer in answers) / sum(answer["seconds"] for answer in answers))


def story(answers: Sequence[Answer]) -> str:
    done = sum(answer["done"] for answer in answers)
    puts = sum(answer["requests"].get("put", 0) for answer in answers)
    return f"{puts / done:.3f} writes per job" if done else "nothing done"
