"""Running the jobs of a queue one by one, on the caller's thread: steps that block or are awaited alike."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from .. import limits
from ..commit.effects import QueueFlow
from ..core import state as stored
from ..errors import Rejected
from ..model.job import Done
from ..operations.claims import GrantedLease
from ..queue.asynchronous import AsyncQueue
from ..worker.handlers import HandlerRule, is_coroutine, perform, perform_async
from ..worker.job import AsyncWorkerJob, WorkerJob
from ..worker.outcomes import RunCompleted, RunFailed, RunOutcome, describe
from ..worker.reporter import WorkerReporter, resulting_state
from .clock import Clock
from .consumers import LocalConsumers
from .waiting import waiting_jobs

RUNS_PER_DRAIN_MAX = 10_000  # a handler that snoozes or enqueues for ever is found out

R = TypeVar("R")
# Yields coroutines of handlers, and calls of a queue without arguments: each blocks, or answers what is to be awaited.
Steps = Generator[Any, Any, R]


class Ran(Struct, frozen=True):
    """One run of a handler and what became of the job."""

    job_id: str
    kind: str | None
    payload: Any
    attempt: int
    outcome: str  # completed, failing (to be retried), failed, cancelled, released (snoozed) or lost
    result: Any = None
    error: BaseException | None = None  # what the handler raised


class Runner:
    """A queue object whose handlers are run, all in one way: blocking, or awaited."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self.run = queue._run  # as it was before anything was wrapped around it

    def asks(self, flow: QueueFlow[Any]) -> Callable[[], Any]:
        """A flow of this queue as a step."""
        return lambda: self.run(flow)


