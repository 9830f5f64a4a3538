"""The jobs in a worker's hand, and the calls of handlers that they are of: one job each, or a batch.

A call has a slot of its worker from its first job until its handler is through. Its jobs stay apart in everything
else: each has its lease, its time, its signals and its ending, so one that is lost or over spoils no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from .. import limits
from ..core.failures import TIMED_OUT, timed_out_error
from ..model import validation
from ..operations.claims import GrantedLease
from ..threads import DaemonThreads
from .handlers import HandlerRule, Handlers, is_coroutine, perform, perform_async
from .heartbeats import FlowRunner
from .job import AsyncWorkerJob, Signal, WorkerJob
from .opening import open_content
from .outcomes import RunFailed, RunOutcome, RunReleased, Tally
from .reporter import Ended, WorkerReporter, count_lost

CONCURRENCY_MAX = limits.CLAIM_LIMIT_MAX
HANG_SECONDS = 5.0  # for which handlers may be past their limits before the worker ends

log = logging.getLogger("osqueue.worker")

OnHandled = Callable[
    [WorkerJob[Any], float], object
]  # a job whose handler is through, and the seconds it ran


class HandlerCall:
    """One call of a handler, from its first job until the handler has returned."""

    def __init__(self, rule: HandlerRule) -> None:
        self.rule = rule
        self.jobs: list[WorkerJob[Any]] = []
        self.task: asyncio.Task[None] | None = None  # of a coroutine
        self.flush: asyncio.TimerHandle | None = None  # when it begins with what there is; None: it has begun
        self._placed = rule.places is not None

    def give_place(self) -> None:
        """The handler is through, or was never called. Not before its endings can go with the next claim."""
        if self._placed and self.rule.places is not None:
            self._placed = False
            self.rule.places.give(1)


class JobsInHand:
    """What a worker has claimed and not reported yet."""

    def __init__(
        self,
        queue: Any,
        concurrency: int,
        reporter: WorkerReporter,
        call: FlowRunner,
        wake: Callable[[], object],
        hang: Callable[[str, bool], object],
    ) -> None:
        self._queue = queue
        self._handlers: Handlers = queue.handlers
        self._machine = queue.machine
        self._concurrency = concurrency
        self._reporter = reporter
        self._call = call
        self._wake = wake
        self._hang = hang  # told which handlers hang for too long, and whether that is all there may be
        self._threads = DaemonThreads("osqueue-handler", concurrency)
        self._time_limits: dict[WorkerJob[Any], asyncio.TimerHandle] = {}  # of those that have one
        self.tally = Tally()
        self.stopping = Signal()
        self.program: asyncio.Task[Any] | None = None  # the task that the handlers work for
        self.running: dict[WorkerJob[Any], HandlerCall] = {}  # in hand, with the call that it is of
        self.calls: set[HandlerCall] = set()  # each has a slot until its handler is through
        self.stuck: set[HandlerCall] = set()  # those past their limits, with none of their jobs in hand
        self.ended: list[Ended] = []  # to be said to the queue
        self.on_handled: list[OnHandled] = []

    def opened(self, granted: GrantedLease, rule: HandlerRule, stopped: bool) -> WorkerJob[Any] | None:
        """A job with its payload; None: it ends, or goes back, without its handler."""
        kind = AsyncWorkerJob if is_coroutine(rule.function) else WorkerJob
        job: WorkerJob[Any] = kind(self._queue.name, granted, self._machine, self.stopping)
        if stopped:  # while the claim was under way
            self.ended.append((job, RunReleased()))
            return None
        ending = open_content(job, granted, self._queue.codec)
        if ending is not None:
            self.ended.append((job, ending))
            return None
        return job

    # ── Calls of handlers ────────────────────────────────────────────────────
    def hold(self, job: WorkerJob[Any], call: HandlerCall) -> None:
        """A job is in hand: its lease is kept and its time runs, also while it waits for others."""
        call.jobs.append(job)
        self.running[job] = call
        loop = asyncio.get_running_loop()
        seconds = self._handlers.run_within(job)
        if seconds is not None:
            left = max(0.0, seconds - job.ran_seconds)
            self._time_limits[job] = loop.call_later(left, self._time_out, job, seconds)
        if isinstance(job, AsyncWorkerJob):
            job._beat = lambda: self._call(self._reporter.beat_one(job))
            return

        def beat() -> None:
            asyncio.run_coroutine_threadsafe(self._call(self._reporter.beat_one(job)), loop).result()

        job._beat = beat

    def begin(self, call: HandlerCall) -> None:
        """Call the handler, with those of its jobs that are still ours."""
        if call.flush is not None:
            call.flush.cancel()
            call.flush = None
        for job in [job for job in call.jobs if job.lease_lost]:  # while it waited for others
            if job in self.running:
                self._forget(job)
                count_lost(job, self.tally)
        call.jobs = [job for job in call.jobs if job in self.running]
        if not call.jobs:
            self._leave(call)
        elif is_coroutine(call.rule.function):
            call.task = asyncio.create_task(self._await(call))
        else:
            loop = asyncio.get_running_loop()

            def run() -> None:
                endings = perform(call.rule, call.jobs)
                try:
                    loop.call_soon_threadsafe(self._end, call, endings)
                except RuntimeError:  # the loop is closed: nobody waits for this any more
                    call.give_place()

            self._threads.submit(run)

    async def _await(self, call: HandlerCall) -> None:
        self._end(call, await perform_async(call.rule, call.jobs, self.program))

    def _end(self, call: HandlerCall, endings: list[RunOutcome]) -> None:
        """A handler is through. What was given back meanwhile, or timed out, has had its ending."""
        if call in self.stuck:
            for job in call.jobs:
                log.warning(
                    "job %s: its handler has ended, %.1f s after it began", job.job_id, job.ran_seconds
                )
        self._leave(call)
        for job, ending in zip(call.jobs, endings, strict=True):
            for tell in self.on_handled:
                tell(job, job.ran_seconds)
            if job not in self.running:
                continue
            self._forget(job)
            if job.lease_lost:
                count_lost(job, self.tally)
            else:
                self.ended.append((job, ending))

    def _leave(self, call: HandlerCall) -> None:
        """The slot of a call is free."""
        if call.flush is not None:
            call.flush.cancel()
            call.flush = None
        self.calls.discard(call)
        self.stuck.discard(call)
        call.give_place()
        self._wake()

    def _forget(self, job: WorkerJob[Any]) -> None:
        """A job is in hand no more."""
        self.running.pop(job, None)
        if (limit := self._time_limits.pop(job, None)) is not None:
            limit.cancel()

    def _time_out(self, job: WorkerJob[Any], seconds: float) -> None:
        """An attempt has run for too long: it has failed, and its handler is told to stop."""
        self._time_limits.pop(job, None)
        call = self.running.pop(job, None)
        if call is None:
            return
        error = timed_out_error(seconds)
        log.warning("job %s: attempt %d/%d %s", job.job_id, job.attempt, job.max_attempts, error)
        if not job.lease_lost:
            self.ended.append((job, RunFailed(validation.StoredError(error, TIMED_OUT))))
        job.timed_out.set()
        job.lease_lost.set()
        self._wake()
        if call.flush is None and not any(each in self.running for each in call.jobs):
            self._be_stuck(call)

    def _be_stuck(self, call: HandlerCall) -> None:
        """No job of a call is ours any more. It keeps its slot until it has ended."""
        self.stuck.add(call)
        if call.task is not None:
            call.task.cancel()
        else:
            self.tally.stuck += 1
        places = call.rule.places
        same = {each for each in self.stuck if each.rule is call.rule}
        later = asyncio.get_running_loop().call_later  # those that do as they are told need a moment
        if len(self.stuck) == self._concurrency:
            later(HANG_SECONDS, self._look_for_hanging, set(self.stuck), f"all {self._concurrency} handlers")
        elif places is not None and len(same) == places.most:
            name = getattr(call.rule.function, "__qualname__", "handler")
            later(HANG_SECONDS, self._look_for_hanging, same, f"all {places.most} calls of {name}")

    def _look_for_hanging(self, calls: set[HandlerCall], which: str) -> None:
        """Threads cannot be stopped: where none of them came back there is nobody left to work."""
        if calls <= self.stuck:
            self._hang(which, len(calls) == self._concurrency)

    # ── The end ──────────────────────────────────────────────────────────────
    def begin_to_stop(self) -> None:
        """Tell the handlers, and give back what waits for others of its batch."""
        self.stopping.set()
        for call in [call for call in self.calls if call.flush is not None]:
            for job in call.jobs:
                if job in self.running:
                    self._release(job)
            self._leave(call)

    def give_back(self) -> None:
        """Take every job from its handler: it goes back without using its attempt."""
        for job in list(self.running):
            self._release(job)
        for call in self.calls - self.stuck:
            if call.task is not None:
                call.task.cancel()
        for limit in self._time_limits.values():
            limit.cancel()
        self._time_limits.clear()

    def _release(self, job: WorkerJob[Any]) -> None:
        self._forget(job)
        if not job.lease_lost:
            self.ended.append((job, RunReleased()))
            job.lease_lost.set()

    def close(self) -> None:
        """Let the threads of handlers end."""
        self._threads.close()
