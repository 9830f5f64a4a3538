"""The real log as the past of two queues, and every metric of it computed in plain Python, without Spark.

The log says when jobs came and how long they ran. What it does not say is decided by a job's number: how long it
waited, which of them fail, stall, are given back, cancelled or redriven, and who ran it.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from demo.swf import SwfJob, read_jobs
from osqueue.core.fingerprint import fingerprint
from osqueue.core.history import RECORD_FORMAT, AttemptRecord, Record

LOG = Path(__file__).resolve().parents[2] / "demo/data/nasa-ipsc-1993.swf.gz"
BEGAN_MS = 749_430_000_000  # the log's first second: early in October 1993, in the middle of an hour
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SILENT = "its lease ended without a word from its worker"

Figures = dict[str, float | None]


class Lease(Struct, frozen=True):
    run: int
    start: int
    end: int
    outcome: str
    worker: str
    error: str = ""
    final: bool = False


class Life(Struct, frozen=True):
    """What one record tells of: from the enqueue, or a redrive, to an end."""

    queue: str
    job_id: str
    enqueued: int
    claimable: int
    finished: int
    state: str
    run: int
    leases: tuple[Lease, ...]
    before: tuple[Lease, ...] = ()  # the leases before a redrive


def lives() -> list[Life]:
    """All of the log."""
    return [life for job in read_jobs(LOG) for life in _lives(job)]


def _lives(job: SwfJob) -> Iterator[Life]:
    fate = zlib.crc32(f"fate/{job.number}".encode())
    percent, jitter = fate % 100, fate // 100
    queue = "large" if job.processors > 8 else "small"
    enqueued = BEGAN_MS + job.submit_s * 1000
    claimable = enqueued + 5400_000 if percent in (20, 21) else enqueued  # scheduled an hour and a half ahead
    start = claimable + jitter % 90_000
    took = max(job.run_s, 0) * 1000
    worker = f"node-{jitter % 7}"
    error = f"host 10.0.{jitter % 256}.7 refused after {jitter % 60} s" if jitter % 3 else "out of memory"

    def life(leases: Iterable[Lease], state: str, **more: object) -> Life:
        held = tuple(leases)
        run = int(str(more.pop("run", held[-1].run if held else 0)))
        end = int(str(more.pop("finished", held[-1].end if held else 0)))
        job_id = f"01890a5d-ac96-774b-bcce-{job.number:012x}"
        return Life(queue, job_id, enqueued, claimable, end, state, run, held, **more)  # type: ignore[arg-type]

    if percent == 0:  # cancelled while it waits
        yield life((), "cancelled", finished=start)
    elif percent == 1:  # cancelled while it runs
        yield life([Lease(1, start, start + took, "cancelled", worker, final=True)], "cancelled")
    elif percent in (2, 3):  # stalls, and then completes
        again = start + 30_000
        yield life(
            [
                Lease(1, start, again, "stalled", worker),
                Lease(2, again, again + took, "completed", "node-8", final=True),
            ],
            "completed",
        )
    elif percent == 4:  # given back, and then completes
        yield life(
            [
                Lease(1, start, start + 9, "released", worker),
                Lease(2, start + 9, start + 9 + took, "completed", worker, final=True),
            ],
            "completed",
        )
    elif percent in (5, 6, 7, 8):  # fails once
        again = start + took + 1000
        yield life(
            [
                Lease(1, start, start + took // 2, "failed", worker, error),
                Lease(2, again, again + took, "completed", worker, final=True),
            ],
            "completed",
        )
    elif percent in (9, 10):  # fails three times; every other one is redriven and completes
        tries = [start + 60_000 * n for n in range(3)]
        dead = tuple(
            Lease(n + 1, at, at + 500, "failed", worker, error, n == 2) for n, at in enumerate(tries)
        )
        yield life(dead, "failed")
        if percent == 9:
            again = dead[-1].end + 2 * HOUR_MS
            yield life(
                [Lease(5, again, again + took, "completed", "node-9", final=True)], "completed", before=dead
            )
    else:
        yield life([Lease(1, start, start + took, "completed", worker, final=True)], "completed")


def record(life: Life) -> Record:
    """As the library archives it."""
    told = (*life.before, *life.leases)
    return Record(
        RECORD_FORMAT,
        life.job_id,
        life.run,
        life.state,
        life.enqueued,
        life.finished,
        sum(each.outcome != "released" for each in life.leases),
        200,
        scheduled_ms=life.claimable if life.claimable > life.enqueued else 0,
        attempts=tuple(
            AttemptRecord(
                *(each.run, each.worker, each.start, each.end, each.outcome, each.error),
                "OSError" if each.error.startswith("host") else "MemoryError" if each.error else "",
                each.start if each.outcome == "stalled" else 0,
            )
            for each in told
        ),
    )


# ── The same figures again ───────────────────────────────────────────────────
def percentile(values: list[int], share: float) -> float:
    """Between the two nearest ranks, in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(name: str, values: list[int]) -> Figures:
    found: Figures = {
        f"{name}_p{p}_ms": percentile(values, p / 100) if values else None for p in (50, 95, 99)
    }
    return {**found, f"{name}_max_ms": max(values, default=None)}