class Kit:
    """What the blocking and the async kit share: everything but how a step is taken.

    ``queues`` are the objects of the test, the first of which is ``queue``; ``runners`` run what is enqueued by any of
    them.
    """

    def __init__(
        self, queues: Sequence[Any], runners: Sequence[Any], clock: Clock, consumers: LocalConsumers
    ) -> None:
        self.queue = queues[0]
        self.clock = clock
        self.ran: list[Ran] = []  # every run so far, in order
        self._queues = queues
        self._runners = [Runner(each) for each in runners]
        self._consumers = consumers
        self._awaits = isinstance(self.queue, AsyncQueue)
        self._running = 0  # handlers at work
        self._opens: list[int] = []  # when what held the latest claims lets something start
        self._inline = False
        self._raise_errors = False  # inline
        self._dirty = False  # inline: something became claimable
        for each in queues:
            each.__dict__["_await"] = self._waiting(isinstance(each, AsyncQueue))

    def _with_handlers(self) -> list[Runner]:
        """Those that can run a job; raises Rejected when no queue has a handler."""
        found = [each for each in self._runners if each.queue.handlers]
        if not found and not self._consumers:
            _ = self.queue.handlers.kinds  # which says what to do
        return found

    def _next(self, advance: bool = False) -> Steps[list[Ran]]:
        """Claim one job, or a batch, run its handler, report what became of it; answers the jobs that were run.

        With ``advance`` the clock moves on while a batch waits for more jobs.
        """
        self._opens = []
        for runner in self._with_handlers():
            ran = yield from self._next_of(runner, advance)
            if ran:
                return ran
        return self._next_wake() if self._consumers else []

    def _next_wake(self) -> list[Ran]:
        """Invoke consumers until one of them has run a job; answers the jobs that it ran."""
        ran: list[Ran] = []
        errors: list[BaseException] = []

        def on_ended(job: WorkerJob[Any], ending: RunOutcome, done: Done) -> None:
            ran.append(_ran(job, ending, done))
            if job.error is not None and not isinstance(job.error, Exception):
                errors.append(job.error)

        self._running += 1
        try:
            self._consumers.tick()
            while not ran and (wake := self._consumers.next_wake()) is not None:
                self._consumers.deliver(wake, on_ended)
        finally:
            self._running -= 1
        self.ran.extend(ran)
        for error in errors:
            raise error  # Ctrl-C, pytest.fail() and their like are not for the queue
        return ran

    def _next_of(self, runner: Runner, advance: bool) -> Steps[list[Ran]]:
        handlers = runner.queue.handlers
        longest = max((rule.within for rule, _ in handlers.lines() if rule is not None), default=0)
        found = yield from self._claim(runner, 1, handlers.kinds, longest)
        if not found:
            return []
        rule = handlers.rule(found[0].lease.job.kind)
        if rule.batch is not None:
            found += yield from self._collect(runner, rule, found[0].lease.job.kind, advance)
        kind: Any = AsyncWorkerJob if is_coroutine(rule.function) else WorkerJob
        reporter = WorkerReporter(runner.queue, None, limits.LEASE_MS_DEFAULT / 1000)
        jobs: list[WorkerJob[Any]] = [kind(runner.queue.name, granted, self.clock) for granted in found]
        ended: list[tuple[WorkerJob[Any], RunOutcome]] = []
        whole = []
        for job, granted in zip(jobs, found, strict=True):
            refused = self._open(runner, reporter, job, granted)
            if refused is None:
                whole.append(job)
            else:
                ended.append((job, refused))
        self._running += 1
        try:
            if whole:
                endings = yield from self._perform(rule, whole)
                ended.extend(zip(whole, endings, strict=True))
        finally:
            self._running -= 1
        answers, _ = yield runner.asks(reporter.turn(ended, ()))
        ran = []
        for (job, ending), done in zip(ended, answers, strict=True):
            if isinstance(done, Exception):
                raise done
            ran.append(_ran(job, ending, done))
        self.ran.extend(ran)
        for job, _ in ended:
            if job.error is not None and not isinstance(job.error, Exception):
                raise job.error  # Ctrl-C, pytest.fail() and their like are not for the queue
        return ran

    def _claim(
        self, runner: Runner, limit: int, kinds: Sequence[str] | None, within: float = 0
    ) -> Steps[list[GrantedLease]]:
        reporter = WorkerReporter(runner.queue, None, limits.LEASE_MS_DEFAULT / 1000 + within)
        _, (claimed,) = yield runner.asks(reporter.turn((), [(limit, kinds)]))
        if isinstance(claimed, Exception):
            raise claimed
        if not claimed.leases and claimed.retry_after is not None:
            self._opens.append(self.clock.now_ms() + math.ceil(claimed.retry_after * 1000))
        return list(claimed.leases)

    def _collect(
        self, runner: Runner, rule: HandlerRule, kind: str, advance: bool
    ) -> Steps[list[GrantedLease]]:
        """More jobs for the batch of a first one: those that wait, and those that come while it does."""
        found: list[GrantedLease] = []
        only = None if runner.queue.handlers.kinds is None else (kind,)
        until_ms = self.clock.now_ms() + round(rule.within * 1000)
        while len(found) + 1 < (rule.batch or 1):
            more = yield from self._claim(runner, (rule.batch or 1) - 1 - len(found), only, rule.within)
            found += more
            if more:
                continue
            if not advance or self.clock.now_ms() >= until_ms:
                break
            due_ms = yield from self._due_ms()
            end_ms = until_ms if due_ms is None else min(due_ms, until_ms)
            self.clock.advance((end_ms - self.clock.now_ms()) / 1000)
        return found

    def _open(
        self, runner: Runner, reporter: WorkerReporter, job: WorkerJob[Any], granted: GrantedLease
    ) -> RunOutcome | None:
        """Give a job its payload and its heartbeat; answers its ending where that cannot be."""
        codec, run = runner.queue.codec, runner.run
        try:
            job.payload = codec.decode(granted.payload, granted.lease.job.codec, codec.payload_type)
            job.input = granted.input_by(codec, job.payload)
        except Rejected as error:
            job.error = error
            return RunFailed(describe(error))
        if isinstance(job, AsyncWorkerJob):

            async def beat() -> None:
                await run(reporter.beat_one(job)) if self._awaits else run(reporter.beat_one(job))

            job._beat = beat
        elif self._awaits:
            loop = asyncio.get_running_loop()
            job._beat = lambda: asyncio.run_coroutine_threadsafe(run(reporter.beat_one(job)), loop).result()
        else:
            job._beat = lambda: run(reporter.beat_one(job))
        return None

    def _perform(self, rule: HandlerRule, jobs: Sequence[WorkerJob[Any]]) -> Steps[list[RunOutcome]]:
        if is_coroutine(rule.function):
            awaited: list[RunOutcome] = yield perform_async(rule, jobs)
            return awaited
        if self._awaits:
            ended: list[RunOutcome] = yield asyncio.to_thread(perform, rule, jobs)
            return ended
        return perform(rule, jobs)

    def _drain(self, advance: bool = True, raise_errors: bool = False) -> Steps[list[Ran]]:
        """Run jobs until none is left; returns the runs, in order.

        With ``advance`` the clock moves on to each retry and each scheduled job, to the next start that a rate allows,
        and to the end of a pause that has one; without, those stay.
        ``raise_errors`` raises the first exception of a handler.
        """
        found: list[Ran] = []
        while True:
            ran = yield from self._next(advance)
            if not ran:
                due_ms = (yield from self._due_ms()) if advance else None
                if due_ms is None:
                    return found
                self.clock.advance((due_ms - self.clock.now_ms()) / 1000)
                continue
            found.extend(ran)
            for each in ran if raise_errors else ():
                if each.error is not None:
                    raise each.error
            if len(found) >= RUNS_PER_DRAIN_MAX:
                raise AssertionError(
                    f"{RUNS_PER_DRAIN_MAX:,} runs and still jobs: does a handler snooze or enqueue for ever? The last"
                    f" was job {ran[-1].job_id} (kind {ran[-1].kind!r}), {ran[-1].outcome}."
                )

    def _due_ms(self) -> Steps[int | None]:
        """When the next job becomes due, or may start by its rate or as a pause ends, if any waits."""
        due = [*self._opens]
        for runner in self._with_handlers():
            waiting = yield runner.asks(waiting_jobs(runner.queue))
            due += [job.due_ms for state, job in waiting if state != stored.QUEUED]
        if self._consumers:
            due += self._consumers.due_times()
        return min((each for each in due if each > self.clock.now_ms()), default=None)

    # ── Inline ───────────────────────────────────────────────────────────────
    def run_inline(self, raise_errors: bool) -> None:
        """Let every call that made a job claimable run it before it returns."""
        self._inline, self._raise_errors = True, raise_errors

        def on_events(events: Sequence[stored.Transition]) -> None:
            if any(event.target == stored.QUEUED for event in events):
                self._dirty = True

        for each in {
            id(each): each for each in (*self._queues, *(one.queue for one in self._runners))
        }.values():
            each._observe(on_events)
        for each in self._queues:
            awaited = isinstance(each, AsyncQueue)
            each.__dict__["_run"] = (
                self._running_async(each._run) if awaited else self._running_all(each._run)
            )

    def _running_all(self, plain: Callable[[QueueFlow[Any]], Any]) -> Callable[[QueueFlow[Any]], Any]:
        def run(flow: QueueFlow[Any]) -> Any:
            value = plain(flow)
            self._take(self._whatever_came())
            return value

        return run

    def _running_async(self, plain: Callable[[QueueFlow[Any]], Any]) -> Callable[[QueueFlow[Any]], Any]:
        async def run(flow: QueueFlow[Any]) -> Any:
            value = await plain(flow)
            await _awaited(self._take(self._whatever_came()))
            return value

        return run

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

    def _waiting(self, awaited: bool) -> Callable[[Any], Any]:
        """What a queue object does in place of waiting for news."""

        async def wait(effect: Any) -> None:
            await _awaited(self._take(self._pass_time(effect.seconds)))
            await asyncio.sleep(0)  # other tasks may run handlers

        def block(effect: Any) -> None:
            if self._awaits:  # of a blocking object among those of an event loop: nothing can be awaited here
                self.clock.advance(effect.seconds)
            else:
                self._take(self._pass_time(effect.seconds))

        return wait if awaited else block

    def _take(self, steps: Steps[R]) -> Any:
        raise NotImplementedError


