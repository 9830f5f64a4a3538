"""The worker itself: one event loop that claims, reports and keeps leases, while handlers run.

    reporter  one turn after another: how jobs ended, and a claim for the free slots, in one commit
    leases    heartbeats for every job in hand, in one commit, at a third of the lease
              (both shard by shard where there are several, so that one without answers holds up no other)
    handlers  blocking ones in daemon threads, coroutines as tasks of this loop

The same loop serves a Queue (its calls run in threads) and an AsyncQueue (its calls are awaited).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import signal
import threading
from typing import Any

from .. import limits
from ..commit.effects import QueueFlow
from ..commit.retry import TURN
from ..core.failures import TIMED_OUT, timed_out_error
from ..errors import OsqueueError, Rejected, Timeout, Unavailable
from ..model import validation
from ..operations.claims import ClaimResult, GrantedLease, closed_until
from .handlers import Handlers, is_coroutine, perform, perform_async
from .heartbeats import keep_leases
from .job import AsyncWorkerJob, Signal, WorkerJob
from .logs import log_failure
from .outcomes import RunFailed, RunOutcome, RunReleased, Tally, log_text
from .reporter import Answered, Ended, ShardChoice, WorkerReporter, resulting_state
from .schedules import add_schedules
from .signals import listening
from .threads import DaemonThreads

CONCURRENCY_DEFAULT = 8
CONCURRENCY_MAX = limits.CLAIM_LIMIT_MAX
POLL_SECONDS_DEFAULT = 1.0  # so an idle worker sends at most 60 requests a minute, for each shard
POLL_SECONDS_LEAST = 0.01
POLL_SECONDS_MOST = 3_600.0
DRAIN_SECONDS_DEFAULT = 30.0  # how long running handlers may go on after a stop
DRAIN_SECONDS_MAX = 86_400.0
GIVE_BACK_DELAY_SECONDS = 5.0  # before a job whose payload could not be read is tried again
GIVE_BACK_SECONDS_MAX = 5.0  # and how long the queue may take after that to hear what became of the jobs
HANG_SECONDS = 5.0  # for which all handlers may be past their limits before the worker ends
STORE_THREADS_MAX = 32  # calls of a blocking queue at once
LIMITS = ("in_flight_limit", "running_limit", "rate_limited")  # reasons of a claim: there are jobs

log = logging.getLogger("osqueue.worker")


class Worker:
    """Works on one queue. ``q.run(…)`` is the short way to it; this class can also be stopped from elsewhere.

    ``concurrency`` jobs run at once. ``lease`` is how many seconds a job is ours without a heartbeat. ``poll`` is
    the longest pause between two looks into an empty queue. ``drain`` is how long a stop waits for handlers.
    ``until_empty`` ends when nothing can be claimed and nothing runs; jobs that wait for a later time stay.
    ``signals`` listens to SIGTERM and SIGINT where that is possible: in the main thread. ``traceback`` logs that of
    each attempt that fails, too.

    >>> Worker(q, concurrency=8).run()
    Tally(claimed=3, completed=3, ...)
    """

    def __init__(
        self,
        queue: Any,
        *,
        concurrency: int = CONCURRENCY_DEFAULT,
        name: str | None = None,
        lease: float = limits.LEASE_MS_DEFAULT / 1000,
        poll: float = POLL_SECONDS_DEFAULT,
        drain: float = DRAIN_SECONDS_DEFAULT,
        until_empty: bool = False,
        signals: bool = True,
        traceback: bool = False,
    ) -> None:
        self.queue = queue
        self.concurrency = validation.whole_number(concurrency, "concurrency", 1, CONCURRENCY_MAX)
        if name is not None:
            validation.text(name, "name", limits.WORKER_CHARS_MAX, 1)
        self.lease = validation.lease_ms(lease) / 1000
        self.poll = _seconds(poll, "poll", POLL_SECONDS_LEAST, POLL_SECONDS_MOST)
        self.drain = _seconds(drain, "drain", 0, DRAIN_SECONDS_MAX)
        self.until_empty = until_empty
        self.signals = signals
        self.traceback = traceback
        self.tally = Tally()
        self._handlers: Handlers = queue.handlers
        self._reporter = WorkerReporter(queue, name, self.lease, self._handlers.kinds)
        self._machine = queue.machine
        self._serving: asyncio.Task[Any] | None = None  # the task of serve()
        self._awaits = inspect.iscoroutinefunction(queue._run)
        self._store_threads = DaemonThreads("osqueue-store", STORE_THREADS_MAX)
        self._handler_threads = DaemonThreads("osqueue-handler", self.concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.RLock()  # stop() may come from a signal handler
        self._wake: asyncio.Event
        self._stopping = Signal()
        self._stop_at: float | None = None  # monotonic: when handlers have had their time
        self._running: dict[WorkerJob[Any], asyncio.Task[None] | None] = {}  # in the hands of a handler
        self._time_limits: dict[WorkerJob[Any], asyncio.TimerHandle] = {}  # of those that have one
        self._stuck: dict[WorkerJob[Any], asyncio.Task[None] | None] = {}  # past it, and not through yet
        self._hangs = False  # for too long, all of them
        self._ended: list[Ended] = []  # to be said to the queue
        self._waiter = queue._flows.work_waiter(self._handlers.kinds, self.poll)
        self._rest: asyncio.Task[None] | None = None  # after an empty claim, until one may find something
        self._rested_alone = False  # was nothing in hand when it began?
        self._turns: dict[ShardChoice, asyncio.Task[None]] = {}  # under way
        self._failures: dict[ShardChoice, int] = {}  # in a row
        self._turn_at: dict[ShardChoice, float] = {}  # monotonic: no turn before, after an error

    # ── From outside ─────────────────────────────────────────────────────────
    def run(self) -> Tally:
        """Work, blocking the calling thread; answers what was done."""
        if _in_a_loop():
            raise Rejected(
                "run: an event loop is running in this thread. Use AsyncQueue and await its run(), or a thread."
            )
        return asyncio.run(
            self.serve()
        )  # under no `except`, or that would be the context of handlers' errors

    def stop(self, now: bool = False) -> None:
        """Claim no more; end when the running handlers have, at the latest after ``drain`` seconds (or ``now``).

        May be called from any thread, or from a signal handler, also before the worker has begun.
        """
        end = self._machine.monotonic() + (0 if now else self.drain)
        self._stop_at = end if self._stop_at is None else min(end, self._stop_at)
        with self._lock:
            loop = self._loop
            if loop is not None:
                loop.call_soon_threadsafe(self._begin_to_stop)

    async def serve(self) -> Tally:
        """Work as a coroutine of the running loop; answers what was done."""
        self._wake = asyncio.Event()
        self._serving = asyncio.current_task()
        with self._lock:
            self._loop = asyncio.get_running_loop()
        if self._stop_at is not None:
            self._begin_to_stop()
        log.info("worker starts: queue %s, %d at once", self.queue.name, self.concurrency)
        leases = asyncio.create_task(keep_leases(self._running, self._reporter, self._call))
        reporter = asyncio.create_task(self._report_loop())
        adding = asyncio.create_task(add_schedules(self.queue, self._call))
        try:
            with listening(self._on_signal) if self.signals else contextlib.nullcontext():
                await self._until_done(reporter)
                await asyncio.wait({adding}, timeout=GIVE_BACK_SECONDS_MAX)
        except asyncio.CancelledError:
            self.stop(now=True)
            await self._until_done(reporter)
            raise
        finally:
            with self._lock:
                self._loop = None
            self._waiter.stop()  # its thread may end, too
            tasks = (leases, reporter, adding, *self._turns.values(), *([self._rest] if self._rest else []))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._give_back()
            if hanging := [task for task in self._stuck.values() if task is not None]:
                await asyncio.wait(hanging, timeout=GIVE_BACK_SECONDS_MAX)
            try:
                await self._last_words()
            finally:
                self._handler_threads.close()
                self._store_threads.close()
                if self._ended:
                    log.warning(
                        "worker ends: %d jobs could not be given back; their leases run out", len(self._ended)
                    )
        log.info("worker ends: %s", self.tally)
        if self._hangs:
            raise Timeout(
                f"all {self.concurrency} handlers hang past their time limits, and threads cannot be stopped. The"
                " worker has ended: start another process."
            )
        return self.tally

    # ── Stopping ─────────────────────────────────────────────────────────────
    def _on_signal(self, number: signal.Signals) -> None:
        """Drain at the first SIGTERM or SIGINT, end now at the second."""
        again = self._stop_at is not None
        waits = f"waiting for {len(self._running)} running jobs, up to {self.drain:g} s"
        log.info("%s: %s", number.name, "ending now" if again else waits)
        self.stop(now=again)

    def _begin_to_stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    async def _until_done(self, reporter: asyncio.Task[None]) -> None:
        """Wait for the reporter; leave it behind when the queue does not answer for long after a stop."""
        while not reporter.done():
            await asyncio.wait({reporter}, timeout=self._seconds_to(self._stop_at, GIVE_BACK_SECONDS_MAX))
            stop_at = self._stop_at
            if stop_at is not None and self._machine.monotonic() >= stop_at + GIVE_BACK_SECONDS_MAX:
                return
        await reporter

    async def _last_words(self) -> None:
        """Say what the reporter could not say any more, when it was cancelled together with everything else."""
        now = self._machine.monotonic()
        until = (now if self._stop_at is None else self._stop_at) + GIVE_BACK_SECONDS_MAX
        if self._ended and now < until:
            ended, self._ended = self._ended, []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - now):
                    await self._turn(None, ended, 0, alone=False)
        if self._awaits:  # then this loop tells the slow sinks, and may end with its worker
            await self.queue._event_queue.told(GIVE_BACK_SECONDS_MAX)

    def _seconds_to(self, moment: float | None, more: float = 0.0) -> float:
        longest = 1.0  # a stop may come meanwhile, and set another moment
        return (
            longest if moment is None else min(longest, max(0.0, moment + more - self._machine.monotonic()))
        )

    def _give_back(self) -> None:
        """Take every job from its handler: it goes back without using its attempt."""
        for job, task in list(self._running.items()):
            if not job.lease_lost:
                self._ended.append((job, RunReleased()))
                job.lease_lost.set()
            if task is not None:
                task.cancel()
        self._running.clear()
        for limit in self._time_limits.values():
            limit.cancel()
        self._time_limits.clear()

    # ── Reporting ────────────────────────────────────────────────────────────
    async def _report_loop(self) -> None:
        while True:
            self._wake.clear()
            for place in [place for place, turn in self._turns.items() if turn.done()]:
                self._turns.pop(place).result()
            now = self._machine.monotonic()
            if self._stop_at is not None and now >= self._stop_at:
                self._give_back()
            if self._stop_at is not None and not (self._running or self._ended or self._turns):
                return
            self._end_rest()
            self._begin_turns(now)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: until Python 3.12 it swallows a cancel that comes together with what it waits for.
                async with asyncio.timeout(self._idle_seconds(now)):
                    await self._wake.wait()

    def _begin_turns(self, now: float) -> None:
        """One at each place that has something to hear, and one that claims: alone, or together with endings."""
        places: dict[ShardChoice, list[Ended]] = {}
        for each in self._ended:
            places.setdefault(self._reporter.place(each[0]), []).append(each)
        turns = {place: ended for place, ended in places.items() if self._is_free(place, now)}
        self._ended = [each for place, ended in places.items() if place not in turns for each in ended]
        claims_at = self._reporter.claims_at()
        limit = self._wanted(bool(turns)) if self._is_free(claims_at, now) else 0
        alone = not (places or self._running or self._turns)
        if limit:
            turns.setdefault(claims_at, [])
        for place, ended in turns.items():
            turn = self._turn(place, ended, limit if place == claims_at else 0, alone)
            self._turns[place] = task = asyncio.create_task(turn)
            task.add_done_callback(lambda _: self._wake.set())

    def _is_free(self, place: ShardChoice, now: float) -> bool:
        return place not in self._turns and now >= self._turn_at.get(place, 0.0)

    def _wanted(self, ending: bool) -> int:
        """How many jobs to claim now. A claim beside endings is free: it rides in their commit."""
        if self._stop_at is not None or (self._rest is not None and not ending):
            return 0
        return self._free_hands()

    def _free_hands(self) -> int:
        return self.concurrency - len(self._running) - len(self._stuck)

    def _idle_seconds(self, now: float) -> float | None:
        """Until something may have to be done, if nobody wakes the reporter before, as the end of a turn does."""
        moments = [self._stop_at] if self._stop_at is not None and now < self._stop_at else []
        claims_at = self._reporter.claims_at()
        free = self._free_hands() > 0 and claims_at not in self._turns
        if self._stop_at is None and free and self._rest is None:
            moments.append(self._turn_at.get(claims_at, 0.0))
        places = {self._reporter.place(job) for job, _ in self._ended} - self._turns.keys()
        moments.extend(self._turn_at.get(place, 0.0) for place in places)
        return max(0.0, min(moments) - now) if moments else None

    async def _turn(self, place: ShardChoice, ended: list[Ended], limit: int, alone: bool) -> None:
        """Say how jobs ended, claim new ones. ``alone``: nothing is in hand."""
        try:
            answers, claimed = await self._call(self._reporter.turn(ended, limit))
        except Exception as error:  # noqa: BLE001 - whatever the store does, the worker goes on
            answers, claimed = [error] * len(ended), error if limit else None
        except asyncio.CancelledError:
            self._ended[:0] = ended
            raise
        problem = self._hear(ended, answers)
        if isinstance(claimed, Exception):
            problem = claimed
        elif claimed is not None:
            self._take(claimed, alone)
        if problem is None:
            if self._failures.pop(place, None):  # as loud as the loss: who saw that one sees this
                log.warning("the queue can be reached again")
        else:
            self._back_off(place, problem)

    def _hear(self, ended: list[Ended], answers: list[Answered]) -> Exception | None:
        """Count what became of the endings; keep what has to be said again."""
        problem: Exception | None = None
        for (job, ending), done in zip(ended, answers, strict=True):
            if isinstance(done, Rejected):
                log.error("job %s: its ending was rejected: %s", job.job_id, done)
                self.tally.lost += 1
            elif isinstance(done, Exception):
                problem = done
                self._ended.append((job, ending))
            elif (
                name := resulting_state(ending, done)
            ) == "stale":  # it was staged too long ago, or nobody can tell
                self._ended.append((job, ending))
            elif name == "lost":
                self._count_lost(job)
            else:
                setattr(self.tally, name, getattr(self.tally, name) + 1)
                if isinstance(ending, RunFailed) and name in ("failing", "failed"):
                    log_failure(job, ending, name, self.traceback)
        return problem

    def _count_lost(self, job: WorkerJob[Any]) -> None:
        if job.timed_out:  # the queue keeps the job's limit as well, and was faster
            if job.attempt < job.max_attempts:
                self.tally.failing += 1
            else:
                self.tally.failed += 1
            return
        self.tally.lost += 1
        log.warning(
            "job %s: the lease of attempt %d was lost; its result is discarded", job.job_id, job.attempt
        )

    def _back_off(self, place: ShardChoice, error: Exception) -> None:
        self._failures[place] = self._failures.get(place, 0) + 1
        pause = TURN.pause_after(self._failures[place], self._machine)
        self._turn_at[place] = self._machine.monotonic() + pause
        log.warning("the queue cannot be reached (%s); again in %.1f s", log_text(error), pause)

    # ── Claims ───────────────────────────────────────────────────────────────
    def _take(self, claimed: ClaimResult, alone: bool) -> None:
        """Start what was claimed; rest when there was nothing. ``alone``: nothing was in hand."""
        if not claimed.leases:
            if self.until_empty and alone and claimed.reason not in LIMITS:
                self._stop_at = self._machine.monotonic()
            self._waiter.empty += 1
            self._waiter.closed_until = closed_until(claimed, self._machine.monotonic())
            if self._rest is None and self._stop_at is None:
                self._waiter.stopped = False
                self._rested_alone = alone
                self._rest = asyncio.create_task(self._call(self.queue._flows.rest(self._waiter)))
                self._rest.add_done_callback(lambda _: self._wake.set())
            return
        self._waiter.empty = 0
        self.tally.claimed += len(claimed.leases)
        for granted in claimed.leases:
            self._start(granted)

    def _end_rest(self) -> None:
        """Claim again once the rest is over. Without a free hand, nobody has to look for jobs."""
        if self._rest is None:
            return
        if self._rest.done():
            rest, self._rest = self._rest, None
            try:
                rest.result()
            except OsqueueError as error:
                self._back_off(self._reporter.claims_at(), error)
        elif self._stop_at is not None or self._free_hands() <= 0 or self._may_be_empty():
            self._waiter.stop()

    def _may_be_empty(self) -> bool:
        """Is it time for a claim that tells whether the work is done? The last one was made with jobs in hand."""
        in_hand = self._running or self._ended or self._turns
        return self.until_empty and not self._rested_alone and not in_hand

    def _start(self, granted: GrantedLease) -> None:
        handler = self._handlers.of(granted.lease.job.kind)
        awaits = is_coroutine(handler)
        kind = AsyncWorkerJob if awaits else WorkerJob
        job: WorkerJob[Any] = kind(self.queue.name, granted, self._machine, self._stopping)
        if self._stop_at is not None:  # it stopped while the claim was under way
            self._ended.append((job, RunReleased()))
            return
        codec = self.queue.codec
        try:
            job.payload = codec.decode_payload(granted.payload, granted.lease.job.codec)
        except (Unavailable, Timeout):  # the store's trouble, not the job's: no attempt is used
            self._ended.append((job, RunReleased(GIVE_BACK_DELAY_SECONDS)))
            return
        except OsqueueError as error:
            self._ended.append((job, RunFailed(validation.error_details(error))))
            return
        loop = asyncio.get_running_loop()
        seconds = self._handlers.run_within(job)
        if seconds is not None:
            left = max(0.0, seconds - job.ran_seconds)
            self._time_limits[job] = loop.call_later(left, self._time_out, job, seconds)
        if awaits:
            job._beat = lambda: self._call(self._reporter.beat_one(job))
            self._running[job] = asyncio.create_task(self._await(handler, job))
            return

        def beat() -> None:
            asyncio.run_coroutine_threadsafe(self._call(self._reporter.beat_one(job)), loop).result()

        def run() -> None:
            ending = perform(handler, job)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for this job any more
                loop.call_soon_threadsafe(self._end, job, ending)

        job._beat = beat
        self._running[job] = None
        self._handler_threads.submit(run)

    async def _await(self, handler: Any, job: WorkerJob[Any]) -> None:
        self._end(job, await perform_async(handler, job, self._serving))

    def _end(self, job: WorkerJob[Any], ending: RunOutcome) -> None:
        """A handler is through."""
        if job in self._stuck:
            del self._stuck[job]
            log.warning("job %s: its handler has ended, %.1f s after it began", job.job_id, job.ran_seconds)
            self._wake.set()
        if job not in self._running:
            return  # it was given back meanwhile
        del self._running[job]
        if (limit := self._time_limits.pop(job, None)) is not None:
            limit.cancel()
        if job.lease_lost:
            self._count_lost(job)
        else:
            self._ended.append((job, ending))
        self._wake.set()

    def _time_out(self, job: WorkerJob[Any], seconds: float) -> None:
        """An attempt has run for too long: it has failed, and its handler is told to stop."""
        self._time_limits.pop(job, None)
        if job not in self._running:
            return
        task = self._running.pop(job)
        error = timed_out_error(seconds)
        log.warning("job %s: attempt %d/%d %s", job.job_id, job.attempt, job.max_attempts, error)
        if not job.lease_lost:
            self._ended.append((job, RunFailed(validation.StoredError(error, TIMED_OUT))))
        job.timed_out.set()
        job.lease_lost.set()
        self._stuck[job] = task  # it keeps its slot until it has ended
        if task is not None:
            task.cancel()
        else:
            self.tally.stuck += 1
        if len(self._stuck) == self.concurrency:  # those that do as they are told need a moment
            asyncio.get_running_loop().call_later(HANG_SECONDS, self._end_if_all_hang, set(self._stuck))
        self._wake.set()

    def _end_if_all_hang(self, jobs: set[WorkerJob[Any]]) -> None:
        """Threads cannot be stopped: where none of them came back there is nobody left to work."""
        if self._stuck.keys() == jobs:
            self._hangs = True
            self.stop(now=True)

    # ── Calls to the queue ───────────────────────────────────────────────────
    async def _call(self, flow: QueueFlow[Any]) -> Any:
        if self._awaits:
            return await self.queue._run(flow)
        return await asyncio.wrap_future(self._store_threads.submit(lambda: self.queue._run(flow)))


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _seconds(value: Any, field: str, least: float, most: float) -> float:
    return validation.milliseconds(value, field, round(least * 1000), round(most * 1000)) / 1000
