"""The real log as the past of two queues, an archive to look into with Spark: ``python -m demo.past FOLDER``.

From the log (October to December 1993, a parallel computer at NASA Ames): when each job came, how long it ran, on how
many processors, whose it was. The log says nothing about waiting, failures and workers, so these are made up, the same
at every run: each queue has a few workers that take one job at a time, the most urgent first and then the oldest. What
goes wrong is decided by a job's number, and by the three troubles below.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from demo.plan import LOG
from demo.swf import SwfJob, read_jobs
from osqueue import limits
from osqueue.core.archive_record import RECORD_FORMAT, ArchiveRecord, AttemptRecord, encode_part
from osqueue.core.state import CANCELLED, COMPLETED, FAILED, RELEASED, STALLED
from osqueue.objects.archive import hour_of

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
BEGAN_MS = 749_458_803_000  # the log's first second, 1 October 1993, 7:00:03 UTC: midnight in California
ARCHIVED_MS = DAY_MS  # the reaper comes every night …
ARCHIVED_AT_MS = 5 * MINUTE_MS  # … at 0:05 UTC

LARGE = 8  # a job on more processors goes to the queue "large"
WORKERS = {"small": 3, "large": 3}
URGENT = {1: limits.PRIORITY_DEFAULT, 2: 3}  # by the log's group: users, system personnel
ATTEMPTS = 3
LEASE_MS = 60 * SECOND_MS
PATIENCE_MS = 40 * MINUTE_MS  # so long some users wait before they give up
DEPLOYED_MS = (4 * 24 + 12) * HOUR_MS  # every week, so long after the log's first second: Tuesday at noon
WEEK_MS = 7 * DAY_MS
REDRIVEN_AT_MS = 17 * HOUR_MS  # of the next day, UTC


def _at(day: str) -> int:
    return round(datetime.fromisoformat(f"{day}+00:00").timestamp() * 1000)


# The troubles, UTC: a host that is gone, and one that refuses every job at once and so is always free for the next.
GONE = ("large-3", _at("1993-11-17T16:20"), _at("1993-11-19T02:00"))
REFUSING = ("small-2", _at("1993-11-22T17:05"), _at("1993-11-22T20:30"))


class LoggedEnding(Struct, frozen=True):
    """One end of a job, as the archive has it."""

    queue: str
    record: ArchiveRecord
    before: int = 0  # how many of its attempts belong to an earlier ending, from which it was redriven


class _Job(Struct):
    """A job on its way."""

    log: SwfJob
    queue: str
    claimable: int
    enqueued: int
    percent: int  # decides its fate: 0 to 999
    dice: int  # and how exactly
    attempts: list[AttemptRecord] = []
    run: int = 0
    used: int = 0
    before: int = 0
    started: bool = False  # somebody holds a lease of it, or it is over

    @property
    def took(self) -> int:
        """How long it runs, milliseconds: the log has whole seconds."""
        return self.log.run_s * SECOND_MS + self.dice % 1_000

    @property
    def number(self) -> int:
        return self.log.number


class _Fate(Struct, frozen=True):
    """How a lease ends."""

    after: int  # milliseconds
    outcome: str
    error_type: str = ""
    error: str = ""


# ── What happens to a job ────────────────────────────────────────────────────
def _job(log: SwfJob) -> _Job:
    mark = zlib.crc32(f"fate of {log.number}".encode())
    percent, dice = mark % 1_000, mark // 1_000
    queue = "large" if log.processors > LARGE else "small"
    claimable = BEGAN_MS + log.submit_s * SECOND_MS + dice % 1_000
    ahead = (1 + dice % 7) * HOUR_MS if 100 <= percent < 130 else 0  # handed in early, to run at a time
    return _Job(log, queue, claimable, claimable - ahead, percent, dice, attempts=[])


def _fate(job: _Job, worker: str, at: int) -> _Fate:
    """What becomes of a lease that begins now."""
    host, since, until = REFUSING
    if worker == host and since <= at < until:
        return _Fate(
            300 + job.dice % 600, FAILED, "OSError", f"cannot attach cube {job.dice % 64}: no route to host"
        )
    took, first = job.took, job.used == 1 and not job.before
    if job.percent < 12 and not job.before:  # nothing but a redrive after a correction helps
        line = 10 + job.dice % 900
        return _Fate(
            2_000 + job.dice % 9_000, FAILED, "ValueError", f"input deck, line {line}: 5 fields expected"
        )
    if job.percent < 80 and first:
        port = 7_000 + job.dice % 16
        return _Fate(
            500 + job.dice % 3_000,
            FAILED,
            "ConnectionRefusedError",
            f"licence server 10.0.0.5:{port} refused",
        )
    if job.percent < 110 and first and took > 10 * MINUTE_MS:
        disk = f"/cfs/user-{job.log.user}/ckpt.{job.number}"
        return _Fate(took * 9 // 10, FAILED, "OSError", f"[Errno 28] No space left on device: '{disk}'")
    if job.percent < 125 and first and took > 2 * MINUTE_MS:
        return _Fate(took // 2 + LEASE_MS, STALLED)
    if 990 <= job.percent < 994:
        return _Fate(took // 3, CANCELLED)
    return _Fate(took, COMPLETED)


def _cut(fate: _Fate, worker: str, at: int) -> _Fate:
    """The same, unless the worker is stopped for a new version, or its host goes."""
    deploy = BEGAN_MS + DEPLOYED_MS
    deploy += -(-(at - deploy) // WEEK_MS) * WEEK_MS
    if at < deploy < at + fate.after:
        fate = _Fate(deploy - at, RELEASED)
    host, gone, _ = GONE
    if worker == host and at < gone < at + fate.after:
        fate = _Fate(gone - at + LEASE_MS, STALLED)
    return fate


# ── A queue and its workers ──────────────────────────────────────────────────
def endings(jobs: Iterable[SwfJob] | None = None) -> list[LoggedEnding]:
    """All that the archive tells, in the order of time."""
    queues: defaultdict[str, list[_Job]] = defaultdict(list)
    for log in read_jobs(LOG) if jobs is None else jobs:
        made = _job(log)
        queues[made.queue].append(made)
    found = [each for queue in sorted(queues) for each in _Queue(queue).go(queues[queue])]
    return sorted(found, key=lambda each: (each.record.finished_ms, each.record.job_id))


class _Queue:
    """Events in the order of time: jobs become claimable, workers become free."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[LoggedEnding] = []
        self.events: list[tuple[int, int, _Job | str]] = []
        self.ready: list[tuple[int, int, int, _Job]] = []  # by priority, and then the oldest
        self.free: deque[str] = deque(f"{name}-{n}" for n in range(1, WORKERS[name] + 1))
        self.order = 0

    def at(self, ms: int, what: _Job | str) -> None:
        self.order += 1
        heapq.heappush(self.events, (ms, self.order, what))

    def go(self, jobs: Sequence[_Job]) -> list[LoggedEnding]:
        for job in jobs:
            self.at(job.claimable, job)
        while self.events:
            now, order, what = heapq.heappop(self.events)
            if isinstance(what, str):
                self.free.append(what)
            else:
                heapq.heappush(self.ready, (URGENT[what.log.group], now, order, what))
            self.hand_out(now)
        return self.found

    def hand_out(self, now: int) -> None:
        while self.ready and self.free:
            _, since, _, job = self.ready[0]
            if 980 <= job.percent < 990 and now > since + PATIENCE_MS:  # gave up while it waited
                heapq.heappop(self.ready)
                self.end(job, CANCELLED, since + PATIENCE_MS, why="not needed any more")
                continue
            worker = self.free.popleft()
            host, gone, back = GONE
            if worker == host and gone <= now < back:
                self.at(back, worker)
                continue
            heapq.heappop(self.ready)
            self.lease(job, worker, now + 4 + (job.dice + job.run) % 240)  # a claim takes a moment

    def lease(self, job: _Job, worker: str, at: int) -> None:
        job.run += 1
        job.used += 1
        fate = _cut(_fate(job, worker, at), worker, at)
        end = at + fate.after
        silent = end - LEASE_MS if fate.outcome == STALLED else 0
        what = (fate.outcome, fate.error, fate.error_type, silent)
        job.attempts.append(AttemptRecord(job.run, worker, at, end, *what))
        self.at(end + 20, worker)
        if fate.outcome in (COMPLETED, CANCELLED):
            self.end(job, fate.outcome, end, why="stopped by its owner" if fate.outcome == CANCELLED else "")
        elif fate.outcome == RELEASED:
            job.used -= 1
            self.at(end, job)
        elif job.used < ATTEMPTS:
            back_off = (SECOND_MS << job.used - 1) if fate.outcome == FAILED else 0
            self.at(end + back_off, job)
        else:
            self.end(job, FAILED, end)
            if job.percent % 3:  # somebody looks at the dead letters the next morning
                again = replace(
                    job, attempts=[*job.attempts], run=job.run + 1, used=0, before=len(job.attempts)
                )
                self.at((end // DAY_MS + 1) * DAY_MS + REDRIVEN_AT_MS, again)

    def end(self, job: _Job, state: str, at: int, why: str = "") -> None:
        record = ArchiveRecord(
            RECORD_FORMAT,
            f"01890a5d-ac96-774b-bcce-{job.number:012x}",
            job.run,
            state,
            job.enqueued,
            at,
            job.used,
            180 + 4 * job.log.processors,
            kind=f"user-{job.log.user}",
            priority=URGENT[job.log.group],
            scheduled_ms=job.claimable if job.claimable > job.enqueued else 0,
            max_attempts=ATTEMPTS,
            why=why,
            attempts=tuple(job.attempts),
        )
        self.found.append(LoggedEnding(self.name, record, job.before))


# ── The archive ──────────────────────────────────────────────────────────────
def passes(
    past: Iterable[LoggedEnding], every_ms: int = ARCHIVED_MS
) -> Iterator[tuple[str, int, list[LoggedEnding]]]:
    """What the reaper finds of each queue, night by night: the queue, when, and what."""
    nights: defaultdict[tuple[int, str], list[LoggedEnding]] = defaultdict(list)
    for each in past:
        night = (each.record.finished_ms - ARCHIVED_AT_MS) // every_ms + 1
        nights[night * every_ms + ARCHIVED_AT_MS, each.queue].append(each)
    for (at, queue), found in sorted(nights.items()):
        yield queue, at, found


def write_part(store: Path, queue: str, at_ms: int, records: Sequence[ArchiveRecord]) -> Path:
    """One part of an archive."""
    digest = zlib.crc32("".join(each.job_id for each in records).encode())
    path = store / f"{hour_of(queue, at_ms)}00-{at_ms:012x}-{digest:012x}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_part(records))
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.past", description="Write the log as an archive.")
    parser.add_argument("folder", type=Path, help="a new or empty folder: the store")
    folder: Path = parser.parse_args(arguments).folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        parser.error(f"{folder} is not empty. Name a new folder.")
    counts: Counter[str] = Counter()
    for queue, at, found in passes(endings()):
        write_part(folder, queue, at, [each.record for each in found])
        counts["parts"] += 1
        counts[queue] += len(found)
    told = " and ".join(f"{counts[queue]:,} in {queue}" for queue in WORKERS)
    print(f"{counts['parts']} archive parts in {folder}/archive: endings of jobs, {told}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