class Manual(Kit):
    """The kit of a Queue."""

    def run_next(self) -> Ran | None:
        """Run the next claimable job; None when there is none. Of a batch it answers the first job."""
        return next(iter(self._take(self._next())), None)

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
                given = _finish(step) if inspect.iscoroutine(step) else step()
                take = steps.send
            except Exception as error:  # noqa: BLE001 - it belongs to the steps
                given, take = error, steps.throw


class AsyncManual(Kit):
    """The kit of an AsyncQueue."""

    async def run_next(self) -> Ran | None:
        """Run the next claimable job; None when there is none. Of a batch it answers the first job."""
        return next(iter(await self._take(self._next())), None)

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
                given = await (step if inspect.iscoroutine(step) else step())
                take = steps.send
            except Exception as error:  # noqa: BLE001 - it belongs to the steps
                given, take = error, steps.throw


def _ran(job: WorkerJob[Any], ending: RunOutcome, done: Done) -> Ran:
    outcome = resulting_state(ending, done)
    result = ending.result if isinstance(ending, RunCompleted) and outcome == "completed" else None
    return Ran(job.job_id, job.kind, job.payload, job.attempt, outcome, result, job.error)


async def _awaited(value: Any) -> Any:
    """What a kit answers, of whichever kind it is."""
    return await value if inspect.iscoroutine(value) else value


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
