"""A head made anew: from a backup after the head was lost, or with another time after a clock was wrong.

A restored head begins a new *life* of its shard. Nothing of the old one may ever be taken for part of it:

* Its epoch is new, so no request of the old life is ever applied, however late it arrives.
* Its ``seq`` is above every number the old life can have named, and ``floor`` and ``gc_floor`` stand at it:
  what was staged or announced before is refused, and its writer begins again.
* No lease lives on, so no old token finishes anything. Leased jobs stalled: they go back to the front.
* Every job's ``run`` counts on from the new ``seq``. A shard grants fewer leases of one job than it makes commits,
  so no pair of job and run comes again, however often one backup is restored.

What happened since the backup is known only in part: by the archive and by the tables of finished jobs. A table is
written before the commit that refers to it, and stays when that is lost. All the same it tells only of what was
committed, for no batch moves rows of its own into one (``settle.shelve``). An ``JobEnding`` says what became of a job
there; a ``BackupFilter`` keeps the jobs that have none.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct
from msgspec.structs import replace

from . import batches, event_log, follow_ups, groups, pauses, rates, scheduling, spill, tables, timers
from .audit import live_keysum, spans_of
from .batches import batch_of
from .context import ReductionContext, StagedObject
from .draft import Draft
from .drop_rules import as_old
from .erase import is_blank
from .head_content import contents_in_memory
from .rows import BodyRef
from .state import (
    ARCHIVE_ONLY,
    COMPLETED,
    ENDED,
    FAILED,
    KEYSUM_MASK,
    NO_HOLD,
    UPDATED,
    Backlog,
    Delayed,
    FinishedJob,
    JobRecord,
    LeaseRecord,
    PastAttempt,
    Span,
    State,
    TableRef,
)
from .weights import finished_weight, job_weight, lease_weight

SEQ_MARGIN = 100_000_000  # commits: more than a shard can make without leaving an object that tells of them


RecordId = tuple[bytes, int, str]  # a record, by the job's key, its run and its state


def record_id(row: FinishedJob) -> RecordId:
    """What tells a finished row's record from all others."""
    return (row.key, row.job.run, row.state)


class JobEnding(Struct, frozen=True):
    """How a job ended after the backup was made."""

    state: str  # completed, cancelled, or failed: then it is a dead letter
    run: int  # of the job when it ended
    attempt: int
    history: tuple[PastAttempt, ...]


class RestoreSeed(Struct, frozen=True):
    """What the new life begins with: all of it chosen outside."""

    seq: int  # of the restored head; see ``seq_after``
    born: int  # of what is written before it: of the old life, so that it is garbage should the swap fail
    epoch: int  # random
    commit: bytes  # 16 random bytes
    chance: int  # 64 random bits that name what is spilled
    now_ms: int  # the store's clock
    format: int = 1  # of the head that is replaced: what was written since the backup may need it


class Evidence(Struct, frozen=True):
    """What is known of the time since the backup."""

    endings: Mapping[bytes, JobEnding] = {}  # by job key
    archived: frozenset[RecordId] = frozenset()  # what the archive has got since the backup
    gone: frozenset[str] = frozenset()  # objects that are missing or cannot be read
    purged: frozenset[bytes] = frozenset()  # jobs of which nothing may be left, by key
    rows: tuple[FinishedJob, ...] = ()  # finished since, unknown to the backup, and the archive lacks them
    tables: tuple[TableRef, ...] = ()  # of finished jobs, all that are there, oldest first


class RestoreLoss(Struct, frozen=True):
    """What became of the jobs of the backup, and what is lost."""

    finished: int = 0  # jobs that waited or ran, and have finished since: they do not run again
    buried: int = 0  # jobs that waited or ran, and have failed for good since: dead letters now
    stalled: int = 0  # leased jobs that wait again: they may be running at this moment
    cancelled: int = 0  # leased jobs of which somebody wanted the cancellation
    late: int = 0  # delayed jobs whose start deadline has passed: cancelled
    spent: int = 0  # leased jobs whose last attempt that was: dead letters now
    jobs_gone: int = 0  # in segments that are not there: taken since, or lost
    erased: int = 0  # that were purged since: blank in the backup
    payloads_gone: int = 0  # whose payload is not there: finished and collected since, or lost
    unmarked: int = 0  # cancelled before, by deletion vectors that are lost: as many may run, at most
    segments_gone: int = 0  # objects
    tables_gone: int = 0  # objects: what became of the jobs in them is in the archive alone
    schedules_gone: int = 0  # whose payload is not there: changed or removed since, or lost
    holds_gone: int = 0  # groups that waited for a job that has ended since, or is lost: they go on


