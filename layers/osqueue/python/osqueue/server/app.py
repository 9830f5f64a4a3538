"""The server: a request in, an answer out, whatever the request.

Nothing here knows of Lambda. ``Api.answer`` finds the route, opens the queue, runs the operation's flow and puts what
it answers or raises into words. It always answers in time, and never with a stack trace. ``AsyncApi``
(``async_app``) does the same for coroutines.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from .. import forks, limits
from ..clock import MACHINE, Machine
from ..commit.driver import BlockingDriver
from ..commit.effects import QueueFlow
from ..contract.error_codes import STATUS, TooLarge, fault_of
from ..contract.functions import BODY_BYTES_MAX
from ..contract.route import Route, pattern, subject_of
from ..contract.schemas import Failure, Fault
from ..errors import OsqueueError
from ..stores.address import open_store
from ..stores.base import Store
from ..stores.counting import counted
from .answers import ANSWER_BYTES_MAX, StatusAnswer
from .queues import BlockingServedQueue, ServedQueue
from .reading import Pairs, query_of, segment
from .request import Permit, RequestContext, in_time, may_change

if TYPE_CHECKING:
    from ..events import Sink
    from ..pacer.base import PacerBase
    from ..pacer.blocking import Pacer
    from ..queue.events import Waker

QUEUES_MAX = 256  # kept warm
RETRY_AFTER_S = 1.0  # where an error that passes does not say
JSON = "application/json"

log = logging.getLogger("osqueue.server")


class ApiRequest(Struct, frozen=True):
    """A request to the API."""

    method: str
    path: str  # as sent, percent-encoded or not
    query: Pairs = ()  # names and values, decoded
    body: bytes = b""
    deadline_s: float = limits.REQUEST_TIMEOUT_S  # seconds: how long the answer may take
    permit: Permit | None = None  # who calls may do this; None: somebody else has seen to it


class ApiResponse(Struct, frozen=True):
    """An answer of the API."""

    status: int
    body: bytes = b""  # JSON; empty: none
    headers: dict[str, str] = {}
    code: str = ""  # of a failure
    notes: dict[str, Any] = {}  # what a log may say about the request


Q = TypeVar("Q", bound=ServedQueue)
P = TypeVar("P", bound="PacerBase")


class ApiBase(Generic[Q, P]):
    """What ``Api`` and ``AsyncApi`` share: everything but how a flow is run.

    ``store`` is a store or its address, ``routes`` which requests it answers (None: all), ``sinks`` receive every
    transition it commits. ``waker`` invokes the consumers that it wakes; without one the environment says what does.
    ``window`` is for how many seconds an operation waits for those of other requests, to share a commit.
    """

    _queue_class: type[Q]

    def __init__(
        self,
        store: Store | str,
        *,
        routes: Iterable[Route] | None = None,
        machine: Machine = MACHINE,
        sinks: Iterable[Sink] = (),
        waker: Waker | None = None,
        window: float = 0.0,
    ) -> None:
        self.store = counted(open_store(store, machine) if isinstance(store, str) else store)
        self.machine = machine
        self.sinks = tuple(sinks)
        self._waker = waker
        self._window = window
        self.routes = _every_route() if routes is None else tuple(routes)
        self._patterns = [(route, pattern(route)) for route in self.routes]
        self._queues: OrderedDict[str, Q] = OrderedDict()
        self._pacers: OrderedDict[str, P] = OrderedDict()
        self._lock = forks.lock()

    def load(self) -> None:
        """Load what the routes need, which the first request for each would otherwise do."""
        for route in self.routes:
            _operation(route)

    def queue(self, name: str) -> Q:
        """A queue, kept warm for the next request. Raises Rejected for a name that means nothing."""
        with self._lock:
            found = self._queues.get(name)
            if found is None:
                found = self._queue_class(
                    self.store,
                    name,
                    machine=self.machine,
                    sinks=self.sinks,
                    waker=self._waker,
                    window=self._window,
                )
                self._queues[name] = found
                if len(self._queues) > QUEUES_MAX:
                    self._queues.popitem(last=False)
            self._queues.move_to_end(name)
            return found

    def permit(self, request: ApiRequest) -> None:
        """Raises what refuses a request before anything is read of it: there is no such route, or it is not allowed."""
        route, path = self._route(request)
        if request.permit is not None:
            request.permit(route, subject_of(path))

    def may_change(self, request: ApiRequest) -> bool:
        """Return whether the caller of a request may change the queue in it. Raises what ``permit`` raises."""
        _, path = self._route(request)
        return may_change(request.permit, subject_of(path))

    def pacer(self, name: str) -> P:
        """Return a pacer, kept warm for the next request. Raises Rejected for a name that is not valid."""
        with self._lock:
            found = self._pacers.get(name)
            if found is None:
                found = self._pacers[name] = self._new_pacer(name)
                if len(self._pacers) > QUEUES_MAX:
                    self._pacers.popitem(last=False)
            self._pacers.move_to_end(name)
            return found

    def _new_pacer(self, name: str) -> P:
        """Open a pacer of the store."""
        raise NotImplementedError

    def _call(self, request: ApiRequest, notes: dict[str, Any]) -> tuple[Q | P | None, QueueFlow[Any]]:
        """Return the flow that carries out a request, and the queue or pacer that runs it; None: any driver does."""
        until = self.machine.monotonic() + request.deadline_s
        route, path = self._route(request)
        notes["operation"] = route.name
        notes.update((name, text[: limits.ID_CHARS_MAX]) for name, text in path.items())
        if request.permit is not None:
            request.permit(route, subject_of(path))
        if len(request.body) > BODY_BYTES_MAX:
            raise TooLarge(f"the body has {len(request.body):,} bytes; the API takes {BODY_BYTES_MAX:,}.")
        query = query_of(route, request.query)
        queue = self.queue(path["queue"]) if "queue" in path else None
        pacer = self.pacer(path["pacer"]) if "pacer" in path else None
        access: Any = None if pacer is None else pacer.access
        context = RequestContext(
            *(route, path, query, request.body, self.machine, self.store, until, queue, notes),
            permit=request.permit,
            access=access,
        )
        return queue or pacer, in_time(_operation(route)(context), self.machine, until)

    def _route(self, request: ApiRequest) -> tuple[Route, dict[str, str]]:
        allowed: list[str] = []
        for route, form in self._patterns:
            match = form.fullmatch(request.path)
            if match is None:
                continue
            if route.method == request.method:
                return route, {name: segment(text) for name, text in match.groupdict().items()}
            allowed.append(route.method)
        if not allowed:
            text = "no such path. GET /openapi.json tells which there are."
            raise _NoRoute(Fault(code="no_route", message=text))
        names = ", ".join(sorted(allowed))
        raise _NoRoute(
            Fault(code="method_not_allowed", message=f"this path takes {names}."), {"allow": names}
        )


class Api(ApiBase[BlockingServedQueue, "Pacer"]):
    """Answers requests about the queues of one store, on the thread of the caller. Many threads may use one object.

    >>> api = Api("memory://")
    >>> api.answer(ApiRequest("GET", "/healthz")).status
    200
    """

    _queue_class = BlockingServedQueue

    def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer a request; blocks for at most about ``deadline_s``. Raises nothing."""
        notes: dict[str, Any] = {}
        try:
            runner, flow = self._call(request, notes)
            done = BlockingDriver(self.store, self.machine).run(flow) if runner is None else runner._run(flow)
            return success(done, notes)
        except Exception as error:  # noqa: BLE001 - told in the answer
            return failed(error, notes)

    def _new_pacer(self, name: str) -> Pacer:
        from ..pacer.blocking import Pacer  # here: few requests are about pacers

        return Pacer(self.store, name, machine=self.machine)

    def close(self) -> None:
        """Release connections."""
        self.store.close()


