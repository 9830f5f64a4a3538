"""Store requests of one warm operation, of a claim on an empty queue, and of a job from its enqueue to its result."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from bench import ours, peer
from bench.fleet import run_one
from bench.row import BenchOptions, Figure, at_most, exactly

# Warm: 3 PUT of a plain job, 1 more for its id, 2 GET for its result; tables are written now and then.
LIFE_MAX = {"plain, 1 a call": 3.05, "with id, 1 a call": 4.05, "with id, result read, 1 a call": 6.05}
OPERATIONS = ("enqueue", "claim", "heartbeat", "complete")


def run(options: BenchOptions) -> Iterator[Figure]:
    del options  # requests are counted, not timed
    peer.ensure()
    theirs = run_one(peer.command("requests", "memory"))
    for operation in (*OPERATIONS, "empty claim"):
        count = theirs[operation]
        yield Figure(f"jqueue, {operation}", sum(count.values()), "requests", note=spelled(count))
    for store in ("memory", "file"):
        with TemporaryDirectory(prefix="osqueue-bench-") as folder:
            mine = run_one(ours.command("requests", "memory://" if store == "memory" else f"file://{folder}"))
        for operation in OPERATIONS:
            count = mine[operation]
            what = f"osqueue on {store}, {operation}"
            yield exactly(f"{what}, PUT", count["put"], 1, "requests", spelled(count))
            yield exactly(f"{what}, other", sum(count.values()) - count["put"], 0, "requests")
        count = mine["empty claim"]
        writes = count["put"] + count["delete"]
        yield exactly(f"osqueue on {store}, empty claim, writes", writes, 0, "requests", spelled(count))
    answers = run_one(ours.finished("lives", "memory://"))
    for what, life in answers.items():
        jobs, steps = life["jobs"], life["steps"]
        count = sum(sum(step.values()) for step in steps.values()) / jobs
        note = "; ".join(f"{name}: {shares(step, jobs)}" for name, step in steps.items())
        if most := LIFE_MAX.get(what):
            yield at_most(f"a job {what}", count, most, "requests", note)
        else:
            yield Figure(f"a job {what}", count, "requests", note=note)


def shares(count: dict[str, int], jobs: int) -> str:
    return (
        ", ".join(f"{number / jobs:.2f} {kind.upper()}" for kind, number in count.items() if number) or "none"
    )


def spelled(count: dict[str, int]) -> str:
    return ", ".join(f"{number} {kind.upper()}" for kind, number in count.items() if number) or "none"
