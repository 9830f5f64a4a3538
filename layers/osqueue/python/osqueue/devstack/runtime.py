"""The Lambda Runtime API: how the runtime client in an instance's process fetches events and brings outcomes."""

from __future__ import annotations

import json
import re
import socket
from typing import Protocol

from .invocation import ANSWER_BYTES_MAX, Invocation, InvocationResult, failure
from .wire import BadRequest, BodyTooLarge, HttpConnection

NEXT = "/2018-06-01/runtime/invocation/next"
INIT_ERROR = "/2018-06-01/runtime/init/error"
_ENDED = re.compile(r"/2018-06-01/runtime/invocation/([^/]+)/(response|error)")


class RuntimeInstance(Protocol):
    """The instance that a runtime client works for."""

    arn: str

    def next(self) -> Invocation | None:
        """The next invocation, once there is one; None when there will be none."""

    def ended(self, request_id: str, outcome: InvocationResult) -> bool:
        """The client brings an outcome. Answers whether it is the running invocation's."""

    def init_failed(self, outcome: InvocationResult) -> None:
        """The client cannot load the handler."""

    def seconds_left(self) -> float | None:
        """How long the client may take to its next request; None: as long as it likes."""

    def deadline_ms(self) -> int:
        """When the running invocation is stopped, in milliseconds since the epoch."""


class RuntimeConnection(HttpConnection):
    """One connection of a runtime client. It falls silent (TimeoutError) when the client has taken too long."""

    def __init__(self, connection: socket.socket, runtime: RuntimeInstance) -> None:
        self._runtime = runtime
        connection.settimeout(runtime.seconds_left())
        super().__init__(connection, ("", 0), runtime)  # type: ignore[arg-type]

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        """The client asks for the next event, and gets no answer until there is one."""
        if self.path != NEXT:
            self.say(404)
            return
        invocation = self._runtime.next()
        if invocation is None:
            self.close_connection = True
            return
        self.connection.settimeout(self._runtime.seconds_left())
        headers = [
            ("Content-Type", "application/json"),
            ("Lambda-Runtime-Aws-Request-Id", invocation.request_id),
            ("Lambda-Runtime-Deadline-Ms", str(self._runtime.deadline_ms())),
            ("Lambda-Runtime-Invoked-Function-Arn", self._runtime.arn),
            ("Lambda-Runtime-Trace-Id", invocation.trace_id),
        ]
        if invocation.client_context:
            headers.append(("Lambda-Runtime-Client-Context", invocation.client_context))
        self.say(200, headers, invocation.event)

    def do_POST(self) -> None:  # noqa: N802
        """The client brings an outcome."""
        try:
            body = self.read_body(ANSWER_BYTES_MAX)
        except BodyTooLarge:
            self._refuse_answer()
            return
        except BadRequest as error:
            self.close_connection = True
            self._say_json(400, {"errorType": "InvalidRequest", "errorMessage": str(error)})
            return
        if self.path == INIT_ERROR:
            self._runtime.init_failed(InvocationResult(body, failed=True))
            self._say_json(202, {"status": "OK"})
            return
        found = _ENDED.fullmatch(self.path)
        if found is None:
            self.say(404)
        elif self._runtime.ended(found[1], InvocationResult(body, failed=found[2] == "error")):
            self._say_json(202, {"status": "OK"})
        else:
            self._say_json(400, {"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"})

    def _refuse_answer(self) -> None:
        self.close_connection = True  # the answer is not read to its end
        found = _ENDED.fullmatch(self.path)
        text = f"Response payload size exceeded maximum allowed payload size ({ANSWER_BYTES_MAX} bytes)."
        if found is not None:
            self._runtime.ended(found[1], failure("Function.ResponseSizeTooLarge", text))
        self._say_json(413, {"errorType": "RequestEntityTooLarge", "errorMessage": text})

    def _say_json(self, status: int, value: object) -> None:
        self.say(status, [("Content-Type", "application/json")], json.dumps(value).encode())
