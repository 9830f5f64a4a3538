"""The stack as a whole: what is started, how requests find their way, how everything ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO
from urllib.parse import parse_qs, quote

import msgspec

from ..aws_calls import WAKES_VARIABLE
from ..aws_calls.identity import ENDPOINT_VARIABLE
from ..clock import MACHINE
from ..contract.functions import FUNCTIONS, GATEWAY_TIMEOUT_S, FunctionSpec, deployed_name
from ..contract.route import QUEUES
from ..errors import Rejected, Unavailable, shown
from .consumers import LocalConsumer, read_consumers
from .environment import arn_of, check_installed, environment_of, functions_folder, handler_of, store_address
from .front import FrontServer
from .gateway import Gateway, StackRequest, StackResponse, message
from .instance import INIT_S_MAX, TERMINATE_S, LaunchSpec
from .invocation import Invocation, InvocationResult
from .invoke import PREFIX, InvokeApi
from .log import OnLine, ProcessLog
from .pool import PATIENCE_S, InstanceStatus, Pool
from .schedule import InvocationSchedule

NAME = "osqueue-dev"  # functions are called as if they were deployed under it
STORE = "file://.osqueue-dev/store"
PROCESSES = 4
PROCESSES_MAX = 64
PORT_MAX = 65_535
SCHEDULE_S_MIN, SCHEDULE_S_MAX = 0.1, 7 * 86_400
DRAIN_S = 10.0  # for which running requests may finish when the stack stops

# Ends with whoever holds the other end of its input, and takes every process of its group along: however the stack
# ends, no frozen process stays behind.
WARDEN = "import os, sys; sys.stdin.buffer.read(); os.killpg(0, 9)"


class Stack:
    """The functions, and what stands around them, from ``with`` to its end.

    ``store`` is the address that the functions work on. ``port`` 0 picks a free one. Each function may have
    ``processes`` instances at a time; they start when they are needed, and a request waits ``patience_s`` for one
    before it is throttled. ``schedule_seconds`` makes the schedule's interval another than the table's; 0 is none.
    ``functions`` is a folder of handlers to run in place of the library's own; ``variables`` are added to their
    environment; ``table`` says which there are. ``consumers`` are functions of the user's own, such as
    ``emails=mailer/handler.py``: they are attached to their queues, and invoked when jobs wait. Lines of the functions'
    processes go to ``log``, and ``on_line`` is called with each. ``page`` is asked for the URL of a page for people, to
    which ``/`` leads; None: there is none.

    Raises Rejected for what cannot be started, NotInstalled where a package is missing, Unavailable when the port is
    taken.
    """

    def __init__(
        self,
        store: str = STORE,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        processes: int = PROCESSES,
        schedule_seconds: float | None = None,
        functions: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
        table: Sequence[FunctionSpec] = FUNCTIONS,
        consumers: Sequence[str] = (),
        patience_s: float = PATIENCE_S,
        gateway_timeout_s: float = GATEWAY_TIMEOUT_S,
        log: TextIO | None = None,
        on_line: OnLine | None = None,
        page: Callable[[], str | None] | None = None,
    ) -> None:
        if not 1 <= processes <= PROCESSES_MAX:
            raise Rejected(f"processes: from 1 to {PROCESSES_MAX}", field="processes")
        if not 0 <= port <= PORT_MAX:
            raise Rejected(f"port: from 1 to {PORT_MAX}; 0 picks a free one", field="port")
        if schedule_seconds and not SCHEDULE_S_MIN <= schedule_seconds <= SCHEDULE_S_MAX:
            raise Rejected(
                f"schedule_seconds: from {SCHEDULE_S_MIN:g} to {SCHEDULE_S_MAX}; 0 for no schedule",
                field="schedule_seconds",
            )
        check_installed()
        self.store = store_address(store)
        self.functions = functions_folder(functions, table)
        self.log = ProcessLog(log, on_line)
        self._variables = variables or {}
        self._host, self._port = host, port
        self._processes = processes
        self._schedule_seconds = schedule_seconds
        self._table = table
        self.consumers = read_consumers(consumers)
        self._patience_s = patience_s
        self._gateway_timeout_s = gateway_timeout_s
        self._page = page
        self._warden: subprocess.Popen[bytes] | None = None
        self._front: FrontServer | None = None
        self._pools: dict[str, Pool] = {}
        self._schedules: list[InvocationSchedule] = []

    # ── Begin and end ────────────────────────────────────────────────────────
    def start(self) -> None:
        """Listen, and start the schedule. Functions start when they are called."""
        try:
            self._front = front = FrontServer(self._host, self._port, self._reply, self.log)
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {self._host}:{self._port} ({error.strerror or error}). Choose another port; 0"
                " picks a free one.",
                permanent=True,
            ) from None
        self._warden = subprocess.Popen(  # noqa: S603 - this Python, on a line of ours
            [sys.executable, "-I", "-S", "-c", WARDEN], stdin=subprocess.PIPE, process_group=0
        )
        room = (self._processes, self._patience_s)
        self._pools = {
            each.name: Pool(self._launch(each, *handler_of(each, self.functions)), *room)
            for each in self._table
        }
        for consumer in self.consumers:
            spec = consumer.spec
            self._pools[spec.name] = Pool(self._launch(spec, consumer.file.parent, consumer.handler), *room)
        self._gateway = Gateway(self._pools, front.authority, self._gateway_timeout_s)
        self._invoke_api = InvokeApi(self._pools, NAME)
        self._schedules = [
            InvocationSchedule(self._pools[each.name], seconds, self.log)
            for each in self._table
            if (seconds := self._interval(each))
        ]
        front.start()
        for schedule in self._schedules:
            schedule.start()
        try:
            for consumer in self.consumers:
                self._attach(consumer)
        except BaseException:
            self.stop()
            raise

    def _attach(self, consumer: LocalConsumer) -> None:
        """Attach a consumer to its queue as a deployment does. Raises Unavailable where that cannot be."""
        wished = {"target": deployed_name(NAME, consumer.spec.name), "max_concurrency": self._processes}
        event = {
            "method": "PATCH",
            "path": f"{QUEUES}/{quote(consumer.queue, safe='')}",
            "body": {"consumers": {consumer.name: wished}},
        }
        outcome = self.invoke("queues", event, patience_s=INIT_S_MAX + PATIENCE_S)
        if outcome.failed or json.loads(outcome.payload)["status"] != HTTPStatus.OK:
            raise Unavailable(
                f"consumer {consumer.name} cannot be attached to queue {consumer.queue}:"
                f" {outcome.payload.decode(errors='replace')}",
                permanent=True,
            )

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Take no more requests, let running ones finish for a while, end every process. Safe to repeat."""
        for schedule in self._schedules:
            schedule.stop()
        if self._front is not None and not self._front.stop(drain_s):
            self.log.write("stack", f"requests still ran after {drain_s:g} s; they end now")
        for pool in self._pools.values():
            pool.close()
        until = MACHINE.monotonic() + TERMINATE_S
        for pool in self._pools.values():
            pool.join(until)
        if self._warden is not None:
            # A fork of ours has the other end of its input, too, so that the input does not end with us.
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended already
                os.killpg(self._warden.pid, signal.SIGKILL)
            self._warden.communicate()
        self._front = self._warden = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    # ── While it runs ────────────────────────────────────────────────────────
    @property
    def url(self) -> str:
        """Where the API is: an address for ``Queue.connect``, and the endpoint for a Lambda client."""
        assert self._front is not None, "the stack is not running"
        return f"http://{self._front.authority}"

    def invoke(self, function: str, event: object, patience_s: float | None = None) -> InvocationResult:
        """Invoke a function directly and wait for its outcome.

        Raises Rejected for a function that is none, NoInstance when all are busy for that long.
        """
        invocation = Invocation(json.dumps(event).encode())
        self._pool(function).invoke(invocation, patience_s)
        return invocation.wait()

    def crash(self, function: str) -> InstanceStatus | None:
        """Kill one of a function's processes, in the middle of a request if one runs. None: there is none.

        Raises Rejected for a function that is none.
        """
        return self._pool(function).crash()

    def requests(self) -> int:
        """How many requests are being answered."""
        return 0 if self._front is None else self._front.running

    def instances(self) -> list[InstanceStatus]:
        """Every process there is."""
        return [seen for pool in self._pools.values() for seen in pool.instances()]

    # ── How it is put together ───────────────────────────────────────────────
    def _pool(self, function: str) -> Pool:
        if function not in self._pools:
            raise Rejected(
                f"function: there is no {shown(function)}; there are {', '.join(self._pools)}.",
                field="function",
            )
        return self._pools[function]

    def _launch(self, function: FunctionSpec, folder: Path, handler: str) -> LaunchSpec:
        environment = environment_of(function, NAME, self.store, folder, handler)
        if self.consumers:
            environment |= {WAKES_VARIABLE: "lambda", f"{ENDPOINT_VARIABLE}_LAMBDA": self.url}
        environment |= self._variables
        assert self._warden is not None
        return LaunchSpec(
            function=function,
            arn=arn_of(function, NAME, environment["AWS_REGION"]),
            command=(sys.executable, "-m", "awslambdaric", handler),
            folder=folder,
            environment=environment,
            group=self._warden.pid,
            log=self.log,
        )

    def _interval(self, function: FunctionSpec) -> float:
        """Seconds between the schedule's invocations; 0: none."""
        if function.schedule_minutes is None:
            return 0
        if self._schedule_seconds is not None:
            return self._schedule_seconds
        return function.schedule_minutes * 60

    def _reply(self, request: StackRequest) -> StackResponse:
        if request.path.startswith(PREFIX):
            return self._invoke_api.answer(request)
        if request.path.startswith("/_dev/"):
            return self._control(request)
        if request.path == "/" and request.method == "GET" and self._page is not None:
            url = self._page()
            if url is not None:
                return StackResponse(307, (("Location", url), ("Cache-Control", "no-store")))
        return self._gateway.answer(request)

    def _control(self, request: StackRequest) -> StackResponse:
        """What AWS does not have: looking at the processes, and killing one."""
        if (request.method, request.path) == ("GET", "/_dev/instances"):
            return _json({"instances": self.instances()})
        if (request.method, request.path) == ("POST", "/_dev/crash"):
            name = parse_qs(request.query).get("function", [""])[0]
            if name not in self._pools:
                return message(404, f"no function {name!r}; there are {', '.join(self._pools)}")
            return _json({"killed": self.crash(name)})
        return message(404, "Not Found")


def _json(value: object) -> StackResponse:
    return StackResponse(200, (("Content-Type", "application/json"),), msgspec.json.encode(value))
