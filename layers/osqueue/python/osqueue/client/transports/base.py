"""The port of transports: one call in, one reply out.

Like a store, a transport raises nothing for a call that brings no answer: it replies ``LostCall``. What is repeated,
and for how long, is decided in one place, ``osqueue.client.call``; no transport repeats anything by itself.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ... import forks
from ...clock import MACHINE, Machine
from ...commit.effects import RemoteRequest
from ...errors import NotSupported, OsqueueError, Unavailable
from ...stores.counting import Opening
from ...threads import DaemonThreads

if TYPE_CHECKING:
    from ...contract.route import Route

CALLS_AT_ONCE_MAX = 32  # of the coroutines that share a transport
CONNECT_SECONDS_MAX = 5.0  # until a connection stands
REFUSED_SECONDS_MAX = (
    1.0  # for which this machine's own refusals are borne: what has just begun may not listen yet
)
CALL_SECONDS_DEFAULT = 30.0  # for a call that names no time of its own

# What an answer raises that is no JSON, no UTF-8, or nested too deeply.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

C = TypeVar("C")

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")


class ApiCall(RemoteRequest, frozen=True):
    """One request of the API, as an effect."""

    route: Route
    path: dict[str, str]  # the path's parameters
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""  # JSON; empty: none
    timeout: float | None = None  # seconds; None: the transport's own


class Transfer(RemoteRequest, frozen=True):
    """A content on its way past the API: a request that the API has signed, to wherever it says."""

    method: str
    url: str  # begins with a slash: below the API's own address
    headers: dict[str, str]
    body: bytes = b""
    bytes_max: int = 0  # of the answer's body, which is of interest
    timeout: float | None = None  # seconds; None: the transport's own


class ApiAnswer(Struct, frozen=True):
    """What came back: a status of HTTP and a JSON body."""

    status: int
    body: bytes = b""


class LostCall(Struct, frozen=True):
    """No answer came back."""

    error: OsqueueError
    sent: bool = True  # it may have arrived, or may still do so; False: it certainly did not
    seconds: float | None = None  # for how long it is worth trying again; None: as long as the caller likes


CallOutcome = ApiAnswer | LostCall


class Transport(ABC):
    """One API, and how its functions are reached. Subclasses implement ``send``."""

    remote = True  # for drivers: calls take long enough to be made side by side
    reply_s_max = 0.0  # for drivers: each call has its time

    def __init__(self, machine: Machine = MACHINE) -> None:
        self._machine = machine
        self._lock = forks.lock()
        self._requests = {"get": 0, "post": 0, "put": 0, "patch": 0, "delete": 0}
        self.opening: Opening | None = None  # how another process opens it; None: it cannot
        self._threads = DaemonThreads("osqueue-call", CALLS_AT_ONCE_MAX, awaited=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the address. Credentials come from the environment of the process that opens it."""
        if self.opening is None:
            raise NotSupported(
                "this object cannot be sent to another process: its transport was not opened by an address."
                " Remedy: Queue.connect('https://…', …).",
                field="address",
            )
        return self.opening

    @property
    @abstractmethod
    def place(self) -> object:
        """Distinguishes this API from others."""

    @abstractmethod
    def send(self, call: ApiCall) -> CallOutcome:
        """Make one call, once, and wait for its answer. May raise Rejected for what can never be sent."""

    @property
    def requests(self) -> dict[str, int]:
        """How many calls were made, by method of HTTP in lower case; those that failed, too."""
        with self._lock:
            return dict(self._requests)

    def carry(self, transfer: Transfer) -> CallOutcome:
        """Make one transfer, once, and wait for its end."""
        raise Unavailable("this transport carries no contents past the API.", permanent=True)

    def perform(self, call: ApiCall | Transfer) -> CallOutcome:
        """Make one call and wait for its answer."""
        self._count(call)
        try:
            return self.carry(call) if isinstance(call, Transfer) else self.send(call)
        except OsqueueError as error:
            return LostCall(error, sent=False)

    async def perform_async(self, call: ApiCall | Transfer) -> CallOutcome:
        """The same for a coroutine."""
        self._count(call)
        try:
            if isinstance(call, Transfer):
                return await self._on_thread(self.carry, call)
            return await self.send_async(call)
        except OsqueueError as error:
            return LostCall(error, sent=False)

    async def send_async(self, call: ApiCall) -> CallOutcome:
        """``send`` for a coroutine: on a thread, because the clients for HTTP and Lambda block."""
        return await self._on_thread(self.send, call)

    async def _on_thread(self, make: Callable[[C], CallOutcome], call: C) -> CallOutcome:
        import asyncio  # here, because blocking callers never need it

        return await asyncio.wrap_future(self._threads.submit(make, call))

    def close(self) -> None:
        """Release connections and threads. The transport may be used again; it then opens new ones."""
        self._threads.close()

    def _count(self, call: ApiCall | Transfer) -> None:
        method = (call.method if isinstance(call, Transfer) else call.route.method).lower()
        with self._lock:
            self._requests[method] = self._requests.get(method, 0) + 1


def call(name: str, **more: Any) -> ApiCall:
    """A call of the route of this name."""
    from ...contract.operations import BY_NAME  # here, because an embedded queue needs no routes

    return ApiCall(BY_NAME[name], **more)


def path_of(call: ApiCall) -> str:
    """The path of a call. All that stands in it can stand in a URL as it is, however often it is quoted on the way."""
    return call.route.path.format_map({name: _segment(text) for name, text in call.path.items()})


def _segment(text: str) -> str:
    """A parameter in a path: text that might be taken for something else travels as ``~`` and its base64url."""
    if _PLAIN.fullmatch(text) and text.strip("."):
        return text
    return "~" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def host_of(url: str) -> str:
    """Scheme, host and port of a URL: all of it that a message may contain."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def unreached(url: str, error: BaseException) -> LostCall:
    """No connection to the API at ``url`` came about. What refuses on this very machine will hardly listen soon."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConnectionRefusedError):
        cause = cause.__cause__ or cause.__context__
    local = is_loopback(urlsplit(url).hostname or "")
    remedy = "'osqueue dev' starts one." if local else "Check the address."
    text = f"{host_of(url)} cannot be reached: no connection. Does an API run there? {remedy}"
    return LostCall(
        Unavailable(text), sent=False, seconds=REFUSED_SECONDS_MAX if cause is not None and local else None
    )


def is_loopback(host: str) -> bool:
    """Is it this machine, as a URL names it?"""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
