"""A push consumer as a Lambda function: what ``consumer`` makes of a handler."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import msgspec

from .. import limits
from ..aws_calls.wakes import WakeEvent, wake_of
from ..errors import Rejected, shown
from ..model import validation
from ..operations.consumers import consumer_settings
from ..queue.blocking import Queue
from ..queue.options import QueueOptions
from ..stores.address import open_store
from ..stores.counting import CountingStore
from ..worker.handlers import Handlers, is_coroutine
from ..worker.outcomes import Tally
from .reporter import TicketReporter
from .run import ConsumerRun, InvocationTime, OnEnded

if TYPE_CHECKING:
    from .metering import ConsumerMeter

STORE_VARIABLE = "OSQUEUE_STORE"  # the address of the store
BUS_VARIABLE = (
    "OSQUEUE_EVENT_BUS"  # the name of an EventBridge bus that is told of what it commits; may be absent
)
SERVICE_VARIABLE = "OSQUEUE_SERVICE"  # the deployment that its metrics are of; absent: nothing is counted
THREADS_MAX = 64

F = TypeVar("F", bound=Callable[..., Any])
HandlersOf = Callable[[Any], Handlers]  # those of one invocation, by its context


class ConsumerFunction:
    """What Lambda calls: ``handler(event, context)`` for each wake. ``function`` is what was decorated."""

    def __init__(
        self,
        function: Callable[..., Any],
        handlers_of: HandlersOf,
        *,
        batch: int | None = None,
        threads: int = 1,
        **options: Unpack[QueueOptions],
    ) -> None:
        self.function = function
        self.threads = validation.whole_number(threads, "threads", 1, THREADS_MAX)
        self.batch = (
            None if batch is None else validation.whole_number(batch, "batch", 1, limits.CLAIM_LIMIT_MAX)
        )
        self._handlers_of = handlers_of
        self._options = options
        self._queues: dict[str, Queue[Any]] = {}
        self._store: CountingStore | None = None
        self._meter: ConsumerMeter | None = None
        if os.environ.get(STORE_VARIABLE):  # now: a cold start has more of a processor than the first wake
            self._store = self._opened()

    def __call__(self, event: Any, context: Any) -> dict[str, int]:
        """Answer a wake: work until there is nothing to do, or no time left; answers how many jobs ended how.

        Raises Rejected for an event that is none of a queue.
        """
        wake = wake_of(event)
        queue = self.queue(wake.queue)
        request_id = getattr(context, "aws_request_id", "")
        with nullcontext() if self._meter is None else self._meter.invocation(wake.queue, request_id):
            return msgspec.structs.asdict(self.work(queue, wake, context))

    def queue(self, name: str) -> Queue[Any]:
        """The queue of this name in the store of the environment, kept for the next wake."""
        if name not in self._queues:
            if self._store is None:
                self._store = self._opened()
            options: QueueOptions = {**self._told(), **self._options}
            self._queues[name] = Queue(self._store, name, **options)
        return self._queues[name]

    def work(
        self, queue: Queue[Any], wake: WakeEvent, context: InvocationTime, on_ended: OnEnded | None = None
    ) -> Tally:
        """The same for a queue object of one's own, of which nothing is counted."""
        flows: Any = queue._flows  # of a store: nobody else has any
        settings = queue._run(consumer_settings(flows, wake.shard, wake.consumer))
        if settings is None:  # it was detached since
            return Tally()
        request_id = getattr(context, "aws_request_id", "") or queue.machine.name()
        name = f"{wake.consumer} {request_id}"[: limits.WORKER_CHARS_MAX]
        holder = queue.machine.bits(64)
        reporter = TicketReporter(queue, name, settings, wake.shard, wake.ticket, holder)
        run = ConsumerRun(
            queue,
            reporter,
            settings,
            self._handlers_of(context),
            context,
            threads=self.threads,
            batch=self.batch,
            on_ended=on_ended,
        )
        return run.work()

    def _opened(self) -> CountingStore:
        address = os.environ.get(STORE_VARIABLE)
        if not address:
            raise Rejected(
                f"{STORE_VARIABLE}: this environment variable is not set. Give it the address of the store, such as"
                " s3://bucket/prefix.",
                field=STORE_VARIABLE,
            )
        store = open_store(address)
        service = os.environ.get(SERVICE_VARIABLE)
        if not service:
            return store
        from .metering import ConsumerMeter  # only where somebody looks at what it counts

        self._meter = ConsumerMeter(store.inner, service)
        return self._meter.store

    def _told(self) -> QueueOptions:
        """Who is told of what it commits, where its handler's options name nobody: the bus of its environment."""
        bus = os.environ.get(BUS_VARIABLE)
        if self._meter is not None:
            return self._meter.options(bus)
        if not bus:
            return {}
        from ..events import EventBridgeSink  # only where there is one

        return {"sinks": [EventBridgeSink(bus)]}