def metrics(past: list[Life], length: int, target_ms: int) -> dict[tuple[str, int], Figures]:
    """By queue and start of the hour or day."""
    found: dict[tuple[str, int], Figures] = {}
    for queue in sorted({life.queue for life in past}):
        mine = [life for life in past if life.queue == queue]
        begin = min(life.enqueued for life in mine) // length * length
        end = max(life.finished for life in mine)
        depth = _levels(_waiting(mine), begin, end, length)
        running = _levels(_held(each for life in mine for each in life.leases), begin, end, length)
        events = _events(mine, length)
        for start in range(begin, end + 1, length):
            happened = events[start]
            found[queue, start] = {
                **_counts(happened, target_ms),
                **{f"depth_{name}": value for name, value in depth[start].items()},
                **{f"running_{name}": value for name, value in running[start].items()},
            }
    return found


class Hour:
    """What happened in one hour or day."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.waits: list[int] = []
        self.runs: list[int] = []
        self.totals: list[int] = []
        self.used: list[int] = []
        self.workers: set[str] = set()


def _events(past: list[Life], length: int) -> defaultdict[int, Hour]:
    hours: defaultdict[int, Hour] = defaultdict(Hour)
    for life in past:
        ended = hours[life.finished // length * length]
        ended.counts[life.state] += 1
        if not life.before:
            hours[life.enqueued // length * length].counts["enqueued"] += 1
            if life.state == "completed":
                ended.totals.append(life.finished - life.claimable)
            if life.leases:
                hours[life.leases[0].start // length * length].waits.append(
                    life.leases[0].start - life.claimable
                )
        if life.state != "cancelled":
            ended.used.append(sum(each.outcome != "released" for each in life.leases))
        for lease in life.leases:
            hours[lease.start // length * length].counts["claimed"] += 1
            over = hours[lease.end // length * length]
            over.counts["retried"] += lease.outcome == "failed" and not lease.final
            over.counts["stalled"] += lease.outcome == "stalled"
            over.counts["released"] += lease.outcome == "released"
            if lease.outcome == "completed":
                over.runs.append(lease.end - lease.start)
            for start in range(lease.start // length * length, max(lease.end, lease.start + 1), length):
                hours[start].workers.add(lease.worker)
    return hours


def _counts(hour: Hour, target_ms: int) -> Figures:
    names = ("enqueued", "claimed", "completed", "failed", "cancelled", "retried", "stalled", "released")
    on_target = sum(wait <= target_ms for wait in hour.waits)
    counts = hour.counts
    return {
        **{name: counts[name] for name in names},
        "growth": counts["enqueued"] - counts["completed"] - counts["failed"] - counts["cancelled"],
        **summary("wait", hour.waits),
        **summary("run", hour.runs),
        **summary("total", hour.totals),
        "attempts_mean": sum(hour.used) / len(hour.used) if hour.used else None,
        "attempts_max": max(hour.used, default=None),
        "workers": len(hour.workers),
        "target_ms": target_ms,
        "on_target": on_target,
        "on_target_share": on_target / len(hour.waits) if hour.waits else None,
    }


def _waiting(past: Iterable[Life]) -> Iterator[tuple[int, int]]:
    """When jobs wait, as spans: up to each lease, and from the last one to the end."""
    for life in past:
        since = life.claimable
        if life.before:
            since = life.leases[0].start
        for lease in life.leases:
            yield since, lease.start
            since = lease.end
        yield since, life.finished


def _held(leases: Iterable[Lease]) -> Iterator[tuple[int, int]]:
    return ((lease.start, lease.end) for lease in leases)


def _levels(spans: Iterable[tuple[int, int]], begin: int, end: int, length: int) -> dict[int, Figures]:
    """How many spans there are over time, hour by hour, by going through all their ends in order."""
    steps: Counter[int] = Counter()
    for since, until in spans:
        steps[since] += 1
        steps[until] -= 1
    at = sorted(steps)
    found: dict[int, Figures] = {}
    level = place = 0
    for start in range(begin, end + 1, length):
        now, area, most, busy = start, 0, 0, 0
        while now < start + length:
            while place < len(at) and at[place] <= now:
                level += steps[at[place]]
                place += 1
            following = min(at[place] if place < len(at) else start + length, start + length)
            most = max(most, level)
            area += level * (following - now)
            busy += (following - now) if level else 0
            now = following
        found[start] = {"mean": area / length, "max": most, "end": level, "ms": area, "share": busy / length}
    return found


def workers(past: list[Life]) -> dict[tuple[str, int, str], Figures]:
    """By queue, hour and worker."""
    found: dict[tuple[str, int, str], Figures] = {}
    theirs: defaultdict[tuple[str, str], list[Lease]] = defaultdict(list)
    for life in past:
        for lease in life.leases:
            theirs[life.queue, lease.worker].append(lease)
    outcomes = ("completed", "failed", "stalled", "released", "cancelled")
    for (queue, worker), leases in theirs.items():
        begin = min(each.start for each in leases) // HOUR_MS * HOUR_MS
        held = _levels(_held(leases), begin, max(each.end for each in leases), HOUR_MS)
        began = Counter(each.start // HOUR_MS * HOUR_MS for each in leases)
        ended = Counter((each.end // HOUR_MS * HOUR_MS, each.outcome) for each in leases)
        for start, level in held.items():
            counts: Figures = {name: ended[start, name] for name in outcomes}
            if began[start] or any(counts.values()) or level["ms"]:
                found[queue, start, worker] = {
                    **counts,
                    "claimed": began[start],
                    "held_ms": level["ms"],
                    "held_mean": level["mean"],
                    "held_max": level["max"],
                    "utilisation": level["share"],
                }
    return found


def errors(past: list[Life]) -> dict[tuple[str, int, str], tuple[int, int, int, int, int]]:
    """By queue, hour and fingerprint: leases, jobs, deaths, the first and the last."""
    theirs: defaultdict[tuple[str, int, str], list[tuple[str, Lease]]] = defaultdict(list)

    def kind(lease: Lease) -> str:
        return "OSError" if lease.error.startswith("host") else "MemoryError"

    for life in past:
        for lease in life.leases:
            if lease.outcome in ("failed", "stalled"):
                stalled = lease.outcome == "stalled"
                mark = fingerprint("stalled", SILENT) if stalled else fingerprint(kind(lease), lease.error)
                theirs[life.queue, lease.end // HOUR_MS * HOUR_MS, mark].append((life.job_id, lease))
    return {
        key: (
            len(each),
            len({job for job, _ in each}),
            sum(lease.final for _, lease in each),
            min(lease.end for _, lease in each),
            max(lease.end for _, lease in each),
        )
        for key, each in theirs.items()
    }