class RestoredHead(Struct, frozen=True):
    """A new head, and what has to be written before it."""

    state: State
    objects: tuple[StagedObject, ...]
    loss: RestoreLoss


def seq_after(seen: Iterable[int]) -> int:
    """The first ``seq`` of a life after one that has shown these numbers."""
    return max(seen, default=0) + SEQ_MARGIN


class BackupFilter:
    """Keeps the jobs of a backup that still have to run, and counts the others."""

    def __init__(self, evidence: Evidence, seq: int, backup: State) -> None:
        self.evidence = evidence
        self.seq = seq
        self.lives = backup.result_ttls
        # The jobs that groups wait for in the backup, each with whether it is a dead letter there.
        self.holding = {row.key: row.why == FAILED for row in backup.holds.values() if row.key}
        self.awaited: set[bytes] = set()  # those of them that still are where they were
        self.alive: dict[bytes, int] = {}  # those of jobs that still have to run: nothing drops any others
        self.dead: list[JobRecord] = []  # failed since
        self.finished = 0
        self.erased = 0
        self.payloads_gone = 0
        self.unmarked_jobs = 0
        self.doubtful: set[str] = set()  # segments whose deletion vector is lost
        self.placed: set[bytes] = set()  # jobs that were met where they certainly stand
        self.living: Counter[str] = Counter()  # jobs that wait or run, by their schedule
        self.batched: Counter[bytes] = Counter()  # the same by their batch
        self.completed: Counter[bytes] = Counter()  # by their batch: jobs that have completed since
        self.failed: Counter[bytes] = Counter()  # dead letters that have come since, less those that are over
        self.jobs_gone = 0
        self.segments_gone = 0

    def keep(
        self, jobs: Iterable[JobRecord], *, tombstones: Iterable[bytes] = (), dead: bool = False
    ) -> list[JobRecord]:
        """Those that have not ended, in their order. ``tombstones``: keys that were cancelled where they lie.

        ``dead``: they are dead letters.
        """
        dropped = set(tombstones)
        jobs = list(jobs)
        self.placed.update(job.key for job in jobs)
        kept = [
            self.raised(job)
            for job in jobs
            if job.key not in dropped and not self._ended(job, leased=False, dead=dead)
        ]
        self._meet(kept, dead=dead)
        return kept

    def leases(self, leases: Iterable[LeaseRecord]) -> list[LeaseRecord]:
        """Those whose jobs have not ended."""
        kept = [lease for lease in leases if not self._ended(lease.job, leased=True, dead=False)]
        self._meet(lease.job for lease in kept)
        return kept

    def _meet(self, jobs: Iterable[JobRecord], *, dead: bool = False) -> None:
        jobs = list(jobs)
        if not dead:
            self.living.update(job.schedule for job in jobs if job.schedule)
            self.batched.update(filter(None, map(batch_of, jobs)))
        if self.holding:
            self.awaited.update(job.key for job in jobs if self.holding.get(job.key) is dead)
        if self.lives:
            self.alive.update((job.key, self.lives[job.key]) for job in jobs if job.key in self.lives)

    def miss(self, span: Span) -> None:
        """Count the jobs of a segment or an index that cannot be read."""
        self.segments_gone += 1
        self.jobs_gone += span.count

    def unmarked(
        self, span: Span, jobs: Sequence[JobRecord], marked: AbstractSet[bytes] | None, backup: State
    ) -> list[JobRecord]:
        """The jobs of a segment whose deletion vector is lost, without those that are known to be cancelled.

        ``jobs`` are all that lie in it, and ``span`` tells how many of them were to come. ``marked``: those that a
        later vector tells of. Where there is none, the backup's own rows tell of some. Others were made due where they
        lay, and stand elsewhere: ``keep`` has to meet them there first.
        """
        self.doubtful.add(span.name)
        before = len(jobs) - span.count  # cancelled when the backup was made, and no tombstone tells of it
        tombstones = set(backup.tombstones)
        if marked is None:
            rows = {row.key for row in backup.finished} - tombstones
            left = [job for job in jobs if job.key not in rows]
            self.unmarked_jobs += max(0, len(left) - span.count)
        else:
            left = [job for job in jobs if job.key not in marked]
            self.finished += max(0, len(marked - tombstones) - before)
        return left

    def raised(self, job: JobRecord) -> JobRecord:
        """The job, its ``run`` above any it can have had."""
        return job if job.run >= self.seq else replace(job, run=self.seq)

    def _ended(self, job: JobRecord, *, leased: bool, dead: bool) -> bool:
        if is_blank(job) or job.key in self.evidence.purged:  # as a dead letter it could be redriven
            self.erased += 1
            return True
        ending = self.evidence.endings.get(job.key)
        if ending is not None and ending.state != FAILED and ending.run >= job.run:
            self.finished += 1
            self.completed[batch_of(job)] += ending.state == COMPLETED
            self.failed[batch_of(job)] -= dead
            return True
        # A job that failed and was redriven has a record of that failure, of a run that is over.
        if ending is not None and ending.state == FAILED and ending.run >= job.run + (not leased):
            history = ending.history or job.history
            if history:  # a dead letter tells what it died of
                again = replace(job, attempt=ending.attempt, history=history, run=self.seq, due_ms=0)
                life = self.lives.get(job.key, job.result_ttl_ms)  # from now on the job itself keeps it
                self.dead.append(replace(again, result_ttl_ms=life))
                self.failed[batch_of(job)] += not dead
                return True
        if any(isinstance(each, BodyRef) and each.name in self.evidence.gone for each in job.contents):
            self.payloads_gone += 1
            return True
        return False


