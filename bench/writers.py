"""Independent writers: N processes on one file store, 30 ms added to every store request, one job per call.

Neither side flushes: the delay stands for S3, where what is answered is durable. (In a folder with flushes ours
asks for one more where it answers from a head that another writer wrote, which the delay would make a request.)

The peer offers two queues. Its broker groups the callers of one process, of which there is one here, and
retries a lost race 20 times; its direct queue retries 10 times with a shorter back-off. Which of them accepts
more jobs depends on N, so both run in every round and the better one is the bar. A job counts when its call
returned before the time was up.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from bench import ours, peer
from bench.fleet import Answer, run_together
from bench.row import BenchOptions, Figure, at_least, exactly, ratio

DELAY_MS = 30
SIDES = ("jqueue broker", "jqueue direct", "osqueue")
GOAL_OVER_PEER = {8: 2.0, 32: 8.0}
GOAL_OVER_ONE = 5.0  # 32 of ours over one of ours


class WritersTally(Struct, frozen=True):
    """What N writers of one side did, over all rounds."""

    rate: float  # accepted jobs per second
    failed: int  # calls that raised
    calls: int  # calls in all
    p50_s: float  # how long an accepted call took
    p99_s: float

    @property
    def story(self) -> str:
        times = f"p50 {self.p50_s * 1000:,.0f} ms, p99 {self.p99_s * 1000:,.0f} ms"
        return f"{times}, {self.failed} of {self.calls} calls failed"


def run(options: BenchOptions) -> Iterator[Figure]:
    peer.ensure()
    rates: dict[int, float] = {}
    for writers in (1, 8, 32):
        tallies = compare(writers, options)
        for side in SIDES:
            tally = tallies[side]
            yield Figure(f"{writers} writers, {side}", tally.rate, "jobs/s", note=tally.story)
        mine = tallies["osqueue"]
        rates[writers] = mine.rate
        if goal := GOAL_OVER_PEER.get(writers):
            best = max(SIDES[:2], key=lambda side: tallies[side].rate)
            yield at_least(
                f"{writers} writers, over {best}",
                ratio(mine.rate, tallies[best].rate),
                goal,
                note="the better one",
            )
        yield exactly(f"{writers} writers, failed calls", mine.failed, 0, "calls")
    yield at_least("32 writers over 1, osqueue", ratio(rates[32], rates[1]), GOAL_OVER_ONE)


def compare(writers: int, options: BenchOptions) -> dict[str, WritersTally]:
    """Every side with that many writers, in turn, each round on a new store."""
    answers: dict[str, list[Answer]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            with tempfile.TemporaryDirectory(prefix="osqueue-bench-") as folder:
                command = commands(folder, options.seconds)[side]
                answers[side] += run_together([command] * writers)
    return {side: tally(answers[side], options.seconds * options.rounds) for side in SIDES}


def commands(folder: str, seconds: float) -> dict[str, list[str]]:
    state = str(Path(folder) / "state.json")
    slow = ("--delay", DELAY_MS / 1000, "--seconds", seconds)
    return {
        "jqueue broker": peer.command("writer", state, *slow, "--api", "broker"),
        "jqueue direct": peer.command("writer", state, *slow, "--api", "direct"),
        "osqueue": ours.command(
            "writer", f"file://{folder}?fsync=off&latency_ms={DELAY_MS}", "--seconds", seconds
        ),
    }


def tally(answers: Sequence[Answer], seconds: float) -> WritersTally:
    waits = sorted(wait for answer in answers for wait in answer["waits"]) or [float("inf")]
    done, failed = (sum(answer[key] for answer in answers) for key in ("done", "failed"))
    return WritersTally(
        rate=done / seconds,
        failed=failed,
        calls=done + failed,
        p50_s=waits[len(waits) // 2],
        p99_s=waits[int(len(waits) * 0.99)],
    )
