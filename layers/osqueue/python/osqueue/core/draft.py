"""A state being changed: the working copy that one reduction mutates and then freezes.

Jobs move only through the methods here, so that every byte budget, counter, conservation sum and event is kept
in one place.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from .. import limits
from . import groups
from .backlog import BacklogDraft, NeededRange
from .batches import counted
from .context import ReductionContext, StagedObject
from .drop_rules import Drops
from .encoding import decode_blocks, staged_name
from .head_content import jobs_in_memory
from .mixed import draft_of
from .rows import BodyRef, StoredContent
from .state import (
    ARCHIVE_ONLY,
    CANCELLED,
    COMPLETED,
    ENDED,
    EXPIRED_DEAD,
    FAILED,
    HISTORY_ERROR_CHARS,
    HISTORY_MAX,
    KEYSUM_MASK,
    MIXED,
    PROCESSING,
    QUEUED,
    SCHEDULED,
    STALLED,
    Backlog,
    Counters,
    Delayed,
    FinishedJob,
    JobRecord,
    Lane,
    LeaseRecord,
    PastAttempt,
    Refusals,
    Session,
    Span,
    State,
    TableRef,
    Transition,
    VectorRef,
    content_bytes,
    due_order,
    keysums,
    lease_end,
    links_kept,
)
from .weights import LEASE_WEIGHT, finished_weight, job_weight, lease_weight, session_weight_of

Pointer = TypeVar("Pointer", Span, TableRef, VectorRef)


LATE = "expired: it was not started by its deadline"  # why such a job was cancelled


COMBINED_COMMITS = 4  # over which the mean of combined requests moves


class Draft:
    """The working copy. ``changed`` tells whether anything a reader could see is different."""

    # Each commit makes one: so many attributes would be a dict that grows several times.
    __slots__ = (
        "_known", "batches", "blocked", "blocks", "changed", "committed", "context", "counts", "dead",
        "delayed", "delayed_bytes", "delayed_spans", "delayed_tombstones", "dropped", "drops", "events",
        "expired", "finished", "finished_bytes", "floor", "forgotten", "format", "fresh_bytes", "gc_after",
        "gc_floor", "holds", "lanes", "latest", "leases", "leases_bytes", "log", "needs", "none_idle", "now",
        "observed", "pacer", "promoted", "recorded", "refusals", "result_ttls", "round", "sated", "schedules",
        "sessions", "sessions_bytes", "settings", "spills", "starts", "state", "tables", "tickets",
        "tokens", "tombstones", "turned_away",
    )  # fmt: skip

    def __init__(self, state: State, context: ReductionContext) -> None:
        self.state = state
        self.context = context
        self.now = max(state.now_ms, context.now_ms)  # by which it is judged what ends
        self.latest = max(self.now, context.latest_ms)  # from which it counts what begins
        self.changed = False
        self.sessions = dict(state.sessions)
        self.sessions_bytes = state.sessions_bytes
        self.none_idle = False  # a search found no idle writer
        self.refusals = state.refusals
        self.turned_away: set[int] = set()  # marks, in this commit
        self.floor = state.floor
        self.gc_floor = state.gc_floor
        self.gc_after = state.gc_after
        self.drops = Drops(state.drops, self.drop)
        self.lanes: dict[tuple[int, str], BacklogDraft] = {
            (lane.priority, lane.kind): draft_of(lane.kind, lane.backlog, self.drops) for lane in state.lanes
        }
        self.leases = dict(state.leases)
        self.leases_bytes = state.leases_bytes
        self.delayed = list(state.delayed.jobs)
        self.delayed_spans = list(state.delayed.spans)
        self.delayed_bytes = state.delayed.jobs_bytes
        self.dead = BacklogDraft(state.dead)
        self.finished = list(state.finished)
        self.finished_bytes = state.finished_bytes
        self.committed = len(self.finished)  # the first ones: they stood like this in the head that was read
        self.fresh_bytes = 0  # the weight of the others
        self.tables = state.tables
        self.forgotten = state.forgotten
        self.result_ttls = dict(state.result_ttls)
        self._known: set[bytes] | None = None
        self.tombstones = set(state.tombstones)
        self.delayed_tombstones = dict(state.delayed_tombstones)
        self.settings = state.settings
        self.counts: dict[str, int] = msgspec.structs.asdict(state.counters)
        self.log = state.log
        self.pacer = state.pacer
        self.schedules = state.schedules
        self.holds = state.holds
        self.batches = state.batches
        self.starts = state.starts
        self.round = state.round
        self.tickets = state.tickets
        self.format = state.format
        self.sated: dict[str, int] = {}  # consumers of which a claim found nothing: see there
        self.recorded = state.log.is_recorded_at(self.now)
        self.observed = context.observed or self.recorded
        self.events: list[Transition] = []
        self.spills: list[StagedObject] = []
        self.blocks = context.blocks
        self.needs: dict[tuple[str, int], NeededRange] = {}
        self.expired = 0  # leases that had ended when this reduction began
        self.promoted = 0  # jobs that had become due
        self.dropped = 0  # jobs whose start deadline had passed
        self.blocked = False  # something unreadable stood in the way
        self.tokens: Iterator[str] = iter(())  # endless, for the leases of the request being applied

    # ── Bookkeeping ──────────────────────────────────────────────────────────
    def count(self, name: str, amount: int = 1) -> None:
        """Raise a counter."""
        self.counts[name] += amount

    def event(self, job: JobRecord, origin: str, target: str, cause: str, worker: str = "") -> None:
        """Note a transition, and with it that something changed."""
        self.changed = True
        if self.observed:
            names = tuple([name for name, _ in job.headers]) if job.headers else ()
            life = job.attempt, job.run, worker, job.client_id, job.kind
            self.events.append(Transition(job.key, self.now, origin, target, cause, *life, headers=names))

    def need(self, need: NeededRange) -> None:
        """Ask for bytes of a segment. What is known to be unreadable is not asked for again."""
        if need.place in self.context.unreadable:
            self.blocked = True
        else:
            self.needs[need.place] = need

    def spill(self, folder: str, encode: Callable[[str], tuple[bytes, Pointer]]) -> Pointer:
        """Name, encode and keep an object to be written before the commit.

        It is named by what it holds: attempts at one commit that spill the same write the same object, whoever wins.
        """
        body, pointer = encode("")
        chance = int.from_bytes(blake2b(body, digest_size=8).digest(), "big")
        name = staged_name(folder, self.state.seq, chance)
        self.spills.append(StagedObject(name, body))
        return self.drops.dated(replace(pointer, name=name))

    def keep(self, span: Span) -> None:
        """Let this very reduction read the segment it spilled last: nobody can, before it is written."""
        found = decode_blocks(self.spills[-1].body, span.length, span.name)
        self.blocks = {**self.blocks, **{(span.name, offset): block for offset, block in found}}

    def accept(self, jobs: Sequence[JobRecord], cause: str = "enqueue") -> None:
        """Count new jobs, which have been put in their places, into the conservation sums."""
        counts = self.counts
        counts["enqueued"] += len(jobs)
        counts["keysum_in"] = (counts["keysum_in"] + keysums(jobs)) & KEYSUM_MASK
        self.changed |= bool(jobs)
        for job in jobs:
            if job.links is not None:
                self.batches = counted(self.batches, job.links.batch, total=1, left=1)
            if self.observed:
                self.event(job, "", SCHEDULED if job.due_ms else QUEUED, cause)

    def knows(self, key: bytes) -> bool:
        """Is a job with this key in the head itself?"""
        if self._known is None:
            self._known = {job.key for _, job in jobs_in_memory(self.state)}
            self._known.update(row.key for row in self.state.finished)
        return key in self._known

    def learn(self, key: bytes) -> None:
        """A job with this key has just been accepted."""
        if self._known is not None:
            self._known.add(key)

    # ── Places ───────────────────────────────────────────────────────────────
    def lane(self, priority: int, kind: str) -> BacklogDraft:
        """Where new jobs of a priority and kind go: their own lane, or the mixed one where it holds any."""
        mixed = self.lanes.get((priority, MIXED))
        if mixed:
            return mixed
        lane = self.lanes.get((priority, kind))
        if lane is None and len(self.lanes) >= limits.LANES_MAX and kind != MIXED:
            self.lanes = {place: lane for place, lane in self.lanes.items() if lane}
            if len(self.lanes) >= limits.LANES_MAX:
                kind = MIXED
        if lane is None:
            lane = self.lanes[priority, kind] = draft_of(kind, Backlog(), self.drops)
        return lane

    def queue(self, job: JobRecord) -> None:
        """Put a job at the back of its lane."""
        lane = self.lane(job.priority, MIXED if job.group else job.kind)
        lane.push(job, limits.READY_BYTES_MAX // len(self.lanes))

    def queue_front(self, job: JobRecord) -> None:
        """Put a job back to the front of its lane, which it once had."""
        kind = MIXED if job.group else job.kind
        own = self.lanes.get((job.priority, kind))
        (own or self.lane(job.priority, kind)).push_front(job)

    def requeue(self, job: JobRecord) -> None:
        """Queue a job that was delayed or dead: in front, where its group has waited for it."""
        holds, self.holds = self.holds, groups.not_for(self.holds, job)
        if holds is not self.holds:
            self.queue_front(job)
        else:
            self.queue(job)

    def after(self, wait_ms: int) -> int:
        """When so much time is over for certain, whatever the clocks say."""
        return self.latest + wait_ms if wait_ms else self.now

    def delay(self, job: JobRecord) -> None:
        """Let a job wait until it is due."""
        insort(self.delayed, job, key=due_order)
        self.delayed_bytes += job_weight(job)

    def exchange_delayed(self, at: int, replacement: Span | None) -> None:
        """Put another span, or none, in the place of one of delayed jobs."""
        self.delayed_spans[at : at + 1] = [] if replacement is None else [replacement]

    def remove_delayed(self, key: bytes) -> JobRecord | None:
        """Take a delayed job out of the window."""
        for at, job in enumerate(self.delayed):
            if job.key == key:
                del self.delayed[at]
                self.delayed_bytes -= job_weight(job)
                return job
        return None

    def grant(self, lane: BacklogDraft, count: int, worker: str, lease_ms: int) -> list[LeaseRecord]:
        """Lease up to ``count`` ready jobs of a lane, and no more than may be in flight.

        Each gets one more attempt, one more run and a token of its own.
        """
        room = limits.LEASES_BYTES_MAX - self.leases_bytes
        jobs, filled = lane.take(count, room, LEASE_WEIGHT + len(worker.encode()), self.now)
        now, latest = self.now, self.latest
        end = latest + lease_ms
        granted: list[LeaseRecord] = []
        for job, token in zip(jobs, self.tokens, strict=False):
            leased = replace(job, attempt=job.attempt + 1, run=job.run + 1, due_ms=0)
            if job.run_within_ms:
                until = latest + job.run_within_ms
                within = lease_end(latest, lease_ms, until)
                lease = LeaseRecord(leased, token, worker, now, now, within, lease_ms, until_ms=until)
            else:
                lease = LeaseRecord(leased, token, worker, now, now, end, lease_ms)
            self.leases[job.key] = lease
            granted.append(lease)
        self.leases_bytes += filled
        self.counts["claimed"] += len(granted)
        self.changed = True
        if self.observed:
            for lease in granted:
                self.event(lease.job, QUEUED, PROCESSING, "claim", worker)
        return granted

    def revise(self, lease: LeaseRecord) -> None:
        """Replace a lease by a changed one of the same job."""
        self.changed = True
        self.leases_bytes += lease_weight(lease) - lease_weight(self.leases[lease.job.key])
        self.leases[lease.job.key] = lease

    def end(
        self, lease: LeaseRecord, how: str, error: str = "", error_type: str = "", trace: str | None = None
    ) -> JobRecord:
        """End a lease; the job, with the attempt in its history, is nowhere until it is put somewhere."""
        history = self.ended(lease, how, error, error_type)
        return replace(lease.job, history=history, trace=lease.job.trace if trace is None else trace)

    def ended(
        self, lease: LeaseRecord, how: str, error: str = "", error_type: str = ""
    ) -> tuple[PastAttempt, ...]:
        """End a lease; the job's history with the attempt. The job is nowhere until it is put somewhere."""
        job = lease.job
        del self.leases[job.key]
        self.leases_bytes -= lease_weight(lease)
        if how == STALLED:
            ended = min(self.now, lease.expires_ms)
            attempt = PastAttempt(job.run, lease.worker, lease.started_ms, ended, how, beat_ms=lease.beat_ms)
        else:
            error = error[:HISTORY_ERROR_CHARS]
            attempt = PastAttempt(job.run, lease.worker, lease.started_ms, self.now, how, error, error_type)
        return (*job.history[1 - HISTORY_MAX :], attempt)

    def tally(self, job: JobRecord, by: int, **ended: int) -> None:
        """A job is one more, or one less, of the living ones of its schedule and its batch, and how it ended there."""
        if job.schedule:
            rows = [replace(r, living=r.living + by) if r.name == job.schedule else r for r in self.schedules]
            self.schedules = tuple(rows)
        if job.links is not None:
            self.batches = counted(self.batches, job.links.batch, left=by, **ended)

    def drop(self, job: JobRecord, origin: str, why: str = LATE, cause: str = "expired") -> None:
        """Cancel a job, as one whose start deadline has passed; it is in no place any more."""
        self.dropped += 1
        self.finish(job, CANCELLED, why=why, origin=origin, cause=cause)

    def bury(self, job: JobRecord) -> None:
        """Make a job a dead letter. Its failure is told to the archive at once, not when the letter is let go."""
        self.counts["failed"] += 1
        self.holds = groups.waiting_for(self.holds, self.settings, job, FAILED)
        self.tally(job, -1, failed=1)
        if job.key in self.result_ttls:  # from now on the job itself keeps it
            job = replace(job, result_ttl_ms=self.result_ttls.pop(job.key))
        self.dead.push(job, 0)
        size = content_bytes(job.payload)
        told = replace(job, payload=b"", trace="", links=links_kept(job.links))
        kept = job.payload if self.settings.archive_payloads else None
        self.add_finished(
            FinishedJob(told, FAILED, self.now, payload_bytes=size, mark=ARCHIVE_ONLY, payload=kept)
        )

    def finish(
        self,
        job: JobRecord,
        state: str,
        *,
        history: tuple[PastAttempt, ...] | None = None,
        token: str = "",
        result: StoredContent = b"",
        codec: str = "",
        why: str = "",
        origin: str,
        cause: str,
        successor: bytes | None = None,
        followed: int = 0,
    ) -> None:
        """Make a job completed, cancelled or a forgotten dead letter. Its payload has done its duty.

        Where the archive gets payloads the row keeps it until then; of a dead letter it got it when the job failed.

        ``history`` is its own with the attempt that has just ended, if there is one.
        """
        if history is None:
            history = job.history
        if (job.schedule or job.links) and origin != FAILED:
            self.tally(job, -1, cancelled=state == CANCELLED and not successor, total=-bool(successor))
        if self.holds:
            self.holds = groups.not_for(self.holds, job)
        ttl = self.result_ttls.pop(job.key, job.result_ttl_ms) if self.result_ttls else job.result_ttl_ms
        expires = self.now if state == FAILED else self.now + ttl
        row = FinishedJob(
            replace(job, payload=b"", history=history, links=job.links and links_kept(job.links, followed)),
            state,
            self.now,
            token,
            result,
            content_bytes(job.payload),
            why,
            expires,
            0,
            codec,
            EXPIRED_DEAD if origin == FAILED else ENDED,
            job.payload if isinstance(job.payload, BodyRef) else None,
            job.payload if self.settings.archive_payloads and origin != FAILED and not successor else None,
            successor,
        )
        self.add_finished(row)
        if state in (COMPLETED, CANCELLED):
            self.counts[state] += 1
        self.changed = True
        if self.observed:
            self.event(job, origin, state, cause, history[-1].worker if history else "")

    def add_finished(self, row: FinishedJob) -> None:
        """Keep a row of a job that is over."""
        size = finished_weight(row)
        self.finished.append(row)
        self.finished_bytes += size
        self.fresh_bytes += size

    def amend_finished(self, at: int, row: FinishedJob) -> None:
        """Change a row of a job that is over. From now on it is this batch's, and stays for its commit."""
        old = self.finished.pop(at)
        size = finished_weight(old)
        self.finished_bytes -= size
        if at < self.committed:
            self.committed -= 1
        else:
            self.fresh_bytes -= size
        self.add_finished(row)
        self.changed = True

    # ── The end ──────────────────────────────────────────────────────────────
    def record(self, env: str, n: int, nonce: int, outcomes: bytes) -> None:
        """Write a writer's session row."""
        old = self.sessions.get(env)
        before = 0 if old is None else session_weight_of(env, len(old.outcomes))
        self.sessions_bytes += session_weight_of(env, len(outcomes)) - before
        self.sessions[env] = Session(n, nonce, self.state.seq + 1, self.now, outcomes)

    def _refusals(self) -> tuple[Refusals, ...]:
        """Those that still say more than the floor does."""
        kept = tuple([each for each in self.refusals if each.seq > self.floor])
        if not self.turned_away:
            return kept
        return (*kept, Refusals(self.state.seq + 1, self.now, frozenset(self.turned_away)))

    def _combined(self, load: int) -> int:
        """The mean of others' requests in a commit, where writers publish."""
        if self.context.again is None:
            return 0
        before = self.state.combined
        return before + (1000 * max(0, load - 1) - before) // COMBINED_COMMITS

    def freeze(self, load: int, listed: bool) -> State:
        """The next state, one commit on, of ``load`` requests; ``listed``: the intents were looked for."""
        state = self.state
        hour = limits.HOUR_MS
        marks, seals = state.marks, state.seals
        due = not marks or self.now - marks[-1][0] >= hour
        if due or not seals:
            seals = (*seals[-1:], self.context.commit)  # random, and told to nobody who may not read the head
        if due:
            keep = self.now - limits.GC_HORIZON_MS
            old = [mark for mark in marks if mark[0] < keep]  # the newest of them is the horizon
            marks = (*old[-1:], *(mark for mark in marks if mark[0] >= keep), (self.now, state.seq + 1))
        unseen = not listed and self.now - state.now_ms < limits.SECOND_MS
        return State(  # by position: names would cost a tenth of a reduction that changes little
            self.context.commit,
            state.epoch,
            state.seq + 1,
            self.now,
            self.floor,
            self.gc_floor,
            marks,
            max(0, state.hot - 1) if load <= 1 else limits.HOT_COMMITS,
            load,
            state.direct + 1 if unseen else 0,
            state.direct_ms if unseen else self.now,
            self._combined(load),
            state.streak + 1 if self.context.again else 0,
            self.sessions,
            self.sessions_bytes,
            self._refusals() if self.refusals or self.turned_away else (),
            tuple([Lane(*place, lane.freeze()) for place, lane in sorted(self.lanes.items()) if lane]),
            self.leases,
            self.leases_bytes,
            Delayed(tuple(self.delayed), tuple(self.delayed_spans), self.delayed_bytes),
            self.dead.freeze(),
            tuple(self.finished),
            self.finished_bytes,
            tuple(sorted(self.tombstones)),
            {key: name for key, name in self.delayed_tombstones.items() if key in self.tombstones},
            self.settings,
            Counters(*self.counts.values()),
            self.tables,
            self.forgotten,
            self.result_ttls,
            seals,
            self.gc_after,
            self.log,
            self.pacer,
            self.schedules,
            self.holds,
            self.starts,
            self.drops.freeze(state.drops),
            self.batches,
            self.round,
            self.tickets,
            self.format,
        )
