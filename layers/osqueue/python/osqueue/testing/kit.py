"""Running the jobs of a queue one by one, on the caller's thread: steps that block or are awaited alike."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from .. import limits
from ..commit.effects import QueueFlow
from ..core import state as stored
from ..errors import Rejected
from ..operations.claims import GrantedLease
from ..queue.asynchronous import AsyncQueue
from ..worker.handlers import is_coroutine, perform, perform_async
from ..worker.job import AsyncWorkerJob, WorkerJob
from ..worker.outcomes import RunCompleted, RunFailed, RunOutcome, describe
from ..worker.reporter import WorkerReporter, resulting_state
from .clock import Clock
from .waiting import waiting_jobs

RUNS_PER_DRAIN_MAX = 10_000  # a handler that snoozes or enqueues for ever is found out

R = TypeVar("R")
Steps = Generator[Any, Any, R]  # yields flows of the queue, and coroutines: what blocks or has to be awaited


class Ran(Struct, frozen=True):
    """One run of a handler and what became of the job."""

    job_id: str
    kind: str | None
    payload: Any
    attempt: int
    outcome: str  # completed, failing (to be retried), failed, cancelled, released (snoozed) or lost
    result: Any = None
    error: BaseException | None = None  # what the handler raised


class Kit:
    """What the blocking and the async kit share: everything but how a step is taken."""

    def __init__(self, queue: Any, clock: Clock) -> None:
        self.queue = queue
        self.clock = clock
        self.ran: list[Ran] = []  # every run so far, in order
        self._plain_run = queue._run
        self._awaits = isinstance(queue, AsyncQueue)
        self._running = 0  # handlers at work
        self._inline = False
        self._raise_errors = False  # inline
        self._dirty = False  # inline: something became claimable
        queue.__dict__["_await"] = lambda effect: self._take(self._pass_time(effect.seconds))

    def _next(self) -> Steps[Ran | None]:
        """Claim one job, run its handler, report what became of it."""
        handlers = self.queue.handlers
        reporter = WorkerReporter(self.queue, None, limits.LEASE_MS_DEFAULT / 1000, handlers.kinds)
        _, claimed = yield reporter.turn([], 1)
        if isinstance(claimed, Exception):
            raise claimed
        if not claimed.leases:
            return None
        granted = claimed.leases[0]
        handler = handlers.of(granted.lease.job.kind)
        job: WorkerJob[Any] = (AsyncWorkerJob if is_coroutine(handler) else WorkerJob)(
            self.queue.name, granted, self.clock
        )
        self._running += 1
        try:
            ending = yield from self._perform(reporter, handler, job, granted)
        finally:
            self._running -= 1
        (done,), _ = yield reporter.turn([(job, ending)], 0)
        if isinstance(done, Exception):
            raise done
        outcome = resulting_state(ending, done)
        result = ending.result if isinstance(ending, RunCompleted) and outcome == "completed" else None
        ran = Ran(job.job_id, job.kind, job.payload, job.attempt, outcome, result, job.error)
        self.ran.append(ran)
        if job.error is not None and not isinstance(job.error, Exception):
            raise job.error  # Ctrl-C, pytest.fail() and their like are not for the queue
        return ran

    def _perform(
        self, reporter: WorkerReporter, handler: Any, job: WorkerJob[Any], granted: GrantedLease
    ) -> Steps[RunOutcome]:
        codec, run = self.queue.codec, self._plain_run
        try:
            job.payload = codec.decode(granted.payload, granted.lease.job.codec, codec.payload_type)
        except Rejected as error:
            job.error = error
            return RunFailed(describe(error))
        if is_coroutine(handler):

            async def beat() -> None:
                await run(reporter.beat_one(job)) if self._awaits else run(reporter.beat_one(job))

            job._beat = beat
            ending: RunOutcome = yield perform_async(handler, job)
            return ending
        if self._awaits:
            loop = asyncio.get_running_loop()
            job._beat = lambda: asyncio.run_coroutine_threadsafe(run(reporter.beat_one(job)), loop).result()
            ended: RunOutcome = yield asyncio.to_thread(perform, handler, job)
            return ended
        job._beat = lambda: run(reporter.beat_one(job))
        return perform(handler, job)

    def _drain(self, advance: bool = True, raise_errors: bool = False) -> Steps[list[Ran]]:
        """Run jobs until none is left; returns the runs, in order.

        With ``advance`` the clock moves on to each retry and each scheduled job; without, those stay.
        ``raise_errors`` raises the first exception of a handler.
        """
        found: list[Ran] = []
        while True:
            ran = yield from self._next()
            if ran is None:
                due_ms = (yield self._due_ms()) if advance else None
                if due_ms is None:
                    return found
                self.clock.advance((due_ms - self.clock.now_ms()) / 1000)
                continue
            found.append(ran)
            if raise_errors and ran.error is not None:
                raise ran.error
            if len(found) >= RUNS_PER_DRAIN_MAX:
                raise AssertionError(
                    f"{RUNS_PER_DRAIN_MAX:,} runs and still jobs: does a handler snooze or enqueue for ever? The last"
                    f" was job {ran.job_id} (kind {ran.kind!r}), {ran.outcome}."
                )

    def _due_ms(self) -> QueueFlow[int | None]:
        """When the next job becomes due, if any waits."""
        found: int | None = None
        for state, job in (yield from waiting_jobs(self.queue)):
            if state != stored.QUEUED and job.due_ms > self.clock.now_ms():
                found = job.due_ms if found is None else min(found, job.due_ms)
        return found

    # ── Inline ───────────────────────────────────────────────────────────────
    def run_inline(self, raise_errors: bool) -> None:
        """Let every call that made a job claimable run it before it returns."""
        self._inline, self._raise_errors = True, raise_errors

        def on_events(events: Sequence[stored.Transition]) -> None:
            if any(event.target == stored.QUEUED for event in events):
                self._dirty = True

        def run(flow: QueueFlow[Any]) -> Any:
            value = self._plain_run(flow)
            self._take(self._whatever_came())
            return value

        async def run_async(flow: QueueFlow[Any]) -> Any:
            value = await self._plain_run(flow)
            await self._take(self._whatever_came())
            return value

        self.queue._observe(on_events)
        fields = self.queue.__dict__
        fields["_run"] = run_async if self._awaits else run

    def _whatever_came(self) -> Steps[None]:
        """Drain, unless this is a call that a handler makes: whoever runs the handler sees its jobs."""
        while self._dirty and not self._running:
            self._dirty = False
            yield from self._drain(advance=False, raise_errors=self._raise_errors)

    # ── Waiting for a result ─────────────────────────────────────────────────
    def _pass_time(self, seconds: float) -> Steps[None]:
        """Somebody waits for a job: inline mode runs what is claimable, also for a handler; else the clock moves on."""
        if self._inline:
            self._dirty = False
            if (yield from self._drain(advance=False, raise_errors=self._raise_errors)):
                return
        self.clock.advance(seconds)
        if self._awaits:
            yield asyncio.sleep(0)  # other tasks may run handlers

    def _take(self, steps: Steps[R]) -> Any:
        raise NotImplementedError


class Manual(Kit):
    """The kit of a Queue."""

    def run_next(self) -> Ran | None:
        """Run the next claimable job; None when there is none."""
        return self._take(self._next())

    def drain(self, advance: bool = True, raise_errors: bool = False) -> list[Ran]:
        """Run jobs until none is left, retries and scheduled ones included; returns the runs, in order.

        ``advance=False`` leaves the clock alone, and with it whatever is due later. ``raise_errors`` raises the
        first exception of a handler.
        """
        return self._take(self._drain(advance, raise_errors))

    def _take(self, steps: Steps[R]) -> R:
        take: Any = steps.send
        given: Any = None
        while True:
            try:
                step = take(given)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            try:
                given = _finish(step) if inspect.iscoroutine(step) else self._plain_run(step)
                take = steps.send
            except Exception as error:  # noqa: BLE001 - it belongs to the steps
                given, take = error, steps.throw


class AsyncManual(Kit):
    """The kit of an AsyncQueue."""

    async def run_next(self) -> Ran | None:
        """Run the next claimable job; None when there is none."""
        return await self._take(self._next())

    async def drain(self, advance: bool = True, raise_errors: bool = False) -> list[Ran]:
        """Run jobs until none is left, as ``Manual.drain``."""
        return await self._take(self._drain(advance, raise_errors))

    async def _take(self, steps: Steps[R]) -> R:
        take: Any = steps.send
        given: Any = None
        while True:
            try:
                step = take(given)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            try:
                given = await (step if inspect.iscoroutine(step) else self._plain_run(step))
                take = steps.send
            except Exception as error:  # noqa: BLE001 - it belongs to the steps
                given, take = error, steps.throw


def _finish(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end, also where a loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    found: list[R] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(coroutine)))
    thread.start()
    thread.join()
    return found[0]
