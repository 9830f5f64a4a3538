"""One request on its way through the server: what it asks for, of which queue, and how long it may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from ..clock import Machine
from ..commit.effects import AwaitNews, Pause, QueueFlow, Sleep, Submit
from ..contract.error_codes import Forbidden
from ..contract.functions import WAIT_S_MAX
from ..contract.route import Route
from ..errors import OsqueueError, Rejected, Timeout, shown
from ..stores.base import Failed
from ..stores.counting import CountingStore
from .flows import DetachedSubmit
from .queues import ServedQueue
from .reading import body_of, id_of

if TYPE_CHECKING:  # loaded for requests about pacers
    from ..operations.pacer_access import StoreAccess

R = TypeVar("R")
Permit = Callable[
    [Route, str], None
]  # of an operation with a queue or pacer, "" for none; raises Unauthorized, Forbidden

JOBS_NOTED_MAX = 20
WAIT_MARGIN_S = 1.0  # for which nobody waits any more, so that an answer can still be made


class RequestContext(Struct, frozen=True):
    """One request, taken apart."""

    route: Route
    path: dict[str, str]
    query: dict[str, Any]  # its parameters, checked
    body: bytes
    machine: Machine
    store: CountingStore
    until: float  # monotonic seconds: when it has to be answered
    queue: ServedQueue | None  # the one in the path
    notes: dict[str, Any]  # what a log may say about it
    permit: Permit | None = None  # who calls may do this; None: whoever passed the request on has checked it
    access: StoreAccess | None = None  # to the pacer in the path

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
    def warm(self) -> ServedQueue:
        """The queue; only where the path names one."""
        assert self.queue is not None, f"{self.route.path} is of no queue"
        return self.queue

    @property
    def pacer(self) -> StoreAccess:
        """The pacer. Only for a path that names one."""
        assert self.access is not None, f"{self.route.path} is of no pacer"
        return self.access

    @property
    def may_change(self) -> bool:
        """Whether the caller may change the queue, and not only read it."""
        return may_change(self.permit, self.name)

    @property
    def id(self) -> str:
        """The id in the path. Raises Rejected."""
        return id_of(self.path["id"])

    @property
    def left(self) -> float:
        """Seconds until an answer is due."""
        return self.until - self.machine.monotonic()

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


def may_change(permit: Permit | None, queue: str) -> bool:
    """Return whether a caller may change the settings of a queue."""
    from ..contract.operations import BY_NAME  # the routes that a function does not answer are rarely needed

    try:
        if permit is not None:
            permit(BY_NAME["configure"], queue)
    except Forbidden:
        return False
    return True


def in_time(flow: QueueFlow[R], machine: Machine, until: float) -> QueueFlow[R]:
    """Run a flow that ends with Timeout at ``until`` (monotonic seconds); what it did before is durable or harmless.

    The error names what the store reported last, if that was a failure.
    """
    reply: Any = None
    failure = ""
    go_on: Callable[[Any], Any] = flow.send
    while True:
        try:
            effect = go_on(reply)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        go_on, left = flow.send, until - machine.monotonic()
        if isinstance(effect, Pause) and effect.seconds >= left:
            reply = False  # the flow raises what the store failed with
            continue
        if left <= 0 and not isinstance(effect, DetachedSubmit):
            go_on, reply = (
                flow.throw,
                Timeout(f"the request took too long. What it did so far may still hold. {failure}".rstrip()),
            )
            continue
        if isinstance(effect, Submit) and left > 0:
            effect = Submit(effect.shard, effect.ops, min(left, effect.timeout or left), effect.look)
        elif isinstance(effect, Sleep) and not isinstance(effect, Pause):
            effect = Sleep(min(left, effect.seconds))
        elif isinstance(effect, AwaitNews):
            effect = AwaitNews(effect.sleeper, min(left, effect.seconds))
        try:
            reply = yield effect
        except OsqueueError as error:
            go_on, reply, failure = flow.throw, error, error.message
        else:
            if not isinstance(effect, Sleep):
                failed = [each for each in _replies(reply) if isinstance(each, Failed)]
                failure = failed[-1].error.message if failed else ""


def _replies(reply: Any) -> tuple[Any, ...]:
    """Return the replies to one request, or to several that were sent together."""
    return reply if isinstance(reply, tuple) else (reply,)
