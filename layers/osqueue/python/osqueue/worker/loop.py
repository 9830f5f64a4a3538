"""The worker itself: one event loop that claims, reports and keeps leases, while handlers run.

    reporter  one turn after another: how jobs ended, and claims for the free slots, in one commit
    lines     what is claimed together, and when: the kinds of plain handlers, and each with a rule of its own
    leases    heartbeats for every job in hand, in one commit, at a third of the lease
              (both shard by shard where there are several, so that one without answers holds up no other)
    handlers  blocking ones in daemon threads, coroutines as tasks of this loop
    registry  a word once a minute that it is there, beside all that (``registration``)

The same loop serves a Queue (its calls run in threads) and an AsyncQueue (its calls are awaited).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import signal
import threading
from typing import Any

from .. import limits
from ..commit.effects import QueueFlow
from ..commit.retry import TURN
from ..commit.window import LEASE_SHARE
from ..errors import OsqueueError, Rejected, Timeout
from ..model import validation
from ..operations.claims import ClaimResult
from ..signals import has_no_effect
from ..threads import DaemonThreads
from .handlers import Handlers
from .heartbeats import keep_leases
from .in_hand import CONCURRENCY_MAX, HandlerCall, JobsInHand, OnHandled
from .lines import LOOKS_PER_WAIT, ClaimLine, ClaimLines, LineClaim
from .outcomes import Tally, log_text
from .registration import WorkerRegistration
from .reporter import Answered, Ended, ShardChoice, WorkerReporter, hear
from .schedules import add_schedules
from .signals import listening

CONCURRENCY_DEFAULT = 8
POLL_SECONDS_DEFAULT = 1.0  # so an idle worker sends at most 60 requests a minute, for each shard
POLL_SECONDS_LEAST = 0.01
POLL_SECONDS_MOST = 3_600.0
DRAIN_SECONDS_DEFAULT = 30.0  # how long running handlers may go on after a stop
DRAIN_SECONDS_MAX = 86_400.0
GIVE_BACK_SECONDS_MAX = 5.0  # after a stop, how long the queue may take to hear what became of the jobs
STORE_THREADS_MAX = 32  # calls of a blocking queue at once

log = logging.getLogger("osqueue.worker")


class Worker:
    """Works on one queue. ``q.run(…)`` is the short way to it; this class can also be stopped from elsewhere.

    ``concurrency`` jobs run at once. ``lease`` is how many seconds a job is ours without a heartbeat. ``poll`` is
    the longest pause between two looks into an empty queue. ``drain`` is how long a stop waits for handlers.
    ``until_empty`` ends when nothing can be claimed and nothing runs; jobs that wait for a later time stay.
    ``signals`` stops at SIGTERM, SIGINT and SIGHUP where that is possible: in the main thread. ``traceback`` logs that
    of each attempt that fails, too.

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
        self._handlers: Handlers = queue.handlers
        self._reporter = WorkerReporter(queue, name, self.lease)
        self._machine = queue.machine
        self._awaits = inspect.iscoroutinefunction(queue._run)
        self._store_threads = DaemonThreads("osqueue-store", STORE_THREADS_MAX)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.RLock()  # stop() may come from a signal handler
        self._wake: asyncio.Event
        self._stop_at: float | None = None  # monotonic: when handlers have had their time
        self._hangs = ""  # for too long: which handlers
        self._hand = JobsInHand(
            queue, self.concurrency, self._reporter, self._call, self._wake_up, self._end_hanging
        )
        self.tally = self._hand.tally
        self._registration = WorkerRegistration(
            queue, self._reporter.name, self.concurrency, self._hand.running, self._call
        )
        self._lines = ClaimLines(self._handlers, queue._flows, self.poll, self._call, self._wake_up)
        self._turns: dict[ShardChoice, asyncio.Task[None]] = {}  # under way
        self._failures: dict[ShardChoice, int] = {}  # in a row
        self._turn_at: dict[ShardChoice, float] = {}  # monotonic: no turn before, after an error
        self._gather_s = min(
            queue.window, LEASE_SHARE * self.lease
        )  # from one turn to the next, while jobs run
        self._turn_began: dict[ShardChoice, float] = {}  # monotonic: the latest one

    # ── What it does ─────────────────────────────────────────────────────────
    @property
    def in_hand(self) -> int:
        """How many jobs it holds a lease of."""
        return len(self._hand.running)

    def on_handled(self, tell: OnHandled) -> None:
        """Have ``tell`` called with each job whose handler is through, and the seconds it ran. It must not raise."""
        self._hand.on_handled.append(tell)

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
        """Work as a coroutine of the running loop; return what was done.

        Raises what the program's own signal handler raised meanwhile.
        """
        with listening(self._on_signal) if self.signals else contextlib.nullcontext():
            return await self._serve()

    async def _serve(self) -> Tally:
        self._wake = asyncio.Event()
        self._hand.program = asyncio.current_task()
        with self._lock:
            self._loop = asyncio.get_running_loop()
        if self._stop_at is not None:
            self._begin_to_stop()
        for places in self._lines.places:
            places.tell(self._on_places)
        log.info("worker starts: queue %s, %d at once", self.queue.name, self.concurrency)
        leases = asyncio.create_task(keep_leases(self._hand.running, self._reporter, self._call))
        reporter = asyncio.create_task(self._report_loop())
        adding = asyncio.create_task(add_schedules(self.queue, self._call))
        registration = asyncio.create_task(self._registration.run())
        try:
            await self._until_done(reporter)
            await asyncio.wait({adding}, timeout=GIVE_BACK_SECONDS_MAX)
        except asyncio.CancelledError:
            self.stop(now=True)
            await self._until_done(reporter)
            raise
        finally:
            with self._lock:
                self._loop = None
            for places in self._lines.places:
                places.forget(self._on_places)
            self._registration.end()
            tasks = (leases, reporter, adding, *self._turns.values(), *self._lines.stop())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._hand.give_back()
            if hanging := [call.task for call in self._hand.stuck if call.task is not None]:
                await asyncio.wait(hanging, timeout=GIVE_BACK_SECONDS_MAX)
            try:
                await self._last_words()
                seconds = min(GIVE_BACK_SECONDS_MAX, self._seconds_to_speak())
                await asyncio.wait({registration}, timeout=max(0.0, seconds))
            finally:
                registration.cancel()
                await asyncio.gather(registration, return_exceptions=True)
                self._hand.close()
                self._store_threads.close()
                self.queue._suspend_window(False)
                if self._hand.ended:
                    log.warning(
                        "worker ends: %d jobs could not be given back; their leases run out",
                        len(self._hand.ended),
                    )
        log.info("worker ends: %s", self.tally)
        if self._hangs:
            raise Timeout(
                f"{self._hangs} hang past their time limits, and threads cannot be stopped. The worker has ended: start"
                " another process."
            )
        return self.tally

    # ── Stopping ─────────────────────────────────────────────────────────────
    def _on_signal(self, number: signal.Signals) -> None:
        """Drain at the first SIGTERM, SIGINT or SIGHUP; end now at a second SIGTERM or SIGINT."""
        again = self._stop_at is not None
        if has_no_effect(number, ending=again):
            return
        waits = f"waiting for {len(self._hand.running)} running jobs, up to {self.drain:g} s"
        log.info("%s: %s", number.name, "ending now" if again else waits)
        self.stop(now=again)

    def _begin_to_stop(self) -> None:
        self.queue._suspend_window(True)
        self._hand.begin_to_stop()
        self._registration.drain()
        self._wake.set()

    def _wake_up(self) -> None:
        """There is something to do: from the thread of the loop."""
        self._wake.set()

    def _end_hanging(self, which: str, all_: bool) -> None:
        """Handlers hang for too long. If that is all there are, nobody is left to work."""
        if not self._hangs:
            self._hangs = which
            self.stop(now=all_)

    def _on_places(self) -> None:
        """A handler with so many calls at once has room, perhaps by the end of another worker's: from any thread."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake_up)

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
        seconds = self._seconds_to_speak()
        if self._hand.ended and seconds > 0:
            ended, self._hand.ended = self._hand.ended, []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._turn(None, ended, [], alone=False)
        if self._awaits:  # then this loop tells the slow sinks, and may end with its worker
            await self.queue._event_queue.told(GIVE_BACK_SECONDS_MAX)

    def _seconds_to_speak(self) -> float:
        """How long the queue may still take to hear something, now that all is over."""
        now: float = self._machine.monotonic()
        return (now if self._stop_at is None else self._stop_at) + GIVE_BACK_SECONDS_MAX - now

    def _seconds_to(self, moment: float | None, more: float = 0.0) -> float:
        longest = 1.0  # a stop may come meanwhile, and set another moment
        return (
            longest if moment is None else min(longest, max(0.0, moment + more - self._machine.monotonic()))
        )

    # ── Reporting ────────────────────────────────────────────────────────────
    async def _report_loop(self) -> None:
        while True:
            self._wake.clear()
            for place in [place for place, turn in self._turns.items() if turn.done()]:
                self._turns.pop(place).result()
            now = self._machine.monotonic()
            if self._stop_at is not None and now >= self._stop_at:
                self._hand.give_back()
            if self._stop_at is not None and not (self._hand.running or self._hand.ended or self._turns):
                return
            self._end_rests()
            self._begin_turns(now)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: until Python 3.12 it swallows a cancel that comes together with what it waits for.
                async with asyncio.timeout(self._idle_seconds(now)):
                    await self._wake.wait()

    def _begin_turns(self, now: float) -> None:
        """One at each place that has something to hear, and one that claims: alone, or together with endings."""
        places: dict[ShardChoice, list[Ended]] = {}
        for each in self._hand.ended:
            places.setdefault(self._reporter.place(each[0]), []).append(each)
        turns = {place: ended for place, ended in places.items() if self._is_free(place, now)}
        self._hand.ended = [each for place, ended in places.items() if place not in turns for each in ended]
        claims_at = self._reporter.claims_at()
        free = claims_at in turns or self._is_free(claims_at, now)
        claims = self._claims(now, bool(turns)) if free else []
        alone = not (places or self._hand.running or self._turns)
        if claims:
            turns.setdefault(claims_at, [])
        for place, ended in turns.items():
            turn = self._turn(place, ended, claims if place == claims_at else [], alone)
            self._turn_began[place] = now
            self._turns[place] = task = asyncio.create_task(turn)
            task.add_done_callback(lambda _: self._wake.set())

    def _is_free(self, place: ShardChoice, now: float) -> bool:
        return place not in self._turns and now >= self._free_at(place)

    def _free_at(self, place: ShardChoice) -> float:
        """Return when the next turn may begin: with a window not at once, as running jobs may end meanwhile."""
        at = self._turn_at.get(place, 0.0)
        if self._gather_s and self._hand.running and self._stop_at is None:
            gathered = self._turn_began.get(place, 0.0) + self._gather_s
            at = max(at, min(gathered, self._report_by(place)))
        return at

    def _report_by(self, place: ShardChoice) -> float:
        """Return when a turn has to report endings: each waits for at most LEASE_SHARE of what is left of its lease.

        A lease ends with the job's ``run_within`` at the latest, and no heartbeat moves that.
        """
        held = [job.seconds_left for job, _ in self._hand.ended if self._reporter.place(job) == place]
        ends_at: float = self._machine.monotonic() + min(held, default=math.inf)
        kept_s: float = self._gather_s * (1 / LEASE_SHARE - 1)
        return ends_at - kept_s

    def _claims(self, now: float, ending: bool) -> list[LineClaim]:
        """What to claim now. Beside endings a claim costs little: it rides in their commit, at least in their call."""
        return [] if self._stop_at is not None else self._lines.deal(self._free_hands(), now, ending)

    def _free_hands(self) -> int:
        return self.concurrency - len(self._hand.calls)

    def _idle_seconds(self, now: float) -> float | None:
        """Until something may have to be done, if nobody wakes the reporter before, as the end of a turn does."""
        moments = [self._stop_at] if self._stop_at is not None and now < self._stop_at else []
        claims_at = self._reporter.claims_at()
        if self._stop_at is None and claims_at not in self._turns:
            at = self._lines.next_at(self._free_hands(), self._free_at(claims_at))
            moments.extend([] if at is None else [at])
        places = {self._reporter.place(job) for job, _ in self._hand.ended} - self._turns.keys()
        moments.extend(map(self._free_at, places))
        return max(0.0, min(moments) - now) if moments else None

    async def _turn(
        self, place: ShardChoice, ended: list[Ended], claims: list[LineClaim], alone: bool
    ) -> None:
        """Say how jobs ended, claim new ones. ``alone``: nothing is in hand."""
        found: list[ClaimResult | Exception]
        try:
            wishes = [(each.limit, each.line.kinds) for each in claims]
            answers, found = await self._call(self._reporter.turn(ended, wishes))
        except Exception as error:  # noqa: BLE001 - whatever the store does, the worker goes on
            answers, found = [error] * len(ended), [error] * len(claims)
        except asyncio.CancelledError:
            self._hand.ended[:0] = ended
            for claim in claims:
                claim.line.give(claim.hands)
            raise
        problem = self._hear(ended, answers)
        alone = alone and not any(isinstance(each, ClaimResult) and each.leases for each in found)
        for claim, claimed in zip(claims, found, strict=True):
            if isinstance(claimed, Exception):
                problem = claimed
                claim.line.give(claim.hands)
            else:
                self._take(claim, claimed, alone)
            claim.line.claiming = False
            if claim.line.is_late:
                self._begin_what_there_is(claim.line)
        if problem is None:
            if self._failures.pop(place, None):  # as loud as the loss: who saw that one sees this
                log.warning("the queue can be reached again")
        else:
            self._back_off(place, problem)

    def _hear(self, ended: list[Ended], answers: list[Answered]) -> Exception | None:
        """Count what became of the endings; keep what has to be said again."""
        again, problem = hear(ended, answers, self.tally, self.traceback)
        self._hand.ended += again
        return problem

    def _back_off(self, place: ShardChoice, error: Exception) -> None:
        self._failures[place] = self._failures.get(place, 0) + 1
        pause = TURN.pause_after(self._failures[place], self._machine)
        self._turn_at[place] = self._machine.monotonic() + pause
        log.warning("the queue cannot be reached (%s); again in %.1f s", log_text(error), pause)

    # ── Claims ───────────────────────────────────────────────────────────────
    def _take(self, claim: LineClaim, claimed: ClaimResult, alone: bool) -> None:
        """Start what was claimed; rest when there was nothing. ``alone``: nothing was in hand."""
        line = claim.line
        self._lines.hear(line, claimed, alone, self._machine.monotonic())
        if not claimed.leases:
            line.give(claim.hands)
            if self.until_empty and self._lines.are_over:
                self._stop_at = self._machine.monotonic()
            elif self._stop_at is None:
                self._lines.begin_rest(line, alone)
            return
        self.tally.claimed += len(claimed.leases)
        hands = claim.hands
        for granted in claimed.leases:
            rule = self._handlers.rule(granted.lease.job.kind)
            job = self._hand.opened(granted, rule, self._stop_at is not None)
            if job is None:
                continue
            call = line.collecting
            if call is None:
                hands -= 1
                call = HandlerCall(rule)
                self._hand.calls.add(call)
            self._hand.hold(job, call)
            line.collecting = call if len(call.jobs) < (rule.batch or 1) else None
            if line.collecting is None:
                self._hand.begin(call)
        line.give(hands)
        self._wait_for_more(line)

    def _wait_for_more(self, line: ClaimLine) -> None:
        """Let a batch begin that is not full, now or in a while."""
        call = line.collecting
        if call is None or call not in self._hand.calls:  # it was given back, as a stop began
            line.collecting, line.not_before = None, 0.0
            return
        wait = call.rule.within
        if not wait:
            line.is_late = True
            return
        line.not_before = self._machine.monotonic() + wait / LOOKS_PER_WAIT
        if call.flush is None:
            for job in call.jobs:  # none spends more than half of its time in waiting
                seconds = self._handlers.run_within(job)
                wait = wait if seconds is None else min(wait, seconds / 2)
            call.flush = asyncio.get_running_loop().call_later(wait, self._begin_what_there_is, line)

    def _begin_what_there_is(self, line: ClaimLine) -> None:
        line.is_late = line.claiming
        if line.is_late:  # what comes with the claim's answer comes along
            return
        call, line.collecting, line.not_before = line.collecting, None, 0.0
        if call is not None and call in self._hand.calls:
            self._hand.begin(call)

    def _end_rests(self) -> None:
        """Claim again once a rest is over. Without a free hand, nobody has to look for jobs."""
        in_hand = self._hand.running or self._hand.ended or self._turns
        idle = self.until_empty and not in_hand  # time for a claim that tells whether the work is done
        for rest in self._lines.end_rests(self._free_hands(), self._stop_at is not None, idle):
            try:
                rest.result()
            except OsqueueError as error:
                self._back_off(self._reporter.claims_at(), error)

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
