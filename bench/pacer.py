"""A pacer of 100 a second, used by 32 processes on one folder with 30 ms added to every store request.

Each process has four threads that do nothing but take turns. One machine has one clock, so each start is compared with
its slot. The folder does not flush: the delay stands for S3, as in ``writers``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from bench.fleet import run_together
from bench.row import BenchOptions, Figure, at_least, at_most, exactly
from osqueue import Pacer, limits

DELAY_MS = 30
PROCESSES = 32
CALLERS = 4
RATE = 100
GRACE_MS = limits.PACER_GRACE_MS_MIN
GOAL_USED = 0.95

Start = tuple[int, float, float]  # the slot's number; seconds when its holder acted, and when it was


def run(options: BenchOptions) -> Iterator[Figure]:
    processes = max(2, round(PROCESSES * options.scale))
    with tempfile.TemporaryDirectory(prefix="osqueue-bench-") as folder:
        address = f"file://{folder}?fsync=off&latency_ms={DELAY_MS}"
        with Pacer.connect(address, "api") as pacer:
            pacer.create(1 / RATE)
        worker = [sys.executable, "-m", "bench.pacer_worker", address, str(options.seconds), str(CALLERS)]
        answers = run_together([worker] * processes)
    starts = sorted(tuple(start) for answer in answers for start in answer["starts"])
    asked = sum(sum(answer["requests"].values()) for answer in answers)
    yield from judged(starts, processes, asked)


def judged(starts: Sequence[Start], processes: int, asked: int) -> Iterator[Figure]:
    """What all starts together say."""
    late = [(acted - slot) * 1000 for _, acted, slot in starts]
    slots = sorted(slot for _, _, slot in starts)
    numbers = [number for number, _, _ in starts]
    apart = [(later - earlier) * 1000 for earlier, later in pairwise(slots)]
    there = (slots[-1] - slots[0]) * RATE + 1
    yield Figure("starts", len(starts), "", note=f"{processes} processes of {CALLERS} callers")
    yield exactly("slots that two had", len(numbers) - len(set(numbers)), 0, "")
    yield at_least("two slots apart, the closest", round(min(apart), 2), 1000 / RATE, "ms")
    yield exactly("starts before their slot", sum(each < 0 for each in late), 0, "")
    yield at_most("closer than their slots, the worst two", nearer(late), GRACE_MS, "ms", "goal: the grace")
    yield at_least("slots used", len(starts) / there, GOAL_USED, "", f"of {there:,.0f}")
    yield Figure("late, the median", sorted(late)[len(late) // 2], "ms")
    yield Figure("requests a start", asked / len(starts), "")


def nearer(late: Sequence[float]) -> float:
    """By how much two starts were closer than their slots, at most: one was late, and one behind it was not."""
    latest = accumulate(late, max)
    return max((before - each for before, each in zip(latest, late[1:], strict=False)), default=0.0)
