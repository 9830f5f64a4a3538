"""The past of ``demo.past`` in plain words, and every metric of it computed in plain Python, without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from demo.past import DAY_MS, HOUR_MS, LoggedEnding
from osqueue.core.fingerprint import fingerprint, normalised

SILENT = "its lease ended without a word from its worker"

Figures = dict[str, float | str | None]
__all__ = ("DAY_MS", "HOUR_MS", "Figures", "Life", "errors", "lives", "metrics", "workers")


class Lease(Struct, frozen=True):
    run: int
    start: int
    end: int
    outcome: str
    worker: str
    error_type: str
    error: str
    final: bool


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
    redriven: bool


def lives(past: Iterable[LoggedEnding]) -> list[Life]:
    """All of the log."""
    return list(map(_life, past))


def _life(ending: LoggedEnding) -> Life:
    record = ending.record
    own = record.attempts[ending.before :]
    last = len(own) - 1
    leases = tuple(
        Lease(
            *(each.run, each.started_ms, each.ended_ms, each.outcome, each.worker),
            *((each.error_type, each.error) if each.outcome != "stalled" else ("stalled", SILENT)),
            final=number == last and each.ended_ms == record.finished_ms,
        )
        for number, each in enumerate(own)
    )
    claimable = record.scheduled_ms or record.enqueued_ms
    times = (record.enqueued_ms, claimable, record.finished_ms)
    return Life(ending.queue, record.job_id, *times, record.state, record.run, leases, ending.before > 0)


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
            if start not in events and not depth[start]["ms"]:
                continue  # nothing happened and nothing was left: it has no row
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
        if not life.redriven:
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
        if life.redriven:
            since = life.leases[0].start if life.leases else life.finished
        for lease in life.leases:
            yield since, lease.start
            since = lease.end
        yield min(since, life.finished), life.finished


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


def errors(past: list[Life]) -> dict[tuple[str, int, str], Figures]:
    """By queue, hour and fingerprint."""
    theirs: defaultdict[tuple[str, int, str], list[tuple[str, Lease]]] = defaultdict(list)
    for life in past:
        for lease in life.leases:
            if lease.outcome in ("failed", "stalled"):
                mark = fingerprint(lease.error_type, lease.error)
                theirs[life.queue, lease.end // HOUR_MS * HOUR_MS, mark].append((life.job_id, lease))
    return {
        key: {
            "error_type": each[0][1].error_type,
            "error": normalised(each[0][1].error),
            "example": min(lease.error for _, lease in each),
            "attempts": len(each),
            "jobs": len({job for job, _ in each}),
            "deaths": sum(lease.final for _, lease in each),
            "first_at": min(lease.end for _, lease in each),
            "last_at": max(lease.end for _, lease in each),
        }
        for key, each in theirs.items()
    }
