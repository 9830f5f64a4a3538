"""Manual and inline mode: a queue object that keeps its jobs in memory while a block lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar, overload

from ..errors import Rejected
from ..queue.asynchronous import AsyncQueue
from ..queue.blocking import Queue
from ..stores.memory import MemoryStore
from .clock import Clock, VirtualDriver
from .kit import AsyncManual, Kit, Manual

T = TypeVar("T")


@overload
def manual(queue: Queue[T], clock: Clock | None = None) -> contextlib.AbstractContextManager[Manual]: ...
@overload
def manual(
    queue: AsyncQueue[T], clock: Clock | None = None
) -> contextlib.AbstractContextManager[AsyncManual]: ...
def manual(queue: Any, clock: Clock | None = None) -> Any:
    """Jobs wait until ``run_next`` or ``drain`` runs them."""
    return _entered(queue, clock, inline=False, raise_errors=False)


@overload
def inline(
    queue: Queue[T], clock: Clock | None = None, *, raise_errors: bool = True
) -> contextlib.AbstractContextManager[Manual]: ...
@overload
def inline(
    queue: AsyncQueue[T], clock: Clock | None = None, *, raise_errors: bool = True
) -> contextlib.AbstractContextManager[AsyncManual]: ...
def inline(queue: Any, clock: Clock | None = None, *, raise_errors: bool = True) -> Any:
    """Enqueue runs the handler at once. What is due later waits for ``drain``.

    With ``raise_errors`` a handler's exception is raised by the enqueue, after the attempt was recorded as failed.
    """
    return _entered(queue, clock, inline=True, raise_errors=raise_errors)


@contextlib.contextmanager
def _entered(queue: Any, clock: Clock | None, *, inline: bool, raise_errors: bool) -> Iterator[Any]:
    if not isinstance(queue, Queue | AsyncQueue):
        raise Rejected("queue: pass a Queue or an AsyncQueue.", field="queue")
    clock = Clock() if clock is None else clock
    before = dict(queue.__dict__)
    queue.__dict__.pop("_steering", None)  # of another store
    awaits = isinstance(queue, AsyncQueue)
    base: Any = AsyncQueue if awaits else Queue
    codec = queue.codec
    base.__init__(
        queue,
        MemoryStore(clock),
        queue.name,
        serializer=codec.serializer,
        type=codec.payload_type,
        timeout=queue.timeout,
        machine=clock,
    )
    fields = queue.__dict__
    fields["handlers"] = before["handlers"].copy()  # those a test adds go with the test
    fields["run"] = _no_worker
    if awaits:
        fields["_driver"] = VirtualDriver(queue.store, clock)
    kit: Kit = (AsyncManual if awaits else Manual)(queue, clock)
    if inline:
        kit.run_inline(raise_errors)
    try:
        yield kit
    finally:
        queue.__dict__.clear()
        queue.__dict__.update(before)


def _no_worker(**options: Any) -> Any:
    raise AssertionError(
        "a worker waits for real time, which stands still here: call test.drain() instead of run()."
    )
