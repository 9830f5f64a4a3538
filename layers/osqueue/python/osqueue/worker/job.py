"""What a handler gets: the job, its signals and its heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any, Generic

from ..clock import Machine
from ..core.job_ops import LeaseBeat
from ..core.state import LeaseRecord
from ..model.fields import moment
from ..model.job_options import JobAttributes, JobOrigin
from ..model.keys import job_id
from ..model.payload_type import T_co
from ..model.progress import beat_of
from ..operations.claims import GrantedLease


class Signal:
    """Something that happens once: look at it (``if job.cancelled``), wait for it in a thread
    (``job.cancelled.wait(5)``), or in a coroutine (``await job.cancelled``)."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        """Has it happened?"""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block the calling thread until it happens, or for ``timeout`` seconds; returns whether it has."""
        return self._event.wait(timeout)

    def set(self) -> None:
        """Set the signal. Setting it again changes nothing."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def __await__(self) -> Generator[Any, None, None]:
        return self._happened().__await__()

    async def _happened(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        happened = asyncio.Event()

        def tell() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(happened.set)

        with self._lock:
            if self._event.is_set():
                return
            self._callbacks.append(tell)
        try:
            await happened.wait()
        finally:
            with self._lock:
                if tell in self._callbacks:
                    self._callbacks.remove(tell)


class WorkerJob(JobAttributes, JobOrigin, Generic[T_co]):
    """One attempt at a job, as its handler sees it."""

    def __init__(
        self, queue: str, granted: GrantedLease, machine: Machine, stopping: Signal | None = None
    ) -> None:
        lease: LeaseRecord = granted.lease
        self._job = lease.job
        self.queue: str = queue  # its name
        self.key: bytes = lease.job.key
        self.job_id: str = job_id(self.key)
        self.payload: T_co = None  # type: ignore[assignment]  # set once it is decoded
        self.input: Any = None  # a follow-up: what the job before answered; of a batch: what is told of it
        self.attempt: int = lease.job.attempt  # from 1
        self.run: int = lease.job.run  # which lease of the job this is; snoozes and stalls count too
        self.enqueued_at: datetime = moment(lease.job.enqueued_ms)
        self.token: str = lease.token
        self.idempotency_key: str = f"{queue}/{self.job_id}"  # the same for every attempt at this job
        self.cancelled = Signal()  # somebody wants the job cancelled: stop, and return Cancel()
        self.lease_lost = Signal()  # the job is no longer ours: stop, the result will be discarded
        self.timed_out = Signal()  # the attempt ran longer than its limit, and has failed: stop
        self.stopping = (
            Signal() if stopping is None else stopping
        )  # the worker wants to end: finish soon, or return Snooze(0)
        self.error: BaseException | None = None  # what the handler raised
        self._machine = machine
        self._started_ms: int = lease.started_ms
        self._sent_at = self._claimed_at = granted.sent_at
        self._lease_s = lease.lease_ms / 1000
        self._news: tuple[float | None, str | None] = (None, None)  # of its progress, for the next heartbeat
        self._beat: Callable[[], Any] = lambda: None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.job_id} attempt {self.attempt}/{self.max_attempts}>"

    @property
    def seconds_left(self) -> float:
        """A cautious estimate, on the monotonic clock, of how long the lease still runs."""
        end = self._sent_at + self._lease_s
        if self.run_within is not None:  # no heartbeat moves that
            end = min(end, self._claimed_at + self.run_within)
        return end - self._machine.monotonic()

    @property
    def ran_seconds(self) -> float:
        """Seconds since its claim was sent: no less than the attempt has run."""
        return self._machine.monotonic() - self._claimed_at

    @property
    def beat_age(self) -> float:
        """Seconds since the claim or the last heartbeat was sent."""
        return self._machine.monotonic() - self._sent_at

    def extended(self, sent_at: float) -> None:
        """A heartbeat sent at ``sent_at`` (monotonic seconds) was accepted."""
        self._sent_at = max(self._sent_at, sent_at)

    def progress(self, share: float, note: str | None = None) -> None:
        """Say how far the job is, from 0 to 1, and up to 80 characters beside: the next heartbeat carries it.

        ``status`` and everybody who looks at the job sees it then. It costs no request of its own.
        """
        beat_of(self.key, self.token, share, note)  # raises Rejected here, and not in the worker
        self._news = (share, self._news[1] if note is None else note)

    def beat(self) -> LeaseBeat:
        """Its next heartbeat."""
        share, note = self._news
        return beat_of(self.key, self.token, share, note)

    def heartbeat(self) -> None:
        """Extend the lease now; the worker does so by itself at every third of it. Raises LeaseLost.

        Afterwards ``cancelled`` is up to date.
        """
        self._beat()


class AsyncWorkerJob(WorkerJob[T_co]):
    """The same for a coroutine handler."""

    async def heartbeat(self) -> None:  # type: ignore[override]
        """Extend the lease now. Raises LeaseLost."""
        beat: Awaitable[None] | None = self._beat()
        if beat is not None:
            await beat
