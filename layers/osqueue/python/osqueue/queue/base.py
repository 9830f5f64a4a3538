"""What Queue and AsyncQueue share: how a queue is opened, and each public method as a flow.

What a method does is written once, in ``embedded``; ``methods`` turns a flow into a method that blocks
(``queue``) or a coroutine (``async_queue``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from .. import limits
from ..clock import MACHINE, Machine
from ..commit.effects import QueueFlow, Submit
from ..commit.event_queue import OnEvents
from ..commit.writer import ShardWriter
from ..core.state import Transition
from ..errors import NotSupported, Rejected
from ..model import validation
from ..model.codecs import Codec, Serializer, serializer_of
from ..model.job import Done, Enqueued, Job
from ..model.job_options import JobOptionArguments, check_names
from ..model.keys import key_of
from ..model.validation import milliseconds, queue_name
from ..objects.layout import root_of
from ..operations.claims import ClaimResult
from ..operations.context import Writers
from ..operations.flows import EmbeddedFlows
from ..operations.waiters import CompletionBoard, board_of
from ..stores.address import is_remote, open_store
from ..stores.base import Store
from ..stores.counting import CountingStore
from ..worker.handlers import Handlers
from .lease import ClaimedLeases, LeaseBase

if TYPE_CHECKING:  # loaded where they are used
    from ..client.admin import RemoteAdmin as RemoteSteering
    from ..client.flows import RemoteFlows
    from ..client.transports.base import Transport
    from ..events import Delivery, EventOutlet, Sink
    from ..model.dead_letters import DeadGroup, DeadLetter
    from ..model.explain import Story
    from ..model.reports import Purged, ReapReport
    from ..operations.admin import AdminFlows

R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class QueueBase(Generic[T]):
    """What Queue and AsyncQueue share: everything but how a flow is run."""

    _lease_class: type[LeaseBase[Any]]

    def __init__(
        self,
        store: Store | Transport,
        queue: str,
        *,
        serializer: str | Serializer = "json",
        type: Any = Any,
        timeout: float = limits.REQUEST_TIMEOUT_S,
        sinks: Iterable[Sink] = (),
        machine: Machine = MACHINE,
    ) -> None:
        self.name = queue_name(queue)
        self._place: CountingStore | Transport = (
            CountingStore(store)
            if isinstance(store, Store) and not isinstance(store, CountingStore)
            else store
        )
        self.machine = machine
        self.codec = Codec(serializer_of(serializer), type)
        self.timeout = milliseconds(timeout, "timeout", 1, limits.DAY_MS) / 1000
        self._observers: list[OnEvents] = []
        self._sinks: list[Sink] = []
        self._outlet: EventOutlet | None = None
        self._writers = Writers(self._writer)
        self._flows: EmbeddedFlows | RemoteFlows = self._opened(self._place)
        self.handlers = Handlers()
        for sink in sinks:
            self.add_sink(sink)

    @classmethod
    def connect(
        cls,
        address: str,
        queue: str,
        *,
        serializer: str | Serializer = "json",
        type: Any = Any,
        timeout: float = limits.REQUEST_TIMEOUT_S,
        sinks: Iterable[Sink] = (),
    ) -> Any:
        """Open a queue by address.

        A store, which this object works on itself: ``memory://``, ``file:///path``, ``s3://bucket/prefix``. Or an API,
        whose functions do: ``https://host/stage``, ``http://host:port`` (the local stack), ``lambda://prefix``.

        ``serializer`` is "json", "msgpack" or an object with name, dumps and loads; ``type`` is what payloads are
        converted to; ``timeout`` is how many seconds one call may try; ``sinks`` get every transition that
        this object commits (``osqueue.events``). Nothing is sent yet. Raises Rejected for an address or a name that
        is not valid.
        """
        name = queue_name(queue)
        place: Store | Transport
        if is_remote(address):
            from ..client.transports.address import open_transport

            place = open_transport(address)
        else:
            place = open_store(address)
        return cls(place, name, serializer=serializer, type=type, timeout=timeout, sinks=sinks)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _opened(self, place: CountingStore | Transport) -> EmbeddedFlows | RemoteFlows:
        """What everybody but an operator does, as flows: over a store, or over an API."""
        if isinstance(place, CountingStore):
            return EmbeddedFlows(
                self.name, self.codec, self.machine, self._writers, place.place, place.look_pace
            )
        from ..client.flows import RemoteFlows

        return RemoteFlows(self.name, self.codec, self.machine, self.timeout)

    @functools.cached_property
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

        To an API: get, post, patch, delete.
        """
        return self._place.requests

    def _board(self, shard: int) -> CompletionBoard:
        """Where those of this process meet who wait for jobs of a shard."""
        return board_of(self._place.place, root_of(self.name, shard))

    def _writer(self, shard: int) -> ShardWriter:
        store = self.store
        root = root_of(self.name, shard)
        writer = ShardWriter(
            root, self.name, self.machine, store.clock_ms, store.room_below, store.flushes, store.turns
        )
        writer.observed = bool(self._observers)
        writer.on_head = self._board(shard).see
        return writer

    def on_event(self, function: F) -> F:
        """Call a function with every ``Event`` that this object commits from now on, after the commit.

        The function runs on a thread that has just committed, so keep it short. It may use this object; it gets the
        events of its own calls after it has returned. Its exceptions are counted and logged, and stop nothing.
        """
        from ..events import CallbackSink

        self.add_sink(CallbackSink(function, f"{getattr(function, '__name__', 'callback')}-{id(function):x}"))
        return function

    def add_sink(self, sink: Sink) -> None:
        """Send every event that this object commits from now on to a sink as well. See ``osqueue.events``.

        Raises NotSupported over an API: its functions commit, and send events to EventBridge.
        """
        if not isinstance(self._place, CountingStore):
            raise NotSupported(
                "sinks: over an API this object commits nothing, so it has no events to tell of. The functions do:"
                " they send them to an EventBridge bus.",
                field="sinks",
            )
        from ..events import EventOutlet

        before = self._outlet
        self._outlet = EventOutlet([*self._sinks, sink], before)
        self._sinks.append(sink)
        if before is None:
            self._observe(self._tell_sinks)

    @property
    def deliveries(self) -> dict[str, Delivery]:
        """By sink: how many events it took, and how many were lost."""
        return {} if self._outlet is None else self._outlet.deliveries

    def _observe(self, observer: OnEvents) -> None:
        """Call ``observer`` as well for every transition that this object commits from now on."""
        self._observers.append(observer)
        for writer in self._writers.values():
            writer.observed = True

    def _tell(self, events: Sequence[Transition]) -> None:
        for observer in self._observers:
            try:
                observer(events)
            except Exception:  # the commit is done; nothing may make it look undone
                import logging

                logging.getLogger("osqueue").exception("an observer of queue %s failed", self.name)

    def _tell_sinks(self, events: Sequence[Transition]) -> None:
        if self._outlet is not None:
            self._outlet.tell(self.name, events)

    def _deadline(self, submit: Submit) -> float:
        timeout = self.timeout if submit.timeout is None else submit.timeout
        return self.machine.monotonic() + timeout

    @overload
    def handler(self, function: F) -> F: ...
    @overload
    def handler(self, *, kind: str | None = None) -> Callable[[F], F]: ...
    def handler(self, function: Any = None, *, kind: str | None = None) -> Any:
        """Register the function or coroutine function that runs jobs: of one ``kind``, or all that no other takes.

        It gets a ``WorkerJob`` and returns the result, or Snooze, Retry, Fail or Cancel. ``run`` calls it.
        """
        if function is None:
            return functools.partial(self.handlers.add, kind=kind)
        return self.handlers.add(function, kind)

    # ── Flows, one for each public method ────────────────────────────────────
    def _enqueue(
        self,
        payload: T,
        **options: Unpack[JobOptionArguments],
    ) -> QueueFlow[Enqueued]:
        """Add a job. It is durable when this returns.

        The options are those of ``osqueue.model.job_options``: ``id``, ``kind``, ``priority``, ``delay`` or ``at``,
        ``max_attempts``, ``result_ttl``, ``headers``; durations in seconds. Under an ``id`` whose job is
        unfinished, or its result kept, the answer is that job ("duplicate") or its result ("completed").
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
        if done.status == "completed":
            return done.result
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
    ) -> QueueFlow[ClaimedLeases[Any]]:
        """Lease up to ``limit`` jobs for ``lease`` seconds, waiting up to ``wait`` seconds for the first.

        ``kinds`` takes only those kinds. May return fewer than there are. An empty claim writes nothing. Over an API a
        claim whose answer is lost is not repeated but raises: the jobs that it leased come back when the leases end.
        """
        claimed: ClaimResult = yield from self._flows.claim(limit, worker, wait, lease, kinds)
        leases: ClaimedLeases[Any] = ClaimedLeases([self._lease_class(self, each) for each in claimed.leases])
        leases.reason = claimed.reason
        return leases

    def _complete_many(self, items: Iterable[Any]) -> QueueFlow[list[Done]]:
        """Finish many jobs in one commit: leases, or mappings with ``job_id``, ``token`` and ``result``.

        A bad item fails alone (``ok`` false, code "rejected", and the ``error``); so in all calls of this family.
        """
        flows = self._flows

        def read(item: Any) -> tuple[bytes, str, bytes | None]:
            if isinstance(item, LeaseBase):
                return item.key, item.token, None
            return (*_holder(item), flows.encode_result(_field(item, "result")))

        return _item_by_item(items, read, flows.complete_encoded)

    def _heartbeat_many(self, items: Iterable[Any], lease: float | None = None) -> QueueFlow[list[Done]]:
        """Extend many leases in one commit: leases, or mappings with ``job_id`` and ``token``."""
        held = _listed(items)
        sent_at = self.machine.monotonic()
        done = yield from _item_by_item(held, _holder, lambda found: self._flows.heartbeat_many(found, lease))
        for item, each in zip(held, done, strict=True):
            if isinstance(item, LeaseBase) and each.ok:
                item._extended(sent_at, lease)
                item.cancel_requested = each.cancel_requested
        return done

    def _fail_many(self, items: Iterable[Any], retry_in: float | None = None) -> QueueFlow[list[Done]]:
        """Report many failed attempts in one commit: mappings with ``job_id``, ``token`` and ``error``."""

        def read(item: Any) -> tuple[bytes, str, Any]:
            error = _field(item, "error") or ""
            validation.error_details(error)  # an error that cannot be stored fails alone
            return (*_holder(item), error)

        return _item_by_item(items, read, lambda found: self._flows.fail_many(found, retry_in))

    def _release_many(self, items: Iterable[Any], delay: float = 0) -> QueueFlow[list[Done]]:
        """Give many jobs back in one commit: leases, or mappings with ``job_id`` and ``token``."""
        return _item_by_item(items, _holder, lambda found: self._flows.release_many(found, delay))

    def _status(self, job_id: str) -> QueueFlow[Job | None]:
        """A job with its timeline, by job id or by the client's own id; None when there is none (any more)."""
        return self._flows.status(job_id)

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
        """Cancel a job: "cancelled", "processing" (its worker is told), "completed" or "not_found"."""
        return self._steering.cancel(job_id)

    def _jobs(
        self, state: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> QueueFlow[tuple[list[Job], str | None]]:
        """One page of live jobs, of one state or all, and the cursor of the next page (None at the end)."""
        return self._steering.jobs(state, limit, cursor)

    def _stats(self) -> QueueFlow[dict[str, Any]]:
        """Jobs by state, the oldest waiting job's age in seconds, counters and settings."""
        return self._steering.stats()

    def _pause(self) -> QueueFlow[None]:
        """Stop handing out jobs. Running jobs finish, new ones are accepted. Durable."""
        return self._steering.configure(paused=True)

    def _resume(self) -> QueueFlow[None]:
        """Hand out jobs again."""
        return self._steering.configure(paused=False)

    def _configure(self, /, **settings: Any) -> QueueFlow[None]:
        """Change settings, by name: those of ``docs/api.md``, durations in seconds. Others stay as they are."""
        return self._steering.configure(**settings)

    def _redrive(
        self,
        limit: int | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        dry_run: bool = False,
        fingerprint: str | None = None,
        rate: float | None = None,
    ) -> QueueFlow[int]:
        """Queue failed jobs again, with no attempt used; returns how many.

        Only those of ``kinds``, whose last error contains ``error``, or has this ``fingerprint`` (see
        ``dead_letter_groups``). ``rate`` is the most jobs a second: the call lasts accordingly, and may be stopped and
        repeated. ``dry_run`` only counts.
        """
        return self._steering.redrive(limit, kinds, error, dry_run, fingerprint, rate)

    def _dead_letters(
        self,
        limit: int = 100,
        cursor: str | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
    ) -> QueueFlow[tuple[list[DeadLetter], str | None]]:
        """One page of failed jobs with what they died of, and the cursor of the next page (None at the end).

        Filtered as in ``redrive``.
        """
        return self._steering.dead_letters(limit, cursor, kinds, error, fingerprint)

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
        return self._steering.purge(jobs, dead_only)

    def _reap(self) -> QueueFlow[ReapReport]:
        """One pass of upkeep over all shards: stale leases, due jobs, the archive, unreferenced objects."""
        return self._steering.reap()


def _listed(items: Any) -> list[Any]:
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise Rejected(f"items: {type(items).__name__} is not a list of leases or mappings.", field="items")
    return list(items)


def _item_by_item(
    items: Iterable[Any], read: Callable[[Any], Any], send: Callable[[list[Any]], QueueFlow[list[Done]]]
) -> QueueFlow[list[Done]]:
    """Send the items that can be read; the others fail alone, in their places."""
    found: list[Any] = []
    refused: dict[int, Done] = {}
    batch = _listed(items)
    for at, item in enumerate(batch):
        try:
            found.append(read(item))
        except Rejected as error:
            text = item.get("job_id") if isinstance(item, Mapping) else None
            refused[at] = Done(text if isinstance(text, str) else "", False, error.code, error=error)
    done = (yield from send(found)) if found else []
    if not refused:
        return done
    rest = iter(done)
    return [refused[at] if at in refused else next(rest) for at in range(len(batch))]


def _holder(item: Any) -> tuple[bytes, str]:
    """The job's key and the token of a lease or a mapping."""
    if isinstance(item, LeaseBase):
        return item.key, item.token
    if isinstance(item, Mapping):
        for name in ("job_id", "token"):
            if name not in item:
                raise Rejected(f"{name}: it is missing. Pass leases, or their job_id and token.", field=name)
        return key_of(item["job_id"]), validation.text(item["token"], "token", limits.TOKEN_CHARS_MAX, 1)
    raise Rejected(f"items: {type(item).__name__} is neither a lease nor a mapping.", field="items")


def _field(item: Any, name: str) -> Any:
    return None if isinstance(item, LeaseBase) or not isinstance(item, Mapping) else item.get(name)
