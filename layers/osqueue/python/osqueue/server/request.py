"""One request on its way through the server: what it asks for, of which queue, and how long it may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from ..clock import Machine
from ..commit.driver import BlockingDriver
from ..commit.effects import AwaitNews, HeadPlace, QueueFlow, Sleep, Submit
from ..commit.writer import OnHead, ShardWriter
from ..contract.content import PassThroughCodec
from ..contract.functions import WAIT_S_MAX
from ..contract.operations import QUEUES, Route
from ..errors import OsqueueError, Rejected, Timeout, shown
from ..queue.blocking import Queue
from ..stores.counting import CountingStore
from .answers import ANSWER_BYTES_MAX, INCLUDED_BYTES_MAX
from .flows import DetachedSubmit, ServerFlows
from .reading import body_of, id_of

if TYPE_CHECKING:
    from ..operations.admin import AdminFlows

R = TypeVar("R")
HeadListener = Callable[[str, OnHead], OnHead]  # wraps the listener to a queue's heads

JOBS_NOTED_MAX = 20
WAIT_MARGIN_S = 1.0  # for which nobody waits any more, so that an answer can still be made


class CachedQueue(Queue[Any]):
    """A queue that is kept between requests. Contents pass through it unread."""

    flows: ServerFlows

    def __init__(self, store: CountingStore, name: str, hearing: HeadListener | None, **options: Any) -> None:
        self._hearing = hearing
        super().__init__(store, name, **options)

    def _opened(self, place: Any) -> ServerFlows:
        self.codec = PassThroughCodec()
        self.flows = ServerFlows(
            self.name, self.codec, self.machine, self._writers, place.place, place.look_pace
        )
        self.flows.answer_bytes = ANSWER_BYTES_MAX
        self.flows.page_bytes = self.flows.content_bytes_max = INCLUDED_BYTES_MAX
        return self.flows

    def _writer(self, shard: HeadPlace) -> ShardWriter:
        writer = super()._writer(shard)
        if self._hearing is not None and not isinstance(shard, str):
            writer.on_head = self._hearing(self.name, writer.on_head)
        return writer

    @cached_property
    def steering(self) -> AdminFlows:
        """The flows of operators."""
        from ..operations.admin import AdminFlows

        flows = AdminFlows(self.name, self.codec, self.machine, self._writers, self.store.place)
        flows.page_bytes = flows.content_bytes_max = INCLUDED_BYTES_MAX
        flows.search = f"history(since=TIME) of a Queue, or GET {QUEUES}/{self.name}/history?since=TIME,"
        return flows


class RequestContext(Struct, frozen=True):
    """One request, taken apart."""

    route: Route
    path: dict[str, str]
    query: dict[str, Any]  # its parameters, checked
    body: bytes
    machine: Machine
    store: CountingStore
    until: float  # monotonic seconds: when it has to be answered
    open: Callable[[str], CachedQueue]
    notes: dict[str, Any]  # what a log may say about it

    def read(self) -> Any:
        """The body, of the type that the route asks for. Raises Malformed and Rejected."""
        if not self.body and self.route.body_optional:
            return self.route.request()
        return body_of(self.body, self.route.request)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.path["queue"]

    @property
    def warm(self) -> CachedQueue:
        """The queue. Raises Rejected for a name that means nothing."""
        return self.open(self.name)

    @property
    def id(self) -> str:
        """The id in the path. Raises Rejected."""
        return id_of(self.path["id"])

    @property
    def left(self) -> float:
        """Seconds until an answer is due."""
        return self.until - self.machine.monotonic()

    def run(self, flow: QueueFlow[R]) -> R:
        """Run a flow of the request's queue, no longer than an answer may take."""
        return self.warm._run(self.in_time(flow))

    def look(self, flow: QueueFlow[R]) -> R:
        """Run a flow that is of no queue in particular, and only reads."""
        return BlockingDriver(self.store, self.machine).run(self.in_time(flow))

    def note(self, jobs: Iterable[str | None], **more: Any) -> None:
        """Note for the log which jobs the request was about."""
        found = [each for each in jobs if each]
        self.notes["job_count"] = len(found)
        self.notes["jobs"] = found[:JOBS_NOTED_MAX]
        self.notes.update(more)

    def wait_s(self, seconds: float | None) -> float:
        """How long to wait for a job or a result. Raises Rejected."""
        if seconds is None:
            return 0.0
        if not 0 <= seconds <= WAIT_S_MAX:
            raise Rejected(
                f"wait: {shown(seconds)} is not a number of seconds from 0 to {WAIT_S_MAX:g}. Ask again for more.",
                field="wait",
            )
        return max(0.0, min(seconds, self.left - WAIT_MARGIN_S))

    def in_time(self, flow: QueueFlow[R]) -> QueueFlow[R]:
        """A flow that ends with Timeout when its answer is due; all it does before is durable or harmless."""
        reply: Any = None
        go_on: Callable[[Any], Any] = flow.send
        while True:
            try:
                effect = go_on(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            go_on, left = flow.send, self.left
            if left <= 0 and not isinstance(effect, DetachedSubmit):
                go_on, reply = (
                    flow.throw,
                    Timeout("the request took too long. What it did so far may still hold."),
                )
                continue
            if isinstance(effect, Submit) and left > 0:
                effect = Submit(effect.shard, effect.ops, min(left, effect.timeout or left), effect.look)
            elif isinstance(effect, Sleep):
                effect = Sleep(min(left, effect.seconds))
            elif isinstance(effect, AwaitNews):
                effect = AwaitNews(effect.sleeper, min(left, effect.seconds))
            try:
                reply = yield effect
            except OsqueueError as error:
                go_on, reply = flow.throw, error