class _NoRoute(Exception):
    """Nothing answers this request."""

    def __init__(self, fault: Fault, headers: dict[str, str] | None = None) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.headers = headers or {}


def _every_route() -> tuple[Route, ...]:
    from ..contract.operations import ROUTES  # a function that has a few of them never loads what these name

    return ROUTES


def _operation(route: Route) -> Any:
    return getattr(import_module(f".{route.module}", __package__), route.name)


def failed(error: Exception, notes: dict[str, Any]) -> ApiResponse:
    """The answer to what an operation raised."""
    if isinstance(error, _NoRoute):
        return failure(error.fault, notes, error.headers)
    if isinstance(error, OsqueueError):
        return failure(fault_of(error), notes)
    log.error("a request failed", exc_info=error)
    return failure(Fault(code="internal", message="the server failed. Its log tells why."), notes)


def success(done: Any, notes: dict[str, Any]) -> ApiResponse:
    """The answer to what an operation brought."""
    answer = done if isinstance(done, StatusAnswer) else StatusAnswer(200, done)
    if answer.body is None:
        return ApiResponse(answer.status, notes=notes)
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    if len(body) > ANSWER_BYTES_MAX:
        raise TooLarge(
            f"the answer has {len(body):,} bytes; the API gives {ANSWER_BYTES_MAX:,}. Ask for less at once, or connect"
            " to the store itself."
        )
    return ApiResponse(answer.status, body, {"content-type": JSON}, notes=notes)


def failure(
    fault: Fault, notes: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> ApiResponse:
    """The answer that reports a fault."""
    status = STATUS.get(fault.code, 500)
    more = {"content-type": JSON, **(headers or {})}
    if status in (429, 503):
        more["retry-after"] = str(math.ceil(fault.retry_after or RETRY_AFTER_S))
    return ApiResponse(status, msgspec.json.encode(Failure(error=fault)), more, fault.code, notes or {})