class ConsumerDecorator:
    """Makes a Lambda function of a handler. See ``consumer``."""

    @overload
    def __call__(self, function: Callable[[Any], Any], /) -> ConsumerFunction: ...
    @overload
    def __call__(
        self,
        *,
        batch: int | None = None,
        threads: int = 1,
        run_within: float | None = None,
        **options: Unpack[QueueOptions],
    ) -> Callable[[Callable[[Any], Any]], ConsumerFunction]: ...
    def __call__(
        self,
        function: Any = None,
        *,
        batch: int | None = None,
        threads: int = 1,
        run_within: float | None = None,
        **options: Unpack[QueueOptions],
    ) -> Any:
        """Call the handler once for each job, with a ``WorkerJob``; it returns a result, Snooze, Retry, Fail or Cancel.

        Up to ``batch`` jobs are claimed at once (None: as many as the queue's consumer says), and ``threads`` of them
        run at the same time. A run that takes longer than ``run_within`` seconds is a failed attempt. ``options`` are
        those of ``Queue.connect``: ``type``, ``serializer``, and so on.
        Raises Rejected, and TypeError for a function that cannot be called with one argument.

        >>> @consumer(threads=8)
        ... def handler(job):
        ...     return len(job.payload["to"])
        """

        def make(function: Any) -> ConsumerFunction:
            handlers = _plain(function, run_within, None)
            return ConsumerFunction(
                function, lambda context: handlers, batch=batch, threads=threads, **options
            )

        return make if function is None else make(function)

    @overload
    def batches(self, function: Callable[[Any], Any], /) -> ConsumerFunction: ...
    @overload
    def batches(
        self, *, size: int | None = None, run_within: float | None = None, **options: Unpack[QueueOptions]
    ) -> Callable[[Callable[[Any], Any]], ConsumerFunction]: ...
    def batches(
        self,
        function: Any = None,
        *,
        size: int | None = None,
        run_within: float | None = None,
        **options: Unpack[QueueOptions],
    ) -> Any:
        """Call the handler with a list of up to ``size`` jobs (None: as the queue's consumer says).

        It returns None, one ending for each job in a list, or one for all, as a worker's handler of batches does.
        """

        def make(function: Any) -> ConsumerFunction:
            handlers = _plain(function, run_within, size or limits.HANDLER_BATCH_MAX)
            return ConsumerFunction(function, lambda context: handlers, batch=size, **options)

        return make if function is None else make(function)


def _plain(function: Any, run_within: float | None, batch: int | None) -> Handlers:
    """The handlers of a consumer: one, for all kinds. Raises Rejected, TypeError."""
    if callable(function) and is_coroutine(function):
        raise Rejected(
            f"handler: {shown(function)} is a coroutine function. A consumer calls plain ones: run it in one of them,"
            " by asyncio.run(…).",
            field="handler",
        )
    handlers = Handlers()
    handlers.add(function, None, run_within, batch)
    return handlers


consumer = ConsumerDecorator()
