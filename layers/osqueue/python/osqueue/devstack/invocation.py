"""One invocation of a function, from the request for it to its outcome."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import Future, InvalidStateError

from msgspec import Struct

from ..clock import MACHINE

EVENT_BYTES_MAX = 6 * 1024 * 1024  # what Lambda takes
ANSWER_BYTES_MAX = 6 * 1024 * 1024 + 100  # what Lambda gives


class InvocationResult(Struct, frozen=True):
    """What came of an invocation."""

    payload: bytes  # JSON: the function's answer, or how it failed
    failed: bool = False


def failure(kind: str, message: str) -> InvocationResult:
    """A failure in Lambda's form."""
    return InvocationResult(json.dumps({"errorType": kind, "errorMessage": message}).encode(), failed=True)


def exit_failure(request_id: str, code: int | None) -> InvocationResult:
    """The failure of an invocation whose process ended under it; ``code`` as ``subprocess`` gives it."""
    if code == -9:
        how = "signal: killed"
    elif code is not None and code < 0:
        how = f"signal: {-code}"
    else:
        how = f"exit status {code}"
    return failure("Runtime.ExitError", f"RequestId: {request_id} Error: Runtime exited with error: {how}")


def new_id() -> str:
    """A fresh request id."""
    return str(uuid.UUID(int=MACHINE.bits(128), version=4))


class Invocation:
    """An event on its way through a function."""

    def __init__(self, event: bytes, client_context: str = "") -> None:
        self.event = event
        self.client_context = client_context  # JSON, or nothing
        self.request_id = new_id()
        self.trace_id = f"Root=1-{MACHINE.now_ms() // 1000:08x}-{MACHINE.bits(96):024x};Sampled=0"
        self.left_queue = threading.Event()  # an instance has it, or it failed without one
        self._outcome: Future[InvocationResult] = Future()

    @property
    def finished(self) -> bool:
        """Whether there is an outcome."""
        return self._outcome.done()

    def finish(self, outcome: InvocationResult) -> None:
        """Set the outcome, if there is none yet: who was first to know is right."""
        try:
            self._outcome.set_result(outcome)
        except InvalidStateError:
            return
        self.left_queue.set()

    def wait(self, seconds: float | None = None) -> InvocationResult:
        """The outcome; raises TimeoutError when there is none after that time."""
        return self._outcome.result(seconds)
