"""The files of the library that an enqueue and a complete run through, embedded and over HTTP.

A file counts once one of its functions runs. Every call is made several times before it is traced: what is imported,
opened or looked up only once does not count. ``python -m bench.path`` prints the files in the order in which a call
first reaches them, so whoever wants to read the way of a call knows where to begin.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import osqueue
from osqueue import Queue
from osqueue.client.transports.address import open_transport
from osqueue.contract import functions
from osqueue.contract.operations import ROUTES
from osqueue.contract.route import Route, pattern
from osqueue.devstack.gateway import StackRequest, event_of

LIBRARY = Path(osqueue.__file__).parent
HOST = "127.0.0.1:80"
STORE = "memory://path"  # the shortest store, so the figures are the library's own
GATEWAY = "devstack/"  # stands for Amazon's here, which nobody reads
WARM_UP = 3  # calls before the one that is traced


class FileTracer:
    """Notes the library's files whose functions run, on every thread that starts while it is installed."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._on = False

    @contextmanager
    def installed(self) -> Iterator[FileTracer]:
        """Trace this thread and all that start from now on."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def of(self, call: Callable[[], Any]) -> list[str]:
        """The files of one call, in the order in which it reaches them."""
        before = self.files, self._on
        found: list[str] = []
        self.files, self._on = found, True
        try:
            call()
        finally:
            self.files, self._on = before
        return found

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if not self._on or event != "call" or frame.f_code.co_name == "<module>":
            return
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(LIBRARY):
            name = path.relative_to(LIBRARY).as_posix()
            if name not in self.files and not name.startswith(GATEWAY):
                self.files.append(name)


class _Context:
    """What Lambda tells a function of an invocation."""

    aws_request_id = "path"
    function_name = "osqueue-path"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:osqueue-path"

    def get_remaining_time_in_millis(self) -> int:
        """Until the function is stopped."""
        return 28_000


class _HttpResponse:
    """An answer, as the client of HTTP gives it."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.status: int = answer["statusCode"]
        self._body: bytes = answer.get("body", "").encode()

    def __enter__(self) -> _HttpResponse:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def read(self, _: int) -> bytes:
        """The body."""
        return self._body


class _FunctionsInProcess:
    """In the place of the client's connections: the gateway's events, answered by the functions in this process."""

    def __init__(self, tracer: FileTracer) -> None:
        from osqueue.aws_lambda import Function

        self._tracer = tracer
        with redirect_stdout(StringIO()):  # what they log
            self._functions = {name: Function(name) for name in ("enqueue", "claim", "complete")}
        self._routes: list[tuple[Route, Any]] = [(route, pattern(route)) for route in ROUTES]

    def request(
        self, method: str, url: str, *, body: bytes, headers: dict[str, str], **_: Any
    ) -> _HttpResponse:
        """One request."""
        asked = StackRequest(method, url.partition(HOST)[2], tuple(headers.items()), body)
        [(route, found)] = [
            (route, match)
            for route, form in self._routes
            if route.method == method and (match := form.fullmatch(asked.path))
        ]
        event = event_of(asked, route, found.groupdict(), HOST)
        answers: list[dict[str, Any]] = []
        handler = self._functions[route.function]
        self.files = self._tracer.of(lambda: answers.append(handler(event, _Context())))
        return _HttpResponse(answers[0])


def _calls(q: Queue[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for at in range(WARM_UP):
        q.enqueue({"n": at})
    yield "enqueue", lambda: q.enqueue({"n": WARM_UP})
    leases = q.claim(limit=WARM_UP + 1)
    for lease in leases[:-1]:
        lease.complete("done")
    yield "complete", lambda: leases[-1].complete("done")


def paths() -> dict[str, list[str]]:
    """The files of each call, in order, by its name."""
    found: dict[str, list[str]] = {}
    tracer = FileTracer()
    environment = {
        functions.STORE: STORE,
        functions.SERVICE: "osqueue-path",
    }
    with patch.dict(os.environ, environment), tracer.installed():
        for name, call in _calls(Queue.connect(STORE, "embedded")):
            found[f"{name}, embedded"] = tracer.of(call)
        transport: Any = open_transport(f"http://{HOST}")
        server = _FunctionsInProcess(tracer)
        transport._pools = (os.getpid(), server)
        for name, call in _calls(Queue(transport, "http")):
            found[f"{name} over HTTP, its caller"] = tracer.of(call)
            found[f"{name} over HTTP, its function"] = server.files
    return found


def main() -> None:
    """Print every path."""
    for name, files in paths().items():
        print(f"{name}: {len(files)} files")
        for file in files:
            print(f"  {file}")


if __name__ == "__main__":
    main()
