"""The server: a request in, an answer out, whatever the request.

Nothing here knows of Lambda. ``Api.answer`` finds the route, opens the queue, runs the operation and puts what it
answers or raises into words. It always answers in time, and never with a stack trace.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .. import forks, limits
from ..clock import MACHINE, Machine
from ..contract.error_codes import STATUS, TooLarge, fault_of
from ..contract.functions import BODY_BYTES_MAX
from ..contract.operations import ROUTES, Route, pattern
from ..contract.schemas import Failure, Fault
from ..errors import OsqueueError
from ..stores.address import open_store
from ..stores.base import Store
from ..stores.counting import CountingStore
from .answers import ANSWER_BYTES_MAX, StatusAnswer
from .reading import Pairs, query_of, segment
from .request import CachedQueue, HeadListener, RequestContext

if TYPE_CHECKING:
    from ..events import Sink

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


class ApiResponse(Struct, frozen=True):
    """An answer of the API."""

    status: int
    body: bytes = b""  # JSON; empty: none
    headers: dict[str, str] = {}
    code: str = ""  # of a failure
    notes: dict[str, Any] = {}  # what a log may say about the request


class Api:
    """Answers requests about the queues of one store.

    ``store`` is a store or its address, ``routes`` which requests it answers, ``sinks`` receive every transition
    it commits, ``hearing`` every head that it reads or writes. One object may be used by many threads.

    >>> api = Api("memory://")
    >>> api.answer(ApiRequest("GET", "/healthz")).status
    200
    """

    def __init__(
        self,
        store: Store | str,
        *,
        routes: Iterable[Route] = ROUTES,
        machine: Machine = MACHINE,
        sinks: Iterable[Sink] = (),
        hearing: HeadListener | None = None,
    ) -> None:
        opened = open_store(store, machine) if isinstance(store, str) else store
        self.store = opened if isinstance(opened, CountingStore) else CountingStore(opened)
        self.machine = machine
        self.sinks = tuple(sinks)
        self._hearing = hearing
        self.routes = tuple(routes)
        self._patterns = [(route, pattern(route)) for route in self.routes]
        self._queues: OrderedDict[str, CachedQueue] = OrderedDict()
        self._lock = forks.lock()

    def load(self) -> None:
        """Load what the routes need, which the first request for each would otherwise do."""
        for route in self.routes:
            _operation(route)

    def close(self) -> None:
        """Release connections."""
        self.store.close()

    def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer a request; blocks for at most about ``deadline_s``. Raises nothing."""
        until = self.machine.monotonic() + request.deadline_s
        notes: dict[str, Any] = {}
        try:
            route, path = self._route(request)
            notes["operation"] = route.name
            notes.update((name, text[: limits.ID_CHARS_MAX]) for name, text in path.items())
            if len(request.body) > BODY_BYTES_MAX:
                raise TooLarge(f"the body has {len(request.body):,} bytes; the API takes {BODY_BYTES_MAX:,}.")
            query = query_of(route, request.query)
            context = RequestContext(
                route, path, query, request.body, self.machine, self.store, until, self.queue, notes
            )
            return _success(_operation(route)(context), notes)
        except _NoRoute as none:
            return failure(none.fault, notes, none.headers)
        except OsqueueError as error:
            return failure(fault_of(error), notes)
        except Exception:
            log.exception("a request failed")
            return failure(Fault(code="internal", message="the server failed. Its log tells why."), notes)

    def queue(self, name: str) -> CachedQueue:
        """A queue, kept warm for the next request. Raises Rejected for a name that means nothing."""
        with self._lock:
            found = self._queues.get(name)
            if found is None:
                found = CachedQueue(self.store, name, self._hearing, machine=self.machine, sinks=self.sinks)
                self._queues[name] = found
                if len(self._queues) > QUEUES_MAX:
                    self._queues.popitem(last=False)
            self._queues.move_to_end(name)
            return found

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


class _NoRoute(Exception):
    """Nothing answers this request."""

    def __init__(self, fault: Fault, headers: dict[str, str] | None = None) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.headers = headers or {}


def _operation(route: Route) -> Any:
    return getattr(import_module(f".{route.module}", __package__), route.name)


def _success(done: Any, notes: dict[str, Any]) -> ApiResponse:
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