def restore(
    backup: State,
    life: RestoreSeed,
    evidence: Evidence,
    sieve: BackupFilter,
    spans: Mapping[str, tuple[Span, ...]],
) -> RestoredHead:
    """The head of the new life.

    ``spans`` says, by name, what stands in the place of each pointer to jobs in segments; what is under none is
    gone. The caller has put the jobs of those segments through ``sieve``.
    """
    base = _sifted(backup, life, evidence, sieve, as_old(backup, spans))
    draft = Draft(base, ReductionContext(life.now_ms, life.commit, life.chance, observed=False))
    spent, cancelled = draft.counts["failed"], draft.counts["cancelled"]
    timers.advance_time(draft)  # every lease has ended
    for fifo in (*draft.lanes.values(), draft.dead):
        fifo.ready = deque(map(sieve.raised, fifo.ready))
        fifo.tail = list(map(sieve.raised, fifo.tail))
    draft.delayed = list(map(sieve.raised, draft.delayed))  # a job past its time limit is tried again later
    for job in sieve.dead:
        draft.dead.push(job, 0)
    follow_ups.settle(draft)
    spill.enforce_budgets(draft)
    shelf = list(draft.tables)
    tables.fold(shelf, draft.spill)
    draft.tables = tuple(shelf)
    state = draft.freeze(0, True)
    total = (live_keysum(state) + state.counters.keysum_out) & KEYSUM_MASK
    state = replace(
        state,
        seq=life.seq,
        counters=replace(state.counters, keysum_in=total),
        marks=((life.now_ms, life.seq),),
    )
    spent = draft.counts["failed"] - spent
    cancelled = draft.counts["cancelled"] - cancelled - draft.dropped  # the others were leased
    loss = RestoreLoss(
        finished=sieve.finished,
        buried=len(sieve.dead),
        stalled=len(base.leases) - spent - cancelled,
        cancelled=cancelled,
        late=draft.dropped,
        spent=spent,
        jobs_gone=sieve.jobs_gone,
        erased=sieve.erased,
        payloads_gone=sieve.payloads_gone,
        unmarked=sieve.unmarked_jobs,
        segments_gone=sieve.segments_gone,
        tables_gone=_tables_gone(backup, evidence),
        schedules_gone=sum(scheduling.exists(row) for row in backup.schedules)
        - sum(scheduling.exists(row) for row in base.schedules),
        holds_gone=sum(
            bool(row.key) and not base.holds.get(group, NO_HOLD).key for group, row in backup.holds.items()
        ),
    )
    return RestoredHead(state, tuple(draft.spills), loss)


def _tables_gone(backup: State, evidence: Evidence) -> int:
    return sum(table.name in evidence.gone for table in backup.tables)


