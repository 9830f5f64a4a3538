"""What became of every job and of every client's id, moment by moment; and what must hold of ids at each moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct

from osqueue.core.erase import PURGED
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs, JobSpec
from osqueue.core.ops import Code
from osqueue.core.rows import StoredContent
from osqueue.core.state import (
    ARCHIVE_ONLY,
    COMPLETED,
    FAILING,
    PROCESSING,
    QUEUED,
    SCHEDULED,
    FinishedJob,
    State,
)
from osqueue.objects import id_index
from osqueue.stores.base import Found, StoreRequest

from . import uniques
from .ledger import RecordedReduction, Violation
from .machine import EPOCH_MS
from .shelves import TableLeaf, newest
from .truth import Truth

LIVE = (SCHEDULED, QUEUED, PROCESSING, FAILING)
NOWHERE = ""  # not accepted yet
GONE = "gone"  # forgotten
SLACK_MS = 3_000  # by which two clocks that follow the store's may differ


T = TypeVar("T")


class JobArrival(Struct, frozen=True):
    """A job came in."""

    at: float  # seconds of virtual time
    client_id: str | None
    payload: bytes
    window_ms: int = 0


class Version(Struct, frozen=True):
    """The record of a finished job, from ``at`` until the next one."""

    at: float
    row: FinishedJob


class Stories:
    """The history of one shard, by job and by id."""

    def __init__(self, root: str, queue: str, truth: Truth) -> None:
        self.root = root
        self.folder = f"{id_index.FOLDER}{queue}/"
        self.truth = truth
        self.accepted: dict[bytes, JobArrival] = {}
        self.states: dict[bytes, list[tuple[float, str]]] = {}
        self.versions: dict[bytes, list[Version]] = {}
        self.leaves: Sequence[TableLeaf] = ()  # the tables of the newest head
        self.shelved: dict[bytes, FinishedJob] = {}  # their rows, by key
        self.kept: dict[bytes, FinishedJob] = {}  # and those of the head itself
        self.results: dict[bytes, bytes] = {}  # of the complete that won, as it was serialised
        self.named: dict[str, list[bytes]] = {}  # every job accepted under an id
        self.entries: dict[str, list[tuple[float, bytes | None]]] = {}  # what each place under ids/ stood for
        self.redriven: set[bytes] = set()
        self.successors: dict[bytes, bytes] = {}  # of jobs that were replaced
        self.rules = False  # do callers say how their ids are kept unique?
        self.passed: set[bytes] = set()  # jobs that ran or were over when another was let in under their id
        self.restarted: set[bytes] = set()  # jobs that made room for one under their id
        self.behind: dict[
            bytes, bytes
        ] = {}  # by keys that entries named: the jobs that theirs were to restart
        self.closed: dict[str, bool] = {}  # is the entry of a place about to be removed?
        self.retired: set[bytes] = set()  # keys whose entries were removed before anybody enqueued under them
        self.freed = 0
        self.purged: set[bytes] = set()
        self.repaired = float(
            "-inf"
        )  # seconds of virtual time when a repair last turned back what time had done
        truth.watchers.append(self.watch)
        truth.mourners.append(self.mourn)

    # ── Ids ──────────────────────────────────────────────────────────────────
    def watch(self, request: StoreRequest, key: str, body: bytes) -> None:
        """A write took effect."""
        if key.startswith(self.folder):
            entry = id_index.entry_of(Found(body, "", 0), key)
            before = self.entries.get(key, [(0.0, None)])[-1][1]
            if entry.restarts:
                self.behind[entry.key] = entry.restarts
            elif self.rules and before is not None and self.state(before) not in uniques.WAITING:
                self.passed.add(
                    before
                )  # somebody's rule let go of it; others may help to enqueue what comes next
            self.entries.setdefault(key, []).append((self.now(), entry.key))
            self.closed[key] = entry.closing
            self.retired.discard(entry.key)

    def mourn(self, key: str) -> None:
        """An id is free again: the job it stood for must be over, and its result too."""
        if not key.startswith(self.folder):
            return
        _, job = self.entries[key][-1]
        assert job is not None
        self.entries[key].append((self.now(), None))
        self.freed += 1
        if job not in self.accepted:
            if not self.closed[key] and key not in self.truth.damaged:  # on the word of neither anybody acts
                raise Violation(f"an id was freed whose job {job.hex()} was never enqueued")
            self.retired.add(job)
            return
        if self.state(job) in LIVE:
            raise Violation(f"an id was freed while its job {job.hex()} is {self.state(job)}")
        if self.state(self.heir(job)) in LIVE and job not in self.purged:
            raise Violation(f"an id was freed while the job that took the place of {job.hex()} is there")
        if self.now() < self.accepted[job].at + self.accepted[job].window_ms / 1000 and job not in (
            *self.purged,
            *self.successors,
        ):
            raise Violation(f"an id was freed in the window of {job.hex()}")
        if self.lives(job, SLACK_MS) and job not in self.purged:
            raise Violation(f"an id was freed while the result of {job.hex()} lives")

    def stood_for(self, client_id: str, queue: str, began: float, ended: float) -> set[bytes | None]:
        """What an id stood for at some moment of an interval."""
        entries = self.entries.get(id_index.entry_key(queue, client_id), [])
        found = set(_during(entries, None, began, ended))
        return found | {self.behind[key] for key in found if key in self.behind}

    # ── Jobs ─────────────────────────────────────────────────────────────────
    def commit(self, state: State, batch: RecordedReduction, leaves: Sequence[TableLeaf]) -> None:
        """A head became current."""
        now = self.now()
        uniques.check(batch)
        self._accept(batch, now)
        for event in batch.reduction.events:
            if event.key:
                self.states.setdefault(event.key, []).append((now, event.target))
                if event.cause == "redrive":
                    self.redriven.add(event.key)
        if leaves is not self.leaves:
            self.leaves, self.shelved = leaves, newest(leaves)
        kept = self.shelved | {row.key: row for row in state.finished if row.mark != ARCHIVE_ONLY}
        for key, row in kept.items():
            if self.kept.get(key) is row:
                continue
            known = self.versions.setdefault(key, [])
            had_expired = known and known[-1].row.expires_ms <= state.now_ms and known[-1].at > self.repaired
            if had_expired and state.now_ms < row.expires_ms:
                raise Violation(f"the result of {key.hex()} had expired, and came back")
            if not known or (known[-1].row.expires_ms, known[-1].row.state) != (row.expires_ms, row.state):
                known.append(Version(now, row))
            if row.state == COMPLETED and key not in self.results:
                self.results[key] = self.content(row.result)
        moved = {event.key for event in batch.reduction.events} & self.versions.keys()
        for key in (self.kept.keys() | moved) - kept.keys():
            if self.state(key) != GONE:
                self.states.setdefault(key, []).append((now, GONE))
        self.kept = kept
        self._grants(batch)

    def _accept(self, batch: RecordedReduction, now: float) -> None:
        for request in batch.requests:
            outcomes = batch.reduction.outcomes.get(request.identity, ())
            for op, answer in zip(request.ops, outcomes, strict=False):
                if not isinstance(op, EnqueueJobs):
                    continue
                for new, code in zip(op.jobs, answer.codes, strict=True):
                    if code not in (Code.QUEUED, Code.SCHEDULED):
                        continue
                    if new.key in self.retired:
                        raise Violation(
                            f"a job was accepted under {new.client_id}, whose entry had been removed"
                        )
                    if new.client_id is not None:
                        self._alone(new.client_id, new)
                    self._arrived(new, now)
        for item, code in uniques.replacements(batch):
            if code in uniques.TAKEN:
                self._arrived(item.new, now)
        for row in batch.reduction.state.finished:
            if row.successor is None or row.key in self.successors:
                continue
            self.successors[row.key] = row.successor
            old, heir = self.accepted.get(row.key), self.accepted.get(row.successor)
            if old is None or heir is None or old.client_id != heir.client_id:
                raise Violation(f"{row.key.hex()} was replaced by a job that is not of its id")

    def _arrived(self, new: JobSpec, now: float) -> None:
        window = 0 if new.unique is None else new.unique.window_ms
        self.accepted[new.key] = JobArrival(now, new.client_id, self.content(new.payload), window)
        if new.client_id is not None:
            self.named.setdefault(new.client_id, []).append(new.key)

    def _alone(self, client_id: str, new: JobSpec) -> None:
        """No other job of the id may be under way, or have a result that lives, but for what the rule allows."""
        for other in self.named.get(client_id, ()):
            if other in self.redriven or other in self.passed or other in self.restarted:
                continue  # it was over; that somebody revived it is not the id's doing
            if new.restarts is not None and other == self.heir(new.restarts.key):
                self.restarted.add(other)  # in this very commit it ends, or is asked to
                continue
            if other == self.behind.get(new.key) and self.state(other) not in LIVE:
                self.restarted.add(other)  # it was to end for this one, and did so by itself
                continue
            if uniques.may_come_beside(new, self.state(other)):
                self.passed.add(other)
                continue
            if self.state(other) in LIVE:
                raise Violation(
                    f"a second job was accepted under {client_id}; the first is {self.state(other)}"
                )
            if self.lives(other, SLACK_MS) and not self._revived(other):
                raise Violation(f"a job was accepted under {client_id}, whose result lives")

    def heir(self, key: bytes) -> bytes:
        """The last of those who took a job's place, one after the other, or itself."""
        while key in self.successors:
            key = self.successors[key]
        return key

    def _revived(self, key: bytes) -> bool:
        """Was its TTL changed at the last moment? By another clock it was over already."""
        versions = self.versions[key]
        return any(
            old.row.expires_ms <= EPOCH_MS + new.at * 1000 + SLACK_MS for old, new in pairwise(versions)
        )

    def _grants(self, batch: RecordedReduction) -> None:
        for request in batch.requests:
            outcomes = batch.reduction.outcomes.get(request.identity, ())
            for op, answer in zip(request.ops, outcomes, strict=False):
                for lease in answer.leases if isinstance(op, ClaimJobs) else ():
                    if lease.job.priority == PURGED:
                        raise Violation(f"{lease.job.key.hex()} runs, and a purge has made it blank")
                    known = self.accepted.get(lease.job.key)
                    purged = lease.job.key in self.purged  # redriven meanwhile: its contents may have gone
                    if known is not None and not purged and self.content(lease.job.payload) != known.payload:
                        raise Violation(f"{lease.job.key.hex()} runs with another payload than was accepted")

    def content(self, content: StoredContent) -> bytes:
        """A payload or result, wherever it lies."""
        if isinstance(content, bytes):
            return content
        data = self.truth.read(self.root + content.name)
        return b"" if data is None else data[content.start : content.start + content.length]

    # ── Questions ────────────────────────────────────────────────────────────
    def now(self) -> float:
        """Seconds of virtual time."""
        return self.truth.seconds()

    def state(self, key: bytes) -> str:
        """Where a job is."""
        return self.states[key][-1][1] if key in self.states else NOWHERE

    def during(self, key: bytes, began: float, ended: float) -> set[str]:
        """Where a job was at some moment of an interval."""
        return set(_during(self.states.get(key, []), NOWHERE, began, ended))

    def lives(self, key: bytes, slack_ms: int) -> bool:
        """Is the job completed, and its result to be given out for longer than that?"""
        versions = self.versions.get(key)
        if not versions or versions[-1].row.state != COMPLETED or self.state(key) == GONE:
            return False
        return versions[-1].row.expires_ms > self.truth.clock_ms() + slack_ms

    def expiries(self, key: bytes, began: float, ended: float) -> list[int]:
        """When its result was to expire, by each record it had in an interval."""
        versions = self.versions.get(key, [])
        spans = [(each.at, each.row.expires_ms) for each in versions]
        return [each for each in _during(spans, -1, began, ended) if each >= 0]


def _during(story: Sequence[tuple[float, T]], first: T, began: float, ended: float) -> Iterator[T]:
    """The values of an interval, its first one included."""
    value = first
    for at, following in story:
        if at > ended:
            break
        if at >= began:
            yield value
        value = following
    yield value
