"""What a flow may ask of its driver: store requests, several of them at once, a pause, a commit, a call to an API.

A generator yields an ``Effect`` and receives a reply: a store ``StoreReply`` for a request, a tuple of replies for
``All``, None for ``Sleep``. It never touches a socket, a file or a clock itself, so a blocking driver, an async
driver and the simulator run exactly the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..core.ops import Op
from ..errors import pass_on_interruption
from ..stores.base import StoreRequest

if TYPE_CHECKING:
    from .request_status import CommitResult


class All(Struct, frozen=True):
    """Several store requests, in any order or at the same time; answered by a tuple in this order."""

    requests: tuple[StoreRequest, ...]


class Sleep(Struct, frozen=True):
    """Let time pass."""

    seconds: float


class Pause(Sleep, frozen=True):
    """Let time pass before a request that failed is repeated.

    The reply is whether a call still has time for it. A driver that runs no call replies None.
    """


class Performer(Protocol):
    """What drivers give requests to: a store, or whatever else answers the requests of a flow."""

    @property
    def remote(self) -> bool: ...
    @property
    def reply_s_max(self) -> float: ...
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
    repeats = any(isinstance(effect, Pause) for effect in asked.values())
    allowed: bool | None = (yield (Pause if repeats else Sleep)(max(pauses))) if pauses else None
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
            replies[at] = allowed if isinstance(effect, Sleep) else next(found)
    return replies


# ── Several flows, one commit ────────────────────────────────────────────────
def submit_together(flows: Sequence[QueueFlow[Any]]) -> QueueFlow[list[Any]]:
    """Run flows side by side; answers each one's value, or its error.

    A commit applies what they submit in the order of the flows, so a claim finds the places that endings before it
    have freed. Where they submit to different shards, the first flow's goes first.
    """
    found: list[Any] = [None] * len(flows)
    waiting: dict[int, Any] = {}

    def go_on(at: int, reply: Any, error: Exception | None = None) -> None:
        waiting.pop(at, None)
        try:
            waiting[at] = flows[at].send(reply) if error is None else flows[at].throw(error)
        except StopIteration as stop:
            found[at] = stop.value
        except Exception as failure:  # noqa: BLE001 - it is this flow's answer; its caller decides
            pass_on_interruption(failure)
            found[at] = failure

    try:
        for at in range(len(flows)):
            go_on(at, None)
        while waiting:
            at = next((at for at, effect in waiting.items() if not _joins(effect)), -1)
            if at >= 0:
                try:
                    reply = yield waiting[at]
                except Exception as failure:  # noqa: BLE001 - it belongs to the flow that waits for it
                    go_on(at, None, failure)
                else:
                    go_on(at, reply)
                continue
            shard = waiting[min(waiting)].shard
            joined = [(at, effect) for at, effect in sorted(waiting.items()) if effect.shard == shard]
            try:
                answer: CommitResult = yield Submit(
                    shard, tuple(op for _, effect in joined for op in effect.ops)
                )
            except Exception as failure:  # noqa: BLE001 - it belongs to the flows that wait for it
                for at, _ in joined:
                    go_on(at, None, failure)
                continue
            start = 0
            for at, effect in joined:
                end = start + len(effect.ops)
                go_on(at, replace(answer, outcomes=answer.outcomes[start:end]))
                start = end
    finally:
        for flow in flows:
            flow.close()  # now: left to the collector, what it does at its end could come at any moment
    return found


def _joins(effect: Any) -> bool:
    return isinstance(effect, Submit) and bool(effect.ops) and effect.timeout is None and not effect.look
