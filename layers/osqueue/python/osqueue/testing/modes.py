"""Manual and inline mode: a queue object that keeps its jobs in memory while a block lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, overload

from ..aws import ConsumerFunction
from ..errors import Rejected
from ..queue.asynchronous import AsyncQueue
from ..queue.blocking import Queue
from ..stores.memory import MemoryStore
from .clock import Clock, VirtualDriver
from .consumers import LocalConsumers, LocalWaker
from .kit import AsyncManual, Kit, Manual

T = TypeVar("T")
AnyQueue = Queue[Any] | AsyncQueue[Any]
Functions = Mapping[str, ConsumerFunction]
NONE: Functions = MappingProxyType({})


@overload
def manual(
    queue: Queue[T], *others: AnyQueue, clock: Clock | None = None, consumers: Functions = NONE
) -> contextlib.AbstractContextManager[Manual]: ...
@overload
def manual(
    queue: AsyncQueue[T], *others: AnyQueue, clock: Clock | None = None, consumers: Functions = NONE
) -> contextlib.AbstractContextManager[AsyncManual]: ...
def manual(queue: Any, *others: Any, clock: Clock | None = None, consumers: Functions = NONE) -> Any:
    """Jobs wait until ``run_next`` or ``drain`` runs them.

    ``others`` are more queue objects of the program under test, which share the memory and the clock: those of the same
    name are the same queue. The kit blocks or is awaited as the first does. ``consumers`` are attached to the first
    queue, by their names: they are invoked where Lambda would invoke them, on the thread that runs jobs.
    """
    return _entered((queue, *others), clock, consumers, inline=False, raise_errors=False)


@overload
def inline(
    queue: Queue[T],
    *others: AnyQueue,
    clock: Clock | None = None,
    consumers: Functions = NONE,
    raise_errors: bool = True,
) -> contextlib.AbstractContextManager[Manual]: ...
@overload
def inline(
    queue: AsyncQueue[T],
    *others: AnyQueue,
    clock: Clock | None = None,
    consumers: Functions = NONE,
    raise_errors: bool = True,
) -> contextlib.AbstractContextManager[AsyncManual]: ...
def inline(
    queue: Any,
    *others: Any,
    clock: Clock | None = None,
    consumers: Functions = NONE,
    raise_errors: bool = True,
) -> Any:
    """Enqueue runs the handler, or the consumer, at once. What is due later waits for ``drain``.

    With ``raise_errors`` a handler's exception is raised by the enqueue, after the attempt was recorded as failed.
    ``others`` and ``consumers`` as in ``manual``. Raises Rejected for a blocking queue after an AsyncQueue, whose kit
    it cannot await.
    """
    if isinstance(queue, AsyncQueue) and any(isinstance(each, Queue) for each in others):
        raise Rejected("queue: pass the blocking Queue first: it cannot await the kit.", field="queue")
    return _entered((queue, *others), clock, consumers, inline=True, raise_errors=raise_errors)


@contextlib.contextmanager
def _entered(
    queues: Sequence[Any], clock: Clock | None, consumers: Functions, *, inline: bool, raise_errors: bool
) -> Iterator[Any]:
    for each in queues:
        if not isinstance(each, Queue | AsyncQueue):
            raise Rejected("queue: pass a Queue or an AsyncQueue.", field="queue")
    queues = list({id(each): each for each in queues}.values())
    clock = Clock() if clock is None else clock
    store, waker = MemoryStore(clock), LocalWaker()
    awaits = isinstance(queues[0], AsyncQueue)
    with contextlib.ExitStack() as stack:
        for each in queues:
            stack.enter_context(_moved(each, store, clock, waker))
        runners = [
            each if isinstance(each, AsyncQueue) == awaits else _twin(each, store, clock, waker)
            for each in queues
        ]
        local = LocalConsumers(consumers, _alike(Queue, queues[0], store, clock, waker), waker)
        kit: Kit = (AsyncManual if awaits else Manual)(queues, runners, clock, local)
        if inline:
            kit.run_inline(raise_errors)
        yield kit


@contextlib.contextmanager
def _moved(queue: Any, store: MemoryStore, clock: Clock, waker: LocalWaker) -> Iterator[None]:
    """A queue object in memory while the block lasts."""
    before = dict(queue.__dict__)
    queue.__dict__.pop("_steering", None)  # of another store
    _begin(queue, queue, store, clock, waker)
    queue.__dict__["handlers"] = before["handlers"].copy()  # those a test adds go with the test
    queue.__dict__["run"] = _no_worker
    try:
        yield
    finally:
        queue.__dict__.clear()
        queue.__dict__.update(before)


def _twin(queue: Any, store: MemoryStore, clock: Clock, waker: LocalWaker) -> Any:
    """The same queue for the other way of running: its handlers, also those that are added later."""
    twin = _alike(Queue if isinstance(queue, AsyncQueue) else AsyncQueue, queue, store, clock, waker)
    twin.handlers = queue.handlers
    return twin


def _alike(kind: Any, queue: Any, store: MemoryStore, clock: Clock, waker: LocalWaker) -> Any:
    """Another object of a queue."""
    made: Any = object.__new__(kind)
    _begin(made, queue, store, clock, waker)
    return made


def _begin(queue: Any, alike: Any, store: MemoryStore, clock: Clock, waker: LocalWaker) -> None:
    """Make a queue object new, in memory, with the options of one that is alike."""
    awaits = isinstance(queue, AsyncQueue)
    base: Any = AsyncQueue if awaits else Queue
    codec = alike.codec
    base.__init__(
        queue,
        store,
        alike.name,
        serializer=codec.serializer,
        result_serializer=codec.results.serializer,
        type=codec.payload_type,
        timeout=alike.timeout,
        waker=waker,
        machine=clock,
    )
    if awaits:
        queue.__dict__["_driver"] = VirtualDriver(queue.store, clock)


def _no_worker(**options: Any) -> Any:
    raise AssertionError(
        "a worker waits for real time, which stands still here: call test.drain() instead of run()."
    )
