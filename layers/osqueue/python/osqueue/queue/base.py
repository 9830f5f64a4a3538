"""What Queue and AsyncQueue share: how a queue is opened, and each public method as a flow.

What a method does is written once, in ``operations``; ``flow_methods`` turns a flow into a method that blocks
(``blocking``) or a coroutine (``asynchronous``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from .. import limits
from ..clock import MACHINE, Machine
from ..commit.effects import HeadPlace, QueueFlow, Submit
from ..commit.news import news_of
from ..commit.writer import ShardWriter
from ..errors import NotSupported
from ..lazy import lazy
from ..model import validation
from ..model.codecs import Codec, Serializer, serializer_of
from ..model.job import Done, Enqueued, Job
from ..model.job_options import JobOptionArguments, check_names
from ..model.keys import key_of
from ..model.payload_type import T
from ..model.validation import milliseconds, queue_name
from ..objects.layout import root_of
from ..operations.claims import ClaimResult
from ..operations.context import Writers
from ..operations.flows import EmbeddedFlows
from ..operations.waiters import OVER, CompletionBoard, board_of
from ..stores.base import Store
from ..stores.counting import CountingStore, counted
from .batches import QueueBatches
from .events import QueueEvents, Waker
from .flow_methods import FlowMethod
from .handlers import QueueHandlers
from .items import beat_of_item, field, holder, item_by_item, listed
from .lease import ClaimedLeases, LeaseBase
from .opening import open_place, window_seconds
from .options import JobFilterArguments, QueueOptions
from .schedules import QueueSchedules
from .steering import QueueSteering

if TYPE_CHECKING:  # loaded where they are used
    from ..client.admin import RemoteAdmin as RemoteSteering
    from ..client.flows import RemoteFlows
    from ..client.transports.base import Transport
    from ..events import Sink
    from ..model.dead_letters import DeadGroup, DeadLetterDetails
    from ..model.explain import Story
    from ..model.included import JobDetails
    from ..model.reports import Purged, ReapReport
    from ..operations.admin import AdminFlows

R = TypeVar("R")
L = TypeVar("L", bound=LeaseBase[Any])


class QueueBase(QueueEvents, QueueSteering, QueueSchedules, QueueBatches, QueueHandlers[T], Generic[L, T]):
    """What Queue and AsyncQueue share: everything but how a flow is run."""

    _lease_class: type[Any]  # L

    @overload
    def __init__(
        self,
        store: Store | Transport,
        queue: str,
        *,
        type: type[T],
        machine: Machine = MACHINE,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        store: Store | Transport,
        queue: str,
        *,
        type: Any = Any,
        machine: Machine = MACHINE,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    def __init__(
        self,
        store: Store | Transport,
        queue: str,
        *,
        serializer: str | Serializer = "json",
        result_serializer: str | Serializer | None = None,
        type: Any = Any,
        timeout: float = limits.REQUEST_TIMEOUT_S,
        sinks: Iterable[Sink] = (),
        waker: Waker | None = None,
        window: float = 0.0,
        machine: Machine = MACHINE,
    ) -> None:
        self.name = queue_name(queue)
        self._place: CountingStore | Transport = counted(store)
        self.machine = machine
        self._options: dict[str, Any] = {
            "serializer": serializer,
            "result_serializer": result_serializer,
            "type": type,
            "timeout": timeout,
            "waker": waker,
            "window": window,
        }
        results = None if result_serializer is None else serializer_of(result_serializer, "result_serializer")
        self.codec = Codec(serializer_of(serializer), type, results)
        self.timeout = milliseconds(timeout, "timeout", 1, limits.DAY_MS) / 1000
        self.window = self._window_s = window_seconds(window, self.timeout, self._place)
        QueueEvents.__init__(self, waker)
        self._writers = Writers(self._writer)
        self._flows: EmbeddedFlows | RemoteFlows = self._opened(self._place)
        self._make_driver()
        QueueHandlers.__init__(self)
        for sink in sinks:
            self.add_sink(sink)

    @classmethod
    def connect(
        cls,
        address: str,
        queue: str,
        *,
        serializer: str | Serializer = "json",
        result_serializer: str | Serializer | None = None,
        type: Any = Any,
        timeout: float = limits.REQUEST_TIMEOUT_S,
        sinks: Iterable[Sink] = (),
        waker: Waker | None = None,
        window: float = 0.0,
    ) -> Self:
        """Open a queue by address.

        A store, which this object works on itself: ``memory://``, ``file:///path``, ``s3://bucket/prefix``. Or an API,
        whose functions do: ``https://host/stage``, ``http://host:port`` (the local stack), ``lambda://prefix``.

        ``serializer`` is "json", "msgpack" or an object with name, dumps and loads, ``result_serializer`` another one
        for results; ``type`` is what payloads are converted to; ``timeout`` is how many seconds one call may try;
        ``sinks`` get what this object commits (``osqueue.events``), a ``waker`` invokes the consumers it wakes. With a
        ``window`` an operation waits so many seconds for those of other threads or tasks, to share a commit. Raises
        Rejected for an address or a name that is not valid.
        """
        return cls(
            open_place(address),
            queue,
            serializer=serializer,
            result_serializer=result_serializer,
            type=type,
            timeout=timeout,
            sinks=sinks,
            waker=waker,
            window=window,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the address, the name and the options; handlers and callbacks of ``on`` stay behind."""
        options = {**self._options, "sinks": tuple(self._sinks)}
        return functools.partial(type(self), self._place, self.name, **options), ()

    def _make_driver(self) -> None:
        """Make what runs the flows."""
        raise NotImplementedError

    def _opened(self, place: CountingStore | Transport) -> EmbeddedFlows | RemoteFlows:
        """What everybody but an operator does, as flows: over a store, or over an API."""
        if isinstance(place, CountingStore):
            told = place.place, place.look_pace, place.listen, news_of(place)
            return EmbeddedFlows(self.name, self.codec, self.machine, self._writers, *told)
        from ..client.flows import RemoteFlows

        return RemoteFlows(self.name, self.codec, self.machine, self.timeout)

    @lazy
    def _steering(self) -> AdminFlows | RemoteSteering:
        if not isinstance(self._place, CountingStore):
            from ..client.admin import RemoteAdmin as RemoteSteering

            return RemoteSteering(self.name, self.codec, self.machine, self.timeout)
        from ..operations.admin import AdminFlows

        return AdminFlows(self.name, self.codec, self.machine, self._writers, self._place.place)

    @property
    def transport(self) -> Transport | None:
        """How the API is reached; None when this object works on a store."""
        return None if isinstance(self._place, CountingStore) else self._place

    @property
    def store(self) -> CountingStore:
        """The store. Raises NotSupported when the queue is reached over an API."""
        if not isinstance(self._place, CountingStore):
            raise NotSupported(
                "address: this needs the store itself, and an API keeps its objects to itself. Give the store's own"
                " address, such as s3://bucket/prefix.",
                field="address",
            )
        return self._place

    @property
    def requests(self) -> dict[str, int]:
        """How many requests this object has sent to its store: get, put, list, delete.

        To an API: get, post, put, patch, delete.
        """
        return self._place.requests

    def _board(self, shard: int) -> CompletionBoard:
        """Where those of this process meet who wait for jobs of a shard."""
        return board_of(self._place.place, root_of(self.name, shard))

    def _writer(self, shard: HeadPlace) -> ShardWriter:
        if isinstance(shard, str):
            from ..operations.lending import limiter_writer

            return limiter_writer(shard, self.machine, self.store)
        writer = ShardWriter.on(self.store, root_of(self.name, shard), self.name, self.machine)
        writer.observed = bool(self._observers)
        writer.wakes = self._waker is not None
        writer.on_head = self.store.hearing(self.name, self._board(shard).see)
        writer.first = self._writers[0] if shard else None
        writer.news = news_of(self.store)
        return writer

    def _deadline(self, submit: Submit, left: float | None = None) -> float:
        """Return when a commit has to be over, in monotonic seconds. ``left``: the seconds that its call still has."""
        seconds = self.timeout if left is None else left
        return self.machine.monotonic() + (seconds if submit.timeout is None else submit.timeout)

    # ── Flows, one for each public method ────────────────────────────────────
    def _enqueue(
        self,
        payload: T,
        **options: Unpack[JobOptionArguments],
    ) -> QueueFlow[Enqueued]:
        """Add a job. It is durable when this returns.

        The options are those of ``osqueue.model.job_options``: ``id``, ``kind``, ``group``, ``priority``, ``delay`` or
        ``at``, ``max_attempts``, ``result_ttl``, ``run_within``, ``start_within``, ``units``, ``headers``, ``unique``,
        ``then``, ``batch``; durations in seconds. Under an ``id`` whose job is unfinished, or its result kept, the
        answer is that job ("duplicate") or its result ("completed").
        Raises Rejected (a field is wrong), Throttled (not added), Timeout or Unavailable (perhaps added).
        """
        if options:
            check_names(options, "enqueue")
        return self._flows.enqueue(payload, options)

    def _enqueue_and_wait(
        self,
        payload: T,
        timeout: float = 30,
        **options: Unpack[JobOptionArguments],
    ) -> QueueFlow[Any]:
        """Add a job, or join the one of the same ``id``, and wait up to ``timeout`` seconds for its result.

        A result that is kept under the id is returned at once. Raises WaitTimeout (the job goes on; read its result
        later), JobFailed with the job's error, JobCancelled, and what ``enqueue`` raises.
        """
        wait_s = milliseconds(timeout, "timeout", 0, limits.DAY_MS) / 1000
        check_names(options, "enqueue_and_wait")
        done = yield from self._flows.enqueue(payload, options)
        return (yield from self._answer(done, wait_s))

    def _answer(self, done: Enqueued, wait_s: float) -> QueueFlow[Any]:
        """What the job of an enqueue answers, once it has; it may have ended long ago, in the window of its id."""
        if done.status == "completed":
            return done.result
        if done.state in OVER:
            return (yield from self._flows.result(done.job_id or ""))
        return (yield from self._flows.wait(key_of(done.job_id or ""), wait_s))

    def _enqueue_many(self, jobs: Iterable[Mapping[str, Any]]) -> QueueFlow[list[Enqueued]]:
        """Add many jobs in one commit: mappings with ``payload`` and, if wished, the options of ``enqueue``.

        A bad item fails alone (status "rejected"). Up to 1,000,000; from 1,001 on they are staged as segments. Over an
        API each 1,000, or 5.5 MB, are a commit; what comes after one that failed is not sent, and says so.
        """
        return self._flows.enqueue_many(jobs)

    def _claim(
        self,
        limit: int = 1,
        worker: str | None = None,
        wait: float = 0,
        lease: float = limits.LEASE_MS_DEFAULT / 1000,
        kinds: Iterable[str] | None = None,
    ) -> QueueFlow[ClaimedLeases[L]]:
        """Lease up to ``limit`` jobs for ``lease`` seconds, waiting up to ``wait`` seconds for the first.

        ``kinds`` takes only those kinds. May return fewer than there are. An empty claim writes nothing. Over an API a
        claim whose answer is lost is not repeated but raises: the jobs that it leased come back when the leases end.
        """
        claimed: ClaimResult = yield from self._flows.claim(limit, worker, wait, lease, kinds)
        leases: ClaimedLeases[L] = ClaimedLeases([self._lease_class(self, each) for each in claimed.leases])
        leases.reason, leases.retry_after, leases.scope = claimed.reason, claimed.retry_after, claimed.scope
        return leases

    def _complete_many(self, items: Iterable[Any]) -> QueueFlow[list[Done]]:
        """Finish many jobs in one commit: leases, or mappings with ``job_id``, ``token`` and ``result``.

        A bad item fails alone (``ok`` false, code "rejected", and the ``error``); so in all calls of this family.
        """
        flows = self._flows

        def read(item: Any) -> tuple[bytes, str, bytes | None]:
            if isinstance(item, LeaseBase):
                return item.key, item.token, None
            return (*holder(item), flows.encode_result(field(item, "result")))

        return item_by_item(items, read, flows.complete_encoded)

    def _heartbeat_many(self, items: Iterable[Any], lease: float | None = None) -> QueueFlow[list[Done]]:
        """Extend many leases in one commit: leases, or mappings with ``job_id``, ``token``, ``progress``, ``note``."""
        held = listed(items)
        sent_at = self.machine.monotonic()
        done = yield from item_by_item(
            held, beat_of_item, lambda found: self._flows.heartbeat_many(found, lease)
        )
        for item, each in zip(held, done, strict=True):
            if isinstance(item, LeaseBase) and each.ok:
                item._extended(sent_at, lease)
                item.cancel_requested = each.cancel_requested
        return done

    def _fail_many(self, items: Iterable[Any], retry_in: float | None = None) -> QueueFlow[list[Done]]:
        """Report many failed attempts in one commit: mappings with ``job_id``, ``token`` and ``error``."""

        def read(item: Any) -> tuple[bytes, str, Any]:
            error = field(item, "error")
            error = "" if error is None else error
            validation.error_details(error)  # an error that cannot be stored fails alone
            return (*holder(item), error)

        return item_by_item(items, read, lambda found: self._flows.fail_many(found, retry_in))

    def _release_many(self, items: Iterable[Any], delay: float = 0) -> QueueFlow[list[Done]]:
        """Give many jobs back in one commit: leases, or mappings with ``job_id`` and ``token``."""
        return item_by_item(items, holder, lambda found: self._flows.release_many(found, delay))

    def _status(self, job_id: str, include: str | Iterable[str] = ()) -> QueueFlow[JobDetails | None]:
        """A job with its timeline, by job id or by the client's own id; None when there is none (any more).

        ``include`` asks for contents as well: "payload", "traceback", "result". What cannot be given is named, with
        the reason, in ``left_out``.
        """
        return self._flows.status(job_id, include)

    def _status_many(
        self, job_ids: Iterable[str], include: str | Iterable[str] = ()
    ) -> QueueFlow[list[JobDetails | None]]:
        """The same of many jobs, in their order: a few requests for all of them instead of some for each."""
        names = listed(job_ids, "job_ids", "ids")
        found: list[JobDetails | None] = []
        while len(found) < len(names):
            some = names[len(found) : len(found) + limits.ITEMS_PER_REQUEST_MAX]
            found += yield from self._flows.status_many(some, include)
        return found

    def _result(self, job_id: str) -> QueueFlow[Any]:
        """The result of a completed job, by job id or by the client's own id.

        Raises NotFinished, JobFailed, JobCancelled, Expired (it was there), NotFound.
        """
        return self._flows.result(job_id)

    def _update_result_ttl(self, job_id: str, ttl: float) -> QueueFlow[None]:
        """Keep a job's result for ``ttl`` seconds from now on, or from its end on if it has not finished yet.

        Raises NotFound, Expired, NotFinished (it failed: there is no result), Throttled.
        """
        return self._flows.update_result_ttl(job_id, ttl)

    def _cancel(self, job_id: str) -> QueueFlow[str]:
        """Cancel a job: "cancelled", or "processing" (its worker is told).

        Nothing is cancelled where it is "completed", "failed" (a dead letter) or "not_found".
        """
        return self._steering.cancel(job_id)

    def _run_now(self, job_id: str) -> QueueFlow[str]:
        """Let a job be claimable at once that waits for a time or for its next attempt; returns its state.

        "queued", also where it was; "processing", "completed", "failed" or "cancelled" where it does not wait any
        more; or "not_found". Raises Throttled.
        """
        return self._steering.run_now(job_id)

    def _jobs(
        self,
        state: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        **which: Unpack[JobFilterArguments],
    ) -> QueueFlow[tuple[list[Job], str | None]]:
        """One page of live jobs, of one state or all, and the cursor of the next page (None at the end).

        Only those of ``kinds``, under this ``id`` of yours, of a ``group``, of a ``batch`` (its id), with all of
        these ``headers`` (None: with any value), held by a worker whose name contains ``worker``, enqueued at least
        ``older_than`` seconds ago. A page looks at 20,000 jobs at most: it may hold few of those that match, or none,
        and a cursor to go on.
        """
        return self._steering.jobs(state, limit, cursor, **which)

    def _stats(self) -> QueueFlow[dict[str, Any]]:
        """Jobs by state, the oldest waiting job's age in seconds, counters and settings."""
        return self._steering.stats()

    def _drain(self, kind: str | None = None, timeout: float = 60) -> QueueFlow[None]:
        """Wait until no job is left that waits (also delayed) or runs, of this kind or of any. Raises WaitTimeout."""
        from .draining import drained

        return drained(self._steering, self.machine, kind, timeout)

    def _redrive(
        self,
        limit: int | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        dry_run: bool = False,
        fingerprint: str | None = None,
        rate: float | None = None,
        jobs: Iterable[str] | None = None,
    ) -> QueueFlow[int]:
        """Queue failed jobs again, with no attempt used; returns how many.

        Only these ``jobs``, by job id or your own id; only those of ``kinds``, whose last error contains ``error``, or
        has this ``fingerprint`` (see ``dead_letter_groups``). ``rate`` is the most jobs a second: the call lasts
        accordingly, and may be stopped and repeated. ``dry_run`` only counts.
        """
        names = None if jobs is None else listed(jobs, "jobs", "ids")
        validation.flag(dry_run, "dry_run")
        return self._steering.redrive(limit, kinds, error, dry_run, fingerprint, rate, names)

    def _dead_letters(
        self,
        limit: int = 100,
        cursor: str | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
        include: str | Iterable[str] = (),
    ) -> QueueFlow[tuple[list[DeadLetterDetails], str | None]]:
        """One page of failed jobs with what they died of, and the cursor of the next page (None at the end).

        Filtered as in ``redrive``; ``include`` as in ``status``: "payload", "traceback". Large payloads make
        the page shorter.
        """
        return self._steering.dead_letters(limit, cursor, kinds, error, fingerprint, include)

    def _dead_letter_groups(
        self, kinds: Iterable[str] | None = None, error: str | None = None
    ) -> QueueFlow[list[DeadGroup]]:
        """Failed jobs by the error they died of, the largest group first. Reads every dead letter."""
        return self._steering.dead_letter_groups(kinds, error)

    def _story(self, job_id: str) -> QueueFlow[Story]:
        """What happened to a job, why, and what comes next; by job id or by the client's own id.

        A job that only the archive knows is found by its job id. Raises NotFound.
        """
        return self._steering.story(job_id)

    def _why(self, job_id: str) -> QueueFlow[str]:
        """The same as text, a line for each thing that happened."""
        return str((yield from self._steering.story(job_id)))

    def _purge(self, jobs: str | Iterable[str], dead_only: bool = False) -> QueueFlow[Purged]:
        """Erase one job, or up to 1,000, for good: from the queue, its archive and its backups. There is no way back.

        Waiting jobs are cancelled first. Repeat the call after any error. Raises Conflict for a job
        that is being worked on, NotFound for an unknown id. ``dead_only`` leaves alone what is no dead
        letter (any more). Do not redrive at the same time: see ``operations.purge``.
        """
        validation.flag(dead_only, "dead_only")
        return self._steering.purge(jobs, dead_only)

    def _reap(self) -> QueueFlow[ReapReport]:
        """One pass of upkeep over all shards: stale leases, due jobs, the archive, unreferenced objects."""
        return self._steering.reap()

    # ── The methods ──────────────────────────────────────────────────────────
    enqueue = FlowMethod(_enqueue)
    enqueue_and_wait = FlowMethod(_enqueue_and_wait)
    enqueue_many = FlowMethod(_enqueue_many)
    claim = FlowMethod(_claim)
    complete_many = FlowMethod(_complete_many)
    heartbeat_many = FlowMethod(_heartbeat_many)
    fail_many = FlowMethod(_fail_many)
    release_many = FlowMethod(_release_many)
    status = FlowMethod(_status)
    status_many = FlowMethod(_status_many)
    result = FlowMethod(_result)
    update_result_ttl = FlowMethod(_update_result_ttl)
    cancel = FlowMethod(_cancel)
    run_now = FlowMethod(_run_now)
    jobs = FlowMethod(_jobs)
    stats = FlowMethod(_stats)
    drain = FlowMethod(_drain)
    redrive = FlowMethod(_redrive)
    dead_letters = FlowMethod(_dead_letters)
    dead_letter_groups = FlowMethod(_dead_letter_groups)
    why = FlowMethod(_why)
    story = FlowMethod(_story)
    purge = FlowMethod(_purge)
    reap = FlowMethod(_reap)
