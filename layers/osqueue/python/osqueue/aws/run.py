"""One invocation of a consumer: it takes up its ticket, and works until there is nothing to do or no time left.

    the invocation's thread    calls the handler, with ``threads`` - 1 others beside it
    a thread of its own        everything else, so a handler may take as long as it likes: leases, limits, turns

A *turn* is one commit: how jobs ended, a claim for more, and heartbeats where they are due. It is taken when all jobs
in hand have ended, or ``GATHER_SECONDS`` after the first of them ended while a thread had nothing to do, and at every
third of the lease. The ticket is given back by the claim that finds nothing, or that wants nothing because the
invocation's time is nearly over. Where jobs wait, that commit grants another, and so brings its own successor.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from ..commit.retry import TURN
from ..core.failures import TIMED_OUT, timed_out_error
from ..core.settings import ConsumerSettings
from ..errors import OsqueueError, Throttled, Timeout, Unavailable
from ..model.job import Done
from ..model.validation import StoredError
from ..operations.claims import ClaimResult
from ..operations.consumers import SOON, TICKET_LOST
from ..worker.handlers import Handlers, perform
from ..worker.job import Signal, WorkerJob
from ..worker.opening import open_content
from ..worker.outcomes import RunFailed, RunOutcome, RunReleased, Tally, log_text
from ..worker.reporter import Ended, count_lost, hear
from .reporter import TicketReporter, TurnWish

GATHER_SECONDS = 0.25  # for which endings wait for others before they are said
RESERVE_SECONDS = 20.0  # of an invocation's time, below which it claims no more; or twice its longest batch
NAP_MS = 2_000  # for which the last one out waits for a job that is about to start
SPARE_SECONDS = 5.0  # before its end handlers are told to stop, and what has not begun goes back
LAST_SECONDS = 1.5  # before its end attempts that still run have failed, so nobody waits for their leases
BEATS_PER_LEASE = 3
LEASE_MARGIN = 0.1  # of a lease: that long before its end nobody trusts it any more
HANG_SECONDS = 5.0  # for which all handlers may be past their jobs' limits before the invocation gives up
LOOK_SECONDS = 1.0  # at most between two looks at all of this

log = logging.getLogger("osqueue.consumers")

OnEnded = Callable[[WorkerJob[Any], RunOutcome, Done], object]


class InvocationTime(Protocol):
    """What is read of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        """Until the invocation is stopped."""
        ...


class JobCall:
    """One call of the handler."""

    def __init__(self, jobs: list[WorkerJob[Any]]) -> None:
        self.jobs = jobs
        self.began = 0.0  # monotonic


