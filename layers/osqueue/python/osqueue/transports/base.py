"""The port of transports: one call in, one reply out.

Like a store, a transport raises nothing for a call that brings no answer: it replies ``Lost``. What is repeated, and
for how long, is decided in one place, ``osqueue.remote.calling``; no transport repeats anything by itself.
"""

from __future__ import annotations

import base64
import re
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..clock import MACHINE, Machine
from ..errors import OsqueueError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from ..api.routes import Route

CALLS_AT_ONCE_MAX = 32  # of the coroutines that share a transport
CONNECT_SECONDS_MAX = 5.0  # until a connection stands
CALL_SECONDS_DEFAULT = 30.0  # for a call that names no time of its own

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")


class Call(Struct, frozen=True):
    """One request of the API, as an effect."""

    route: Route
    path: dict[str, str]  # the path's parameters
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""  # JSON; empty: none
    timeout: float | None = None  # seconds; None: the transport's own


class Answer(Struct, frozen=True):
    """What came back: a status of HTTP and a JSON body."""

    status: int
    body: bytes = b""


class Lost(Struct, frozen=True):
    """No answer came back."""

    error: OsqueueError
    sent: bool = True  # it may have arrived, or may still do so; False: it certainly did not


Reply = Answer | Lost


class Transport(ABC):
    """One API, and how its functions are reached. Heirs say what ``send`` does."""

    remote = True  # for drivers: calls take long enough to be made side by side

    def __init__(self, machine: Machine = MACHINE) -> None:
        self._machine = machine
        self._lock = threading.Lock()
        self._requests = {"get": 0, "post": 0, "patch": 0, "delete": 0}
        self._threads: tuple[int, ThreadPoolExecutor] | None = None  # with the process they belong to

    @property
    @abstractmethod
    def place(self) -> object:
        """Tells this API from others."""

    @abstractmethod
    def send(self, call: Call) -> Reply:
        """Make one call, once, and wait for its answer. May raise Rejected for what can never be sent."""

    @property
    def requests(self) -> dict[str, int]:
        """How many calls were made, by method of HTTP in lower case; those that failed, too."""
        with self._lock:
            return dict(self._requests)

    def perform(self, call: Call) -> Reply:
        """Make one call and wait for its answer."""
        self._count(call)
        try:
            return self.send(call)
        except OsqueueError as error:
            return Lost(error, sent=False)

    async def perform_async(self, call: Call) -> Reply:
        """The same for a coroutine."""
        self._count(call)
        try:
            return await self.send_async(call)
        except OsqueueError as error:
            return Lost(error, sent=False)

    async def send_async(self, call: Call) -> Reply:
        """``send`` for a coroutine: on a thread, because the clients for HTTP and Lambda block."""
        import asyncio  # here, because blocking callers never need it

        return await asyncio.get_running_loop().run_in_executor(self._pool(), self.send, call)

    def close(self) -> None:
        """Release connections and threads. The transport may be used again; it then opens new ones."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None and threads[0] == self._machine.process():
            threads[1].shutdown(wait=False)

    def _count(self, call: Call) -> None:
        method = call.route.method.lower()
        with self._lock:
            self._requests[method] = self._requests.get(method, 0) + 1

    def _pool(self) -> ThreadPoolExecutor:
        process = self._machine.process()
        with self._lock:
            if self._threads is None or self._threads[0] != process:  # a fork's child has no threads
                from concurrent.futures import (
                    ThreadPoolExecutor,
                )  # here, because blocking callers never need it

                self._threads = (process, ThreadPoolExecutor(CALLS_AT_ONCE_MAX, "osqueue-call"))
            return self._threads[1]


def call(name: str, **more: Any) -> Call:
    """A call of the route of this name."""
    from ..api.routes import BY_NAME  # here, because an embedded queue needs no routes

    return Call(BY_NAME[name], **more)


def path_of(call: Call) -> str:
    """The path of a call. All that stands in it can stand in a URL as it is, however often it is quoted on the way."""
    return call.route.path.format_map({name: _segment(text) for name, text in call.path.items()})


def _segment(text: str) -> str:
    """A parameter in a path: text that might be taken for something else travels as ``~`` and its base64url."""
    if _PLAIN.fullmatch(text) and text.strip("."):
        return text
    return "~" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
