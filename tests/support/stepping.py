"""Calls of a queue that go on one store request at a time, when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from osqueue import Queue
from osqueue.commit.effects import All, Sleep, Submit
from osqueue.commit.group import CommitBatch, CommitWaiter
from osqueue.errors import OsqueueError, Unavailable
from osqueue.stores.base import Delete, Failed, Get, List, StoreReply, StoreRequest

LOST = Failed(Unavailable("the reply was lost"))


class Call:
    """One call under way, for example ``Call(q, q._enqueue(1, id="a"))``.

    It needs a Queue object of its own: two calls of one object would share a writer.
    """

    def __init__(self, q: Queue[Any], flow: Generator[Any, Any, Any]) -> None:
        self.q = q
        self.over = False
        self.answer: Any = None
        self.error: OsqueueError | None = None
        self.next: StoreRequest | None = None  # what it asks of the store next
        self._effects = _effects(q, flow)
        self._left: list[StoreRequest] = []
        self._replies: list[StoreReply] = []
        self._together = False
        self._go_on(None)

    def step(self, reply: Callable[[StoreRequest], StoreReply] | None = None) -> StoreRequest:
        """Perform the next request, or let ``reply`` answer it."""
        request = self._left.pop(0)
        self._replies.append((reply or self.q.store.perform)(request))
        if self._left:
            self.next = self._left[0]
        else:
            self._go_on(tuple(self._replies) if self._together else self._replies[0])
        return request

    def lose(self) -> StoreRequest:
        """Perform the next request; its answer does not arrive."""

        def lost(request: StoreRequest) -> StoreReply:
            self.q.store.perform(request)
            return LOST

        return self.step(lost)

    def until(self, wanted: Callable[[StoreRequest], bool]) -> Call:
        """Go on until such a request is the next one."""
        while self.next is not None and not wanted(self.next):
            self.step()
        assert self.next is not None, "it ended before it got there"
        return self

    def finish(self) -> Any:
        """Go on to the end; the answer."""
        while not self.over:
            self.step()
        if self.error is not None:
            raise self.error
        return self.answer

    def _go_on(self, reply: Any) -> None:
        self.next, self._replies = None, []
        while True:
            try:
                effect = self._effects.send(reply)
            except StopIteration as stop:
                self.over, self.answer = True, stop.value
                return
            except OsqueueError as error:
                self.over, self.error = True, error
                return
            if isinstance(effect, Sleep):
                self.q.machine.sleep(effect.seconds)
                reply = None
                continue
            self._together = isinstance(effect, All)
            self._left = list(effect.requests) if isinstance(effect, All) else [effect]
            if not self._left:
                reply = ()
                continue
            self.next = self._left[0]
            return


def _effects(q: Queue[Any], flow: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The flow with its commits taken apart into their requests."""
    reply: Any = None
    go_on: Callable[[Any], Any] = flow.send
    while True:
        try:
            effect = go_on(reply)
        except StopIteration as stop:
            return stop.value
        go_on = flow.send
        if not isinstance(effect, Submit):
            reply = yield effect
            continue
        waiter = CommitWaiter(effect.ops, q._deadline(effect), None, effect.look)
        batch = CommitBatch(q._writers[effect.shard], [waiter])
        try:
            answer = yield from batch.flow
        except OsqueueError as error:
            go_on, reply = flow.throw, error
            continue
        batch.distribute(answer)
        reply = waiter.answer


def writes(part: str) -> Callable[[StoreRequest], bool]:
    """Is it a write of an object whose key contains this?"""
    return lambda request: not isinstance(request, Get | List | Delete) and part in request.key


def reads(part: str) -> Callable[[StoreRequest], bool]:
    """Is it a read of such an object?"""
    return lambda request: isinstance(request, Get) and part in request.key


def interleave(calls: Sequence[Call], chance: Any) -> None:
    """Let all go on to their ends, one request of a randomly chosen one at a time."""
    while going := [call for call in calls if not call.over]:
        chance.choice(going).step()
