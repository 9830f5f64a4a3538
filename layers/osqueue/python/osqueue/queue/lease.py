"""A job in a worker's hands: what it holds, and the five things a worker can say about it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

from ..commit.effects import QueueFlow
from ..lazy import lazy
from ..model import validation
from ..model.fields import moment
from ..model.job import Done
from ..model.job_options import JobAttributes, JobOrigin
from ..model.keys import job_id
from ..model.payload_type import T_co
from ..model.progress import beat_of
from ..operations.claims import GrantedLease
from ..operations.endings import lease_lost
from .flow_methods import Awaiting, Blocking, FlowMethod

R = TypeVar("R")
_COMPUTED = ("payload", "input")  # when they are first read


class ClaimedLeases(list[R]):
    """The leases of one claim. When there are none, ``reason`` says why, and ``retry_after`` when to ask again."""

    reason: str | None = (
        None  # "empty", "paused", "rate_limited", "running_limit", "in_flight_limit", "groups_closed" or "group_limit"
    )
    retry_after: float | None = None  # seconds; None: nobody knows, since it is not for time alone to say
    scope: str | None = None  # "queue"; "kind": other kinds may start; "group": resume those that wait


class LeaseBase(JobAttributes, JobOrigin, Generic[T_co]):
    """A job in a worker's hands."""

    def __init__(self, queue: Any, granted: GrantedLease) -> None:
        lease = granted.lease
        self._queue = queue
        self._granted = granted
        self._stored = lease
        self._job = lease.job
        self._sent_at = self._claimed_at = granted.sent_at
        self._given = queue.machine.monotonic()
        self._lease_s = lease.lease_ms / 1000
        self.key: bytes = lease.job.key
        self.token: str = lease.token
        self.cancel_requested: bool = lease.cancel

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.job_id} attempt {self.attempt}/{self.max_attempts}>"

    def __getstate__(self) -> dict[str, Any]:
        machine = self._queue.machine
        state = {name: value for name, value in self.__dict__.items() if name not in _COMPUTED}
        return state | {"left_at": (machine.monotonic(), machine.now_ms())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on in another process, whose monotonic clock may be another: the wall clock counts the way."""
        monotonic, now_ms = state.pop("left_at")
        self.__dict__.update(state)
        machine = self._queue.machine
        moved = machine.monotonic() - monotonic - max(0, machine.now_ms() - now_ms) / 1000
        self._sent_at += moved
        self._claimed_at += moved
        self._given += moved

    @lazy
    def payload(self) -> T_co:
        """The payload that enqueue was given. The lease holds even when this raises.

        Raises Rejected when it cannot be read as the queue's type, NotFound, Damaged or Unavailable when it was too
        large for the state and its object cannot be read.
        """
        decoded: T_co = self._queue.codec.decode_payload(self._granted.payload, self._job.codec)
        return decoded

    @lazy
    def input(self) -> Any:
        """A follow-up: what the job before answered; what waited for a batch: what is told of it. Else None.

        Raises what ``payload`` does.
        """
        apart = self._granted.input is not None
        return self._granted.input_by(self._queue.codec, None if apart else self.payload)

    @property
    def job_id(self) -> str:
        """The id that enqueue returned. It is the same at every attempt, so it serves as an idempotency key."""
        return job_id(self.key)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._job.attempt

    @property
    def run(self) -> int:
        """The number of leases ever granted to the job, from 1, and of its redrives."""
        return self._job.run

    @property
    def enqueued_at(self) -> datetime:
        """When the job was accepted."""
        return moment(self._job.enqueued_ms)

    @property
    def expires_at(self) -> datetime:
        """When the lease ends, by the store's clock, unless a heartbeat extends it."""
        # Counted from when the claim was answered, at the latest the moment from which its lease ran.
        beaten_ms = max(0, round((self._sent_at - self._given) * 1000))
        ends_ms = self._stored.expires_ms + beaten_ms + round(self._lease_s * 1000) - self._stored.lease_ms
        if self._job.run_within_ms:
            ends_ms = min(ends_ms, self._stored.started_ms + self._job.run_within_ms)
        return moment(ends_ms)

    @property
    def seconds_left(self) -> float:
        """A cautious estimate, on the monotonic clock, of how long the lease still runs."""
        end = self._sent_at + self._lease_s
        if self.run_within is not None:  # no heartbeat moves that
            end = min(end, self._claimed_at + self.run_within)
        return end - float(self._queue.machine.monotonic())

    def _run(self, flow: QueueFlow[R]) -> Any:
        return self._queue._run(flow)

    def _heartbeat(
        self, lease: float | None = None, progress: float | None = None, note: str | None = None
    ) -> QueueFlow[None]:
        """Extend the lease, by ``lease`` seconds from now or by its own length. Raises LeaseLost.

        ``progress``, from 0 to 1, and a ``note`` of up to 80 characters are seen by whoever looks at the job.
        Afterwards ``cancel_requested`` says whether somebody wants the job cancelled.
        """
        sent_at = self._queue.machine.monotonic()
        beat = beat_of(self.key, self.token, progress, note)
        (done,) = yield from self._queue._flows.heartbeat_many([beat], lease)
        self._check(done)
        self._extended(sent_at, lease)
        self.cancel_requested = done.cancel_requested

    def _extended(self, sent_at: float, lease: float | None) -> None:
        """A heartbeat that was sent at ``sent_at`` was accepted, with a length of its own or without."""
        self._sent_at = sent_at
        if lease is not None:
            self._lease_s = lease

    def _complete(self, result: Any = None) -> QueueFlow[None]:
        """Finish the job with a result. Raises LeaseLost. Repeating it is harmless."""
        if not (yield from self._queue._flows.complete(self.key, self.token, result)):
            raise lease_lost(self.job_id)

    def _fail(
        self, error: str | BaseException, retry_in: float | None = None, retry: bool = True
    ) -> QueueFlow[str]:
        """Report that the attempt failed; returns the job's new state, "failing", "failed" or "cancelled".

        The job is tried again after the queue's back-off, or after ``retry_in`` seconds, while it has attempts
        left and ``retry`` is true. Raises LeaseLost.
        """
        validation.flag(retry, "retry")
        (done,) = yield from self._queue._flows.fail_many([(self.key, self.token, error)], retry_in, retry)
        self._check(done)
        return str(done.code)

    def _release(self, delay: float = 0, until: datetime | float | None = None) -> QueueFlow[None]:
        """Give the job back without using the attempt: to the front, after ``delay`` seconds, or for a time.

        Raises LeaseLost.
        """
        (done,) = yield from self._queue._flows.release_many([(self.key, self.token)], delay, until)
        self._check(done)

    def _throttle(self, seconds: float, scope: str = "kind", why: str = "") -> QueueFlow[None]:
        """Give the job back without using the attempt, and let nothing of its kind start for so long.

        With the ``scope`` "queue" nothing at all. Other shards are told at once where they can be. Raises LeaseLost.
        """
        (done,) = yield from self._queue._flows.throttle_many([(self.key, self.token)], seconds, scope, why)
        self._check(done)

    def _cancel(self, why: str = "") -> QueueFlow[None]:
        """Accept a cancel, or decide on one: the job ends as cancelled. Raises LeaseLost."""
        (done,) = yield from self._queue._flows.abort_many([(self.key, self.token)], why)
        self._check(done)

    def _check(self, done: Done) -> None:
        if done.error is not None:  # over an API: it did not get as far as the lease
            raise done.error
        if not done.ok:
            raise lease_lost(self.job_id)

    heartbeat = FlowMethod(_heartbeat)
    complete = FlowMethod(_complete)
    fail = FlowMethod(_fail)
    release = FlowMethod(_release)
    throttle = FlowMethod(_throttle)
    cancel = FlowMethod(_cancel)


class Lease(Blocking, LeaseBase[T_co]):
    """A job in a worker's hands: heartbeat while you work, then complete, fail, release or cancel it."""


class AsyncLease(Awaiting, LeaseBase[T_co]):
    """The same for coroutines."""
