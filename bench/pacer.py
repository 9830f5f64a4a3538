"""A pacer of 100 a second, used by 32 processes on one folder with 30 ms added to every store request.

Each process has four threads that do nothing but take turns. One machine has one clock, so each start is compared with
its slot. The folder does not flush: the delay stands for S3, as in ``writers``.

Then a pause of a pacer whose next slots are reserved, for each kind of store: the starts after the call returned, and
the time from the call that resumes it to the first start.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from bench.fleet import run_together
from bench.late import EXACT, addresses
from bench.row import BenchOptions, Figure, at_least, at_most, exactly
from osqueue import Pacer, limits
from osqueue.clock import MACHINE
from osqueue.pacer.blocking import Reservation

DELAY_MS = 30
PROCESSES = 32
CALLERS = 4
RATE = 100
GRACE_MS = limits.PACER_GRACE_MS_MIN
GOAL_USED = 0.95
RESERVED = 30  # slots, each with a thread that waits for it
RESERVED_INTERVAL_S = 0.03
RUNNING_S = 0.25  # from the first slot to the pause
PAUSED_S = 1.0
RESUME_S_MAX = 0.3

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
    for kind, address in addresses():
        after_pause, resumed_s, before = steered(address)
        pause, resume = (
            f"{kind}, starts after a pause had returned",
            f"{kind}, from resume to the first start",
        )
        note = f"of {RESERVED} reserved, {before} before"
        yield exactly(pause, after_pause, 0, "", note)
        if kind in EXACT:
            yield at_most(resume, resumed_s, RESUME_S_MAX, "s")
        else:
            yield Figure(resume, resumed_s, "s")


def steered(address: str) -> tuple[int, float, int]:
    """Pause and resume a pacer; return starts after the pause, seconds until the first one again, starts before."""
    starts: list[float] = []
    with Pacer.connect(address, "steered") as pacer, Pacer.connect(address, "steered") as operator:
        operator.create(RESERVED_INTERVAL_S)

        def act(reservation: Reservation) -> None:
            reservation.wait()
            starts.append(MACHINE.monotonic())

        held = [pacer.reserve() for _ in range(RESERVED)]
        threads = [threading.Thread(target=act, args=(each,)) for each in held]
        for thread in threads:
            thread.start()
        MACHINE.sleep(RUNNING_S)
        operator.pause()
        paused_at, before = MACHINE.monotonic(), len(starts)
        MACHINE.sleep(PAUSED_S)
        resumed_at = MACHINE.monotonic()
        operator.resume()
        for thread in threads:
            thread.join()
    later = sorted(at for at in starts if at > resumed_at)
    after_pause = sum(paused_at < at <= resumed_at for at in starts)
    return after_pause, later[0] - resumed_at if later else 0.0, before


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
