"""Who uses the queue in a run. Each program is one client; all it knows it learnt through the real commit flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from msgspec import json
from msgspec.structs import replace

from osqueue import limits
from osqueue.commit.effects import Flow, QueueFlow, Sleep
from osqueue.core.groups import HOLD, STOP
from osqueue.core.job_ops import (
    AbortJobs,
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    JobSpec,
    LeaseBeat,
    LeaseRef,
    ReleaseJobs,
    RunJobNow,
    SpanSwap,
)
from osqueue.core.ops import Code, Op
from osqueue.core.queue_ops import (
    AS_THE_QUEUE,
    ChangeBatch,
    ChangeSettings,
    GroupChange,
    RedriveJobs,
    RunTimers,
)
from osqueue.core.rows import BodyRef, StoredContent
from osqueue.core.state import LeaseRecord, State
from osqueue.errors import (
    Damaged,
    NotFound,
    OsqueueError,
    Throttled,
    Timeout,
    Unavailable,
    Unknown,
)
from osqueue.maintenance.reaper import Reaper
from osqueue.model.reports import ReapReport as Reaped
from osqueue.objects import segment_rewrite, segments
from osqueue.objects.staging import SegmentBuilder, StagingArea

from .following import some_batch, some_follow_ups
from .grouping import some_group
from .ledger import Violation
from .program import Program
from .secrecy import secret_of
from .time_limits import limits_of, of_a_kind

R = TypeVar("R")
PRIORITIES = (3, 5)
STALLS_SECONDS = (0.0, 1.0, 8.0, 20.0)  # of a worker between staging its results and completing


class Client(Program):
    """A program in every part that a run gives: producer, worker, operator, reaper."""

    # ── Producers ────────────────────────────────────────────────────────────
    def jobs(self, count: int, *, delayed: bool) -> list[JobSpec]:
        """New jobs, small and large."""
        made = []
        for _ in range(count):
            machine = self.writer.machine
            chance = 1 << 63 | machine.bits(64) >> 10 << 8 | self.shard
            key = machine.now_ms().to_bytes(6, "big") + b"\x70\0" + chance.to_bytes(8, "big")
            delay = self.dice.choice((500, 5_000, 60_000)) if delayed and self.dice.random() < 0.3 else 0
            payload = (secret_of(key) * 4)[: self.dice.choice((3, 20, 60))]
            new = JobSpec(
                key,
                payload,
                kind=self.dice.choice(self.kinds),
                priority=self.dice.choice(PRIORITIES),
                max_attempts=self.dice.choice((1, 2, 3)),
                result_ttl_ms=self.dice.choice((1_000, 60_000)),
                delay_ms=delay,
            )
            new = replace(new, group=some_group(self.dice, self.groups)) if self.groups else new
            if self.follows and self.dice.random() < self.follows:
                new = replace(new, then=some_follow_ups(self.dice))
            if self.units and self.dice.random() < self.units:
                new = replace(new, units=self.dice.choice((2, 3, 12)))
            made.append(replace(new, **limits_of(self.dice, self.time_limits)) if self.time_limits else new)
            self.book.keys.append(key)
        return made

    def limit_kinds(self, pause_seconds: float) -> Flow[None]:
        """Give kinds limits of their own, and take them away."""
        while True:
            yield from self.pause(pause_seconds * 5)
            yield from self.call(of_a_kind(self.dice, self.kinds))

    def produce(self, rounds: int, pause_seconds: float) -> Flow[None]:
        """Enqueue single jobs and batches, small payloads and staged ones."""
        for _ in range(rounds):
            yield from self.pause(pause_seconds)
            jobs = self.jobs(self.dice.choice((1, 1, 2, 8)), delayed=True)
            if self.dice.random() < 0.15:
                jobs = yield from self.staged(jobs)
            ops: list[Op] = [EnqueueJobs(tuple(jobs))]
            if self.dice.random() < 0.1:
                ops.append(RunTimers())
            if self.follows and self.dice.random() < self.follows:
                yield from self.in_batch(jobs)
                continue
            call = yield from self.call(*ops)
            if call.answer and Code.STALE in call.answer.outcomes[0].codes:
                yield from self.call(EnqueueJobs(tuple((yield from self.staged(jobs)))))

    def in_batch(self, jobs: Sequence[JobSpec]) -> Flow[None]:
        """Enqueue jobs as a batch, which is sealed in the end, or not."""
        (first, *_) = self.jobs(1, delayed=False)
        key = first.key
        self.book.keys.remove(key)
        yield from self.call(ChangeBatch(key, some_batch(self.dice)))
        self.book.batches.append(key)
        yield from self.call(EnqueueJobs(tuple([replace(job, batch=key) for job in jobs])))
        if self.dice.random() < 0.9:
            yield from self.call(ChangeBatch(key))

    def staged(self, jobs: Sequence[JobSpec]) -> Flow[list[JobSpec]]:
        """The same jobs with their payloads in a body object."""
        state = yield from self.head()
        if state is None:
            return [_small(job) for job in jobs]
        stage = StagingArea(self.writer.root, state.seq, self.writer.machine)
        try:
            large = [(secret_of(job.key) * 99)[: limits.INLINE_BYTES_MAX + 30] for job in jobs]
            placed = yield from stage.bodies(large)
        except OsqueueError:
            return [_small(job) for job in jobs]
        if self.dice.random() < 0.3:  # a writer that stalls between staging and committing
            yield Sleep(self.dice.choice((1.0, 60.0, 400.0)))
        return [_with(job, content) for job, content in zip(jobs, placed, strict=True)]

    def bulk(self, rounds: int, pause_seconds: float) -> Flow[None]:
        """Stage whole segments and attach them; now and then stall in between."""
        for _ in range(max(1, rounds // 8)):
            yield from self.pause(pause_seconds * 4)
            jobs = self.jobs(self.dice.choice((5, 20, 40)), delayed=True)
            for _ in range(3):
                state = yield from self.head()
                if state is None:
                    continue
                stage = StagingArea(self.writer.root, state.seq, self.writer.machine)
                bulk = SegmentBuilder(stage, state.now_ms)
                try:
                    yield from bulk.add(jobs)
                    attachments = yield from bulk.attachments()
                except OsqueueError:
                    continue
                if self.dice.random() < 0.4:
                    yield Sleep(self.dice.choice((5.0, 100.0, 600.0)))
                call = yield from self.call(*attachments)
                if call.answer is None or all(each.code == Code.QUEUED for each in call.answer.outcomes):
                    break
                if any(each.code in (Code.QUEUED, Code.SCHEDULED) for each in call.answer.outcomes):
                    break  # a part of it is in: staging all of it again would double that part

    # ── Workers ──────────────────────────────────────────────────────────────
    def work(self, pause_seconds: float, large: float = 0.0) -> Flow[None]:
        """Claim, work, heartbeat; complete, fail, release, abort, or vanish.

        ``large``: how often all is completed with results that lie beside the head.
        """
        claim = ClaimJobs(1, self.name, 10_000)
        while True:
            claim = ClaimJobs(
                self.dice.choice((1, 1, 3, 8)),
                self.name,
                self.dice.choice((2_000, 10_000, 30_000)),
                self.dice.choice((None, None, None, self.kinds[1:])),
            )
            if claim.kinds is not None and len(claim.kinds) > 1:
                claim = replace(
                    claim,
                    kinds=tuple(self.dice.sample(claim.kinds, self.dice.choice((1, 1, len(claim.kinds))))),
                )
            call = yield from self.call(claim)
            leases = call.answer.outcomes[0].leases if call.answer else ()
            if not leases:
                yield from self.pause(pause_seconds * 2)
                continue
            if self.dice.random() < 0.03:
                continue  # vanished: the leases run out
            yield from self.pause(self.dice.choice((0.1, 1.0, 15.0)))
            if self.dice.random() < 0.3:
                held = tuple(LeaseBeat(lease.job.key, lease.token, 500, "half") for lease in leases)
                yield from self.call(ExtendLeases(held))
                yield from self.pause(1.0)
            if large and self.dice.random() < large:
                yield from self.complete_large(leases)
            else:
                yield from self.finish(leases)

    def complete_large(self, leases: Sequence[LeaseRecord]) -> Flow[None]:
        """Complete through the library's own flow, which stages the results; stand still before it commits."""
        items = [
            (lease.job.key, lease.token, json.encode(lease.token + "x" * self.dice.choice((0, 150, 400))))
            for lease in leases
        ]
        stall = self.dice.choice(STALLS_SECONDS)
        try:
            yield from self.run(self.flows.complete_encoded(items), stall)
        except OsqueueError as error:
            if not isinstance(error, Timeout | Unavailable | Throttled):
                raise Violation(f"{self.name} was told {type(error).__name__}: {error}") from error

    def finish(self, leases: Sequence[LeaseRecord]) -> Flow[None]:
        """End each lease somehow, in one request; repeat once where nothing was heard."""
        ops: list[Op] = []
        done = []
        for lease in leases:
            roll = self.dice.random()
            held = (LeaseRef(lease.job.key, lease.token),)
            if self.throttles and self.dice.random() < self.throttles:
                ops.append(ReleaseJobs(held, 0, **self._throttle()))
            elif roll < 0.7:
                secret = secret_of(lease.job.key).decode() if self.secrets else ""
                result = json.encode(lease.token + secret + "x" * self.dice.choice((0, 150)))
                done.append(
                    Completion(lease.job.key, lease.token, result if self.dice.random() < 0.7 else b"")
                )
            elif roll < 0.85:
                failure = FailedAttempt(
                    lease.job.key,
                    lease.token,
                    f"no luck {secret_of(lease.job.key).decode()}" if self.secrets else "no luck",
                    self.dice.choice((-1, 0, 3_000)),
                    self.dice.random(),
                    self.dice.random() < 0.1,
                )
                ops.append(FailJobs((failure,)))
            elif roll < 0.95:
                ops.append(ReleaseJobs(held, self.dice.choice((0, 0, 4_000)), **self._throttle()))
            else:
                ops.append(AbortJobs(held, "why not"))
        if done:
            ops.append(CompleteJobs(tuple(done)))
        call = yield from self.call(*ops)
        if call.answer is None and self.dice.random() < 0.7:
            yield from self.call(*ops)

    # ── Those who interfere ──────────────────────────────────────────────────
    def cancel(self, pause_seconds: float) -> Flow[None]:
        """Cancel jobs wherever they are, those inside segments too."""
        while True:
            yield from self.pause(pause_seconds * 1.5)
            if self.book.keys:
                key = self.dice.choice(self.book.keys[-60:])
                call = yield from self.call(CancelJob(key))
                if call.answer and call.answer.outcomes[0].code == Code.NOT_FOUND:
                    yield from self.cancel_in_segment(key)
                yield from self.run_now(self.dice.choice(self.book.keys[-60:]))

    def run_now(self, key: bytes) -> Flow[None]:
        """Let a job be due wherever it is, with the span that it lay in and the one without it as evidence."""
        call, root = (yield from self.call(RunJobNow(key))), self.writer.root
        state = yield from self.head()
        if state is None or not call.answer or call.answer.outcomes[0].code != Code.NOT_FOUND:
            return
        leaf = segment_rewrite.marked(root, stage := StagingArea(root, state.seq, self.writer.machine))
        try:
            place = yield from segments.find(root, list(state.delayed.spans), key)
            cut = place and (yield from segment_rewrite.span_without(root, place.top, (key,), stage, leaf))
        except OsqueueError:
            return
        if place and cut and cut[1]:
            yield from self.call(RunJobNow(key, place.job, SpanSwap(place.top, cut[0])))

    def cancel_in_segment(self, key: bytes) -> Flow[None]:
        """Read the job where it lies, and cancel it with what was read as evidence."""
        state = yield from self.head()
        if state is None:
            return
        spans = [span for lane in state.lanes for span in lane.backlog.spans] + list(state.delayed.spans)
        try:
            place = yield from segments.find(self.writer.root, spans, key)
        except OsqueueError:
            return
        if place is not None:
            where = (place.top.name, place.offset, place.index, place.vector)
            yield from self.call(CancelJob(key, place.job, *where))

    def _throttle(self) -> dict[str, Any]:
        """What a worker may say of others like a job that it gives back."""
        if not self.time_limits or self.dice.random() < 0.5:
            return {}
        return {"pause_ms": self.dice.choice((300, 3_000)), "whole": self.dice.random() < 0.2}

    def operate(self, pause_seconds: float) -> Flow[None]:
        """Pause, resume, configure, redrive, sweep, and rewrite segments that hold cancelled jobs."""
        while True:
            yield from self.pause(pause_seconds * 3)
            roll = self.dice.random()
            if roll < 0.1:
                ends = self.dice.choice((-500, -4_000)) if self.time_limits else None
                yield from self.call(ChangeSettings(paused=True, paused_until_ms=ends))
                yield from self.pause(2.0)
                if ends is not None:  # by itself
                    continue
                while (yield from self.call(ChangeSettings(paused=False))).answer is None:
                    yield from self.pause(2.0)
            elif roll < 0.2:
                yield from self.call(ChangeSettings(backoff_base_ms=self.dice.choice((100, 1_000))))
            elif roll < 0.4:
                yield from self.call(RedriveJobs(self.dice.choice((1, 10)), self.dice.choice((1, 20))))
            elif roll < 0.7:
                # Two in one request, as the batches of one process may carry.
                yield from self.call(*[RunTimers(flush=self.dice.random() < 0.5) for _ in range(2)])
            elif self.groups and roll < 0.85:
                yield from self.call(self._change_of_groups())
            else:
                yield from self.rewrite()

    def _change_of_groups(self) -> ChangeSettings:
        """Other rates of all groups, or of one."""
        dice = self.dice
        if self.policies and dice.random() < 0.7:
            return self._policy()
        if self.fair and dice.random() < 0.7:
            return ChangeSettings(fair=dice.random() < 0.8, group_running=dice.choice((0, 0, 0, 2, 3)))
        if dice.random() < 0.5:
            rate = dice.choice(((1, 2_000), (3, 1_000), (1, 20_000), (0, 0)))
            return ChangeSettings(group_rate=rate, group_burst=dice.choice((0, 1, 3)))
        group, burst = f"g{dice.randrange(self.groups)}", dice.choice((None, AS_THE_QUEUE, 2))
        own = dice.choice((None, (0, 0), (1, 5_000), (5, 1_000)))
        running = dice.choice((None, AS_THE_QUEUE, AS_THE_QUEUE, 0, 1, 2))
        return ChangeSettings(groups=(GroupChange(group, running=running, rate=own, burst=burst),))

    def _policy(self) -> ChangeSettings:
        """What a group waits for, or that one of them waits, until somebody says otherwise."""
        if self.dice.random() < 0.5:
            group = f"g{self.dice.randrange(self.groups)}"
            return ChangeSettings(groups=(GroupChange(group, paused=self.dice.random() < 0.4),))
        return ChangeSettings(
            group_on_failure=self.dice.choice((HOLD, HOLD, "skip")),
            group_on_dead=self.dice.choice((STOP, STOP, "go_on")),
        )

    def rewrite(self) -> Flow[None]:
        """Settle tombstones: each segment that holds some gets another deletion vector."""
        state = yield from self.head()
        if state is None or not state.tombstones:
            return
        try:
            stage = StagingArea(self.writer.root, state.seq, self.writer.machine)
            ops = yield from segment_rewrite.settle_tombstones(self.writer.root, state, stage)
        except OsqueueError:
            return
        if ops:
            yield from self.call(*ops)

    def reap(self, pause_seconds: float) -> Flow[None]:
        """One pass of the reaper after the other."""
        while True:
            yield from self.pause(pause_seconds)
            yield from self.passes(1)

    def passes(self, count: int) -> Flow[bool]:
        """Passes of the reaper; did each of them end well?"""
        for _ in range(count):
            began = self.world.now
            reaper = Reaper(self.writer.queue, self.writer.machine, self.flows.moment, self.flows.stage)
            try:
                self.book.reaped += yield from self.run(_one_shard(reaper, self.shard))
            except OsqueueError as error:
                self.book.troubles[type(error).__name__] += 1
                repaired = isinstance(error, Damaged | Unknown) and (
                    self.ledger.repaired(began, self.world.now) or bool(self.invariants.truth.damaged)
                )
                if not (repaired or isinstance(error, Timeout | Unavailable | Throttled | NotFound)):
                    raise Violation(f"{self.name} was told {type(error).__name__}: {error}") from error
                return False
            self.book.passes += 1
        return True

    # ── The end ──────────────────────────────────────────────────────────────
    def reopen(self) -> Flow[None]:
        """Commit settings under which everything may start, and dead letters expire."""
        while (yield from self.call(self._open_again())).answer is None:
            yield Sleep(5.0)

    def _open_again(self) -> ChangeSettings:
        own = [
            GroupChange(f"g{at}", paused=False, running=AS_THE_QUEUE, rate=(0, 0), burst=AS_THE_QUEUE)
            for at in range(self.groups)
        ]
        return ChangeSettings(
            paused=False,
            dead_ttl_ms=0,
            max_running=0,
            rate=(0, 0),
            kinds_dropped=self.kinds,
            group_rate=(0, 0),
            groups=tuple(own),
        )

    def drain(self, empty: Callable[[], bool]) -> Flow[None]:
        """Finish everything: claim and complete, let dead letters expire, archive."""
        while not empty():
            if not (yield from self.work_once()):
                state = yield from self.head()
                if state is not None and _is_paused(state):  # by an operator's request that came late
                    yield from self.call(self._open_again())
                yield from self.passes(1)
                yield Sleep(10.0)

    def work_once(self) -> Flow[bool]:
        """Claim and complete some jobs; were there any?"""
        call = yield from self.call(ClaimJobs(50, self.name, 30_000))
        leases = call.answer.outcomes[0].leases if call.answer else ()
        if leases:
            yield from self.call(CompleteJobs(tuple(Completion(each.job.key, each.token) for each in leases)))
        return bool(leases)

    def tick(self, done: Callable[[], bool]) -> Flow[None]:
        """Commits and passes, so that time goes on for the collector."""
        for turn in count():
            if done():
                return
            yield from self.call(ChangeSettings(backoff_base_ms=500 + turn % 2))
            yield from self.passes(1)
            yield Sleep(10.0)


def _one_shard(reaper: Reaper, shard: int) -> QueueFlow[Reaped]:
    """A pass over one shard: each has its own clients here."""
    report = yield from reaper._try(reaper._shard(shard), Reaped())
    if reaper.troubles:
        raise reaper.troubles[0]
    return report


def _with(job: JobSpec, payload: StoredContent) -> JobSpec:
    return replace(job, payload=payload)


def _small(job: JobSpec) -> JobSpec:
    return _with(job, b"x") if isinstance(job.payload, BodyRef) else job


def _is_paused(state: State) -> bool:
    return state.settings.paused or any(row.paused for row in state.holds.values())
