"""What a flow may ask of its driver: store requests, several of them at once, a pause, a commit, a call to an API.

A generator yields an ``Effect`` and receives a reply: a store ``StoreReply`` for a request, a tuple of replies for
``All``, None for ``Sleep``. It never touches a socket, a file or a clock itself, so a blocking driver, an async
driver and the simulator run exactly the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from ..core.ops import Op
from ..stores.base import StoreRequest


class All(Struct, frozen=True):
    """Several store requests, in any order or at the same time; answered by a tuple in this order."""

    requests: tuple[StoreRequest, ...]


class Sleep(Struct, frozen=True):
    """Let time pass."""

    seconds: float


class Performer(Protocol):
    """What drivers give requests to: a store, or whatever else answers the requests of a flow."""

    @property
    def remote(self) -> bool: ...
    def perform(self, request: Any, /) -> Any: ...
    async def perform_async(self, request: Any, /) -> Any: ...


HeadPlace = int | str  # a shard of the queue, or the name of a limiter at the same store


class Submit(Struct, frozen=True):
    """An effect of the library's flows: commit operations to a shard, with whoever else is doing so."""

    shard: HeadPlace
    ops: tuple[Op, ...]
    timeout: float | None = None  # seconds; None: the default of the queue
    look: bool = False  # take announced requests along, contended or not


class Sleeper(Protocol):
    """Somebody who sleeps until there is news, or a time has passed."""

    def waking(self, wake: Callable[[], object], /) -> AbstractContextManager[None]:
        """Have ``wake`` called, from any thread, once there is news; at once if there is some already."""


class AwaitNews(Struct, frozen=True):
    """An effect of the library's flows: let time pass until there is news for somebody."""

    sleeper: Sleeper
    seconds: float  # at most


class RemoteRequest(Struct, frozen=True):
    """An effect of the library's flows that an API performs, not a store: what it holds, ``transports`` knows."""


Effect = StoreRequest | All | Sleep
QueueEffect = Effect | Submit | AwaitNews | RemoteRequest
T = TypeVar("T")
R = TypeVar("R")
Flow = Generator[Effect, Any, T]
QueueFlow = Generator[QueueEffect, Any, T]

AT_ONCE = 32  # flows that go on together


def together(flows: Sequence[Flow[R]]) -> Flow[list[R]]:
    """Run flows in step with one another: what they ask for at the same time is asked at once.

    The first error ends all of them, wherever they are: they only read, or may be repeated.
    """
    results: dict[int, R] = {}
    for start in range(0, len(flows), AT_ONCE):
        replies: dict[int, Any] = dict.fromkeys(range(start, min(start + AT_ONCE, len(flows))))
        while replies:
            asked: dict[int, Effect] = {}
            for at, reply in replies.items():
                try:
                    asked[at] = flows[at].send(reply)
                except StopIteration as stop:
                    results[at] = stop.value
            replies = yield from _answers(asked)
    return [results[at] for at in range(len(flows))]


def _answers(asked: dict[int, Effect]) -> Flow[dict[int, Any]]:
    """The replies to several effects, by who asked."""
    pauses = [effect.seconds for effect in asked.values() if isinstance(effect, Sleep)]
    if pauses:
        yield Sleep(max(pauses))
    requests: list[StoreRequest] = []
    for effect in asked.values():
        if not isinstance(effect, Sleep):
            requests.extend(effect.requests if isinstance(effect, All) else (effect,))
    found = iter((yield All(tuple(requests)))) if requests else iter(())
    replies: dict[int, Any] = {}
    for at, effect in asked.items():
        if isinstance(effect, All):
            replies[at] = tuple(next(found) for _ in effect.requests)
        else:
            replies[at] = None if isinstance(effect, Sleep) else next(found)
    return replies