def _sifted(
    backup: State,
    life: RestoreSeed,
    evidence: Evidence,
    sieve: BackupFilter,
    spans: Mapping[str, tuple[Span, ...]],
) -> State:
    """The backup as the first commit of the new life finds it: what has ended is gone, every lease over."""
    lanes = tuple(replace(lane, backlog=_backlog(lane.backlog, sieve, spans)) for lane in backup.lanes)
    delayed = tuple(sieve.keep(backup.delayed.jobs))
    leases = {
        lease.job.key: replace(lease, expires_ms=min(lease.expires_ms, life.now_ms))
        for lease in sieve.leases(backup.leases.values())
    }
    dead = _backlog(backup.dead, sieve, spans, dead=True)
    finished = (*_finished(backup.finished, evidence), *evidence.rows)
    sieve.dead.sort(key=lambda job: job.history[-1].ended_ms)
    return replace(
        backup,
        epoch=life.epoch,
        format=max(backup.format, life.format),
        seq=life.born,
        now_ms=min(backup.now_ms, life.now_ms),
        floor=life.seq,
        gc_floor=life.seq,
        gc_after="",
        marks=(),
        hot=0,
        load=0,
        direct=0,
        direct_ms=0,
        combined=0,
        streak=0,
        sessions={},
        sessions_bytes=0,
        refusals=(),
        lanes=lanes,
        leases=leases,
        leases_bytes=sum(map(lease_weight, leases.values())),
        delayed=Delayed(delayed, _placed(backup.delayed.spans, spans), sum(map(job_weight, delayed))),
        dead=dead,
        finished=finished,
        finished_bytes=sum(map(finished_weight, finished)),
        tombstones=(),
        delayed_tombstones={},
        tables=evidence.tables,
        forgotten=life.seq,
        result_ttls=sieve.alive,
        log=event_log.of_a_new_life(backup.log, life.seq),
        schedules=scheduling.of_a_new_life(
            backup.schedules, sieve.living, evidence.gone, min(backup.now_ms, life.now_ms)
        ),
        holds=groups.of_a_new_life(backup.holds, backup.settings, sieve.awaited, sieve.dead),
        batches=batches.of_a_new_life(backup.batches, sieve.batched, sieve.completed, sieve.failed),
        starts=rates.spent(backup.settings, life.now_ms),
        tickets={},
    )


def _backlog(
    backlog: Backlog, sieve: BackupFilter, spans: Mapping[str, tuple[Span, ...]], *, dead: bool = False
) -> Backlog:
    ready = tuple(sieve.keep(backlog.ready, dead=dead))
    tail = tuple(sieve.keep(backlog.tail, dead=dead))
    return Backlog(
        ready, _placed(backlog.spans, spans), tail, sum(map(job_weight, ready)), sum(map(job_weight, tail))
    )


def _placed(old: Sequence[Span], spans: Mapping[str, tuple[Span, ...]]) -> tuple[Span, ...]:
    return tuple(new for span in old for new in spans.get(span.name, ()))


def _finished(rows: Sequence[FinishedJob], evidence: Evidence) -> list[FinishedJob]:
    """The backup's finished jobs; of those the archive has got since, only what a lookup needs."""
    kept = []
    for row in rows:
        if row.key in evidence.purged:
            continue
        if record_id(row) not in evidence.archived or row.mark not in (ENDED, ARCHIVE_ONLY):
            kept.append(row)
        elif row.mark == ENDED:
            kept.append(replace(without_payload(row), mark=UPDATED))
    return kept


def without_payload(row: FinishedJob) -> FinishedJob:
    """A finished job whose payload the archive has, or cannot get any more."""
    return row if row.payload is None else replace(row, payload=None)


def without_result(row: FinishedJob, now_ms: int) -> FinishedJob:
    """A finished job whose result lies in an object that nobody shall need: it has expired, if not before, then now."""
    if not isinstance(row.result, BodyRef):
        return row
    kept_ms = max(row.kept_ms, row.expires_ms)
    return replace(row, result=b"", expires_ms=min(row.expires_ms, now_ms), kept_ms=kept_ms)


def names_in_head(state: State) -> set[str]:
    """The objects that a head names itself: segments, indexes, tables and bodies."""
    found = {span.name for span in spans_of(state)} | {table.name for table in state.tables}
    return found | {each.name for each in contents_in_memory(state) if isinstance(each, BodyRef)}


# ── The clock ────────────────────────────────────────────────────────────────
def reset_clock(state: State, now_ms: int, commit: bytes) -> State:
    """The same head at another time, one commit on.

    Every writer's row is forgotten, so ``floor`` stands at the current ``seq``: whatever was applied so far was born
    before it, so none of it is applied again. Leases begin anew, as if each had just been granted.
    """
    leases = {
        key: replace(
            lease,
            started_ms=min(lease.started_ms, now_ms),
            beat_ms=now_ms,
            expires_ms=now_ms + lease.lease_ms,
        )
        for key, lease in state.leases.items()
    }
    marks = tuple(mark for mark in state.marks if mark[0] <= now_ms)
    return replace(
        state,
        commit=commit,
        seq=state.seq + 1,
        now_ms=now_ms,
        floor=max(state.floor, state.seq),
        marks=(*marks, (now_ms, state.seq + 1)),
        direct=0,
        direct_ms=now_ms,
        sessions={},
        sessions_bytes=0,
        refusals=(),
        leases=leases,
        log=event_log.at_another_time(state.log, now_ms),
        schedules=scheduling.at_another_time(state.schedules, now_ms),
        starts=rates.at_another_time(state.starts, state.now_ms, now_ms),
        tickets={},
        batches=batches.at_another_time(state.batches, now_ms),
        settings=pauses.at_another_time(state.settings, state.now_ms, now_ms),
    )