class ConsumerRun:
    """What one invocation does, by ``work``."""

    def __init__(
        self,
        queue: Any,
        reporter: TicketReporter,
        settings: ConsumerSettings,
        handlers: Handlers,
        context: InvocationTime,
        *,
        threads: int = 1,
        batch: int | None = None,
        on_ended: OnEnded | None = None,
    ) -> None:
        self.tally = Tally()
        self._queue = queue
        self._machine = queue.machine
        self._reporter = reporter
        self._interval = settings.lease_ms / 1000 / BEATS_PER_LEASE
        self._margin = settings.lease_ms / 1000 * LEASE_MARGIN
        self._handlers = handlers
        self._context = context
        self._threads = threads
        self._most = max(settings.batch if batch is None else batch, threads)  # jobs in hand
        self._on_ended = on_ended
        self._stopping = Signal()
        self._calls: SimpleQueue[JobCall | None] = SimpleQueue()  # for the threads; None: the end
        self._inbox: SimpleQueue[tuple[JobCall, list[RunOutcome]]] = SimpleQueue()  # from them
        self._running: dict[WorkerJob[Any], JobCall] = {}  # in hand, begun or not
        self._waiting: deque[JobCall] = deque()  # not begun
        self._begun: set[JobCall] = set()
        self._ended: list[Ended] = []  # to be said
        self._ended_at: float | None = None  # monotonic: the first of them, while a thread had nothing to do
        self._has_ticket = True
        self._closing = False
        self._failures = 0
        self._not_before = -math.inf  # monotonic: no turn before, after one that failed
        self._batch_at: float | None = None  # monotonic: when the jobs in hand began to be claimed
        self._longest_batch = self._longest_call = 0.0
        self._hanging_since: float | None = None
        self._error: BaseException | None = None
        self._total = self._left()

    def work(self) -> Tally:
        """Take up the ticket and work; answers what was done. Raises what no repetition mends."""
        self._turn(TurnWish(self._most, nap_ms=NAP_MS))
        if self._is_over:
            return self.tally
        control = _thread_of(self._controlled, "osqueue-consumer")
        others = [_thread_of(self._serve, f"osqueue-handler-{number}") for number in range(1, self._threads)]
        for each in (control, *others):
            each.start()
        self._serve()
        control.join()
        if self._error is not None:
            raise self._error
        return self.tally

    # ── The threads that call the handler ────────────────────────────────────
    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            rule = self._handlers.rule(None)
            self._inbox.put((call, perform(rule, call.jobs)))

    # ── The thread that does everything else ─────────────────────────────────
    def _controlled(self) -> None:
        try:
            self._control()
        except BaseException as error:  # noqa: BLE001 - raised on the invocation's thread
            self._error = error
        finally:
            for _ in range(self._threads):
                self._calls.put(None)

    def _control(self) -> None:
        while not self._is_over:
            self._begin_calls()
            self._listen(self._wait_seconds())
            self._look_at_leases()
            self._look_at_time()
            now = self._machine.monotonic()
            if self._closing:
                with suppress(OsqueueError):
                    self._turn(TurnWish(0 if self._has_ticket else None))
                if self._ended:
                    log.warning("%d endings could not be said; their leases run out", len(self._ended))
                return
            if now >= self._not_before and (wish := self._wish(now)) is not None:
                self._turn(wish)

    @property
    def _is_over(self) -> bool:
        return not (self._has_ticket or self._running or self._ended)

    def _left(self) -> float:
        return self._context.get_remaining_time_in_millis() / 1000

    def _begin_calls(self) -> None:
        """Give calls to the threads that have nothing to do, as long as there is time for them."""
        while self._waiting and len(self._begun) < self._threads:
            if self._longest_call and self._left() < max(2 * self._longest_call, self._share(SPARE_SECONDS)):
                self._give_back_waiting()
                return
            call = self._waiting.popleft()
            for job in [job for job in call.jobs if job.lease_lost and job in self._running]:
                del self._running[job]
                count_lost(job, self.tally)
            call.jobs = [job for job in call.jobs if job in self._running]
            if call.jobs:
                call.began = self._machine.monotonic()
                self._begun.add(call)
                self._calls.put(call)

    def _give_back_waiting(self) -> None:
        for call in self._waiting:
            for job in call.jobs:
                if self._running.pop(job, None) is not None and not job.lease_lost:
                    self._end(job, RunReleased())
        self._waiting.clear()

    def _listen(self, seconds: float) -> None:
        """Hear which calls are through, waiting so long for the first."""
        with suppress(Empty):
            self._hear(*self._inbox.get(timeout=max(seconds, 0.001)))
            while True:
                self._hear(*self._inbox.get_nowait())

    def _hear(self, call: JobCall, endings: list[RunOutcome]) -> None:
        self._begun.discard(call)
        self._longest_call = max(self._longest_call, self._machine.monotonic() - call.began, 0.001)
        for job, ending in zip(call.jobs, endings, strict=True):
            if self._running.pop(job, None) is None:
                continue  # it timed out, and has had its ending
            if job.lease_lost:
                count_lost(job, self.tally)
            else:
                self._end(job, ending)

    def _end(self, job: WorkerJob[Any], ending: RunOutcome) -> None:
        self._ended.append((job, ending))
        if self._ended_at is None and not self._waiting:
            self._ended_at = self._machine.monotonic()

    # ── Leases and limits ────────────────────────────────────────────────────
    def _look_at_leases(self) -> None:
        for job in list(self._running):
            seconds = self._handlers.run_within(job)
            if seconds is not None and job.ran_seconds >= seconds:
                self._time_out(job, timed_out_error(seconds))
            elif not job.lease_lost and job.seconds_left <= self._margin:
                log.warning("job %s: its lease ends and no heartbeat got through", job.job_id)
                job.lease_lost.set()

    def _look_at_time(self) -> None:
        """Tell handlers to stop as the end comes near, and end what cannot be waited for."""
        left = self._left()
        if left <= self._share(SPARE_SECONDS):
            self._stopping.set()
            self._give_back_waiting()
        if left <= self._share(LAST_SECONDS):
            for job in list(self._running):
                self._time_out(job, f"{TIMED_OUT}: the invocation was over, after {self._total:.0f} s")
            self._closing = True
        hanging = len(self._begun) == self._threads and not any(
            job in self._running for call in self._begun for job in call.jobs
        )
        if not hanging:
            self._hanging_since = None
        elif self._hanging_since is None:
            self._hanging_since = self._machine.monotonic()
        elif self._machine.monotonic() - self._hanging_since >= HANG_SECONDS:
            log.warning("all %d handlers go on past the limits of their jobs", self._threads)
            self._give_back_waiting()
            self._closing = True

    def _share(self, seconds: float) -> float:
        """Of a short invocation's time no more than a quarter of it is spent on its end."""
        return min(seconds, self._total * seconds / SPARE_SECONDS / 4)

    def _time_out(self, job: WorkerJob[Any], error: str) -> None:
        """An attempt has run for too long: it has failed, and its handler is told to stop."""
        del self._running[job]
        log.warning("job %s: attempt %d/%d %s", job.job_id, job.attempt, job.max_attempts, error)
        if not job.lease_lost:
            self._end(job, RunFailed(StoredError(error, TIMED_OUT)))
        job.timed_out.set()
        job.lease_lost.set()

    # ── Turns ────────────────────────────────────────────────────────────────
    def _wish(self, now: float) -> TurnWish | None:
        """What to say now; None: nothing."""
        longest = max(self._longest_batch, 0.0 if self._batch_at is None else now - self._batch_at)
        has_time = self._left() >= max(RESERVE_SECONDS, 2 * longest)
        idle = not self._waiting and len(self._begun) < self._threads
        if not self._running:
            if not self._has_ticket or not idle:
                return TurnWish(None) if self._ended else None
            return TurnWish(self._most, nap_ms=NAP_MS) if has_time else TurnWish(0)
        gathered = self._ended_at is not None and now >= self._ended_at + GATHER_SECONDS
        if not gathered and not self._is_beat_due():
            return None
        room = self._most - len(self._running)
        if self._has_ticket and has_time and idle and room > 0:
            return TurnWish(room, busy=True)
        return TurnWish(None)

    def _is_beat_due(self) -> bool:
        return any(job.beat_age >= self._interval for job in self._running if not job.lease_lost)

    def _wait_seconds(self) -> float:
        """Until something has to be looked at, if no call ends before."""
        now: float = self._machine.monotonic()
        if not self._running:
            hanging = len(self._begun) == self._threads and not self._ended
            return LOOK_SECONDS if hanging else min(max(0.0, self._not_before - now), LOOK_SECONDS)
        moments: list[float] = [self._left() - self._share(LAST_SECONDS), LOOK_SECONDS]
        if self._ended_at is not None:
            moments.append(self._ended_at + GATHER_SECONDS - now)
        for job in self._running:
            moments += [self._interval - job.beat_age, job.seconds_left]
        soonest: float = max(0.0, self._not_before - now, min(moments))
        return min(soonest, LOOK_SECONDS)

    def _turn(self, wish: TurnWish) -> None:
        """Say what there is to say, and hear the answers."""
        now = self._machine.monotonic()
        if not self._running:
            if self._batch_at is not None:
                self._longest_batch = max(self._longest_batch, now - self._batch_at)
            self._batch_at = now
        ended, self._ended, self._ended_at = self._ended, [], None
        # Those halfway to their own heartbeat come along, so that all soon beat together.
        beating = [job for job in self._running if job.beat_age >= self._interval / 2 and not job.lease_lost]
        try:
            answer = self._queue._run(self._reporter.speak(ended, beating, wish))
        except OsqueueError as error:
            self._ended[:0] = ended
            self._back_off(error)
            return
        again, problem = hear(ended, answer.ended, self.tally)
        self._ended[:0] = again
        self._tell(ended, answer.ended)
        problem = problem or answer.problem
        if isinstance(answer.claimed, ClaimResult):
            self._take(answer.claimed, wish)
        else:
            problem = problem or answer.claimed
        if problem is not None:
            self._back_off(problem)
        else:
            self._failures = 0

    def _tell(self, ended: list[Ended], answers: list[Any]) -> None:
        said_again = {job for job, _ in self._ended}
        for (job, ending), done in zip(ended, answers, strict=True):
            if self._on_ended is not None and isinstance(done, Done) and job not in said_again:
                self._on_ended(job, ending, done)

    def _take(self, claimed: ClaimResult, wish: TurnWish) -> None:
        """Begin with what was claimed; without any the ticket is mostly gone."""
        if not claimed.leases:
            if claimed.reason == SOON:
                self._machine.sleep(claimed.retry_after or 0)
            elif claimed.reason == TICKET_LOST or not wish.busy:
                self._has_ticket = False
            return
        self.tally.claimed += len(claimed.leases)
        jobs = []
        for granted in claimed.leases:
            job: WorkerJob[Any] = WorkerJob(self._queue.name, granted, self._machine, self._stopping)
            ending = open_content(job, granted, self._queue.codec)
            if ending is not None:
                self._end(job, ending)
                continue
            job._beat = lambda job=job: self._queue._run(self._reporter.beat_one(job))  # type: ignore[misc]
            jobs.append(job)
        size = self._handlers.rule(None).batch or 1
        for start in range(0, len(jobs), size):
            call = JobCall(jobs[start : start + size])
            self._waiting.append(call)
            self._running.update(dict.fromkeys(call.jobs, call))

    def _back_off(self, error: Exception) -> None:
        """Try again a little later what passes; raise what does not."""
        if not isinstance(error, Unavailable | Timeout | Throttled) or error.permanent:
            raise error
        self._failures += 1
        pause = TURN.pause_after(self._failures, self._machine)
        self._not_before = self._machine.monotonic() + pause
        log.warning("the queue cannot be reached (%s); again in %.1f s", log_text(error), pause)


def _thread_of(function: Callable[[], None], name: str) -> threading.Thread:
    """A thread in the context of the invocation: what it asks of the store is counted there."""
    return threading.Thread(target=copy_context().run, args=(function,), name=name, daemon=True)
