"""One instance of a function: a process of the runtime client, which has one invocation at a time.

A thread of its own keeps it: it starts the process, serves it the Runtime API, stops it at the function's timeout,
and tells the pool what became of it. Between invocations the process is frozen, as in Lambda: it gets no CPU at all.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from ..clock import MACHINE
from ..contract.functions import FunctionSpec
from .invocation import Invocation, InvocationResult, exit_failure, failure
from .log import ProcessLog
from .runtime import RuntimeConnection

INIT_S_MAX = 60.0  # a process that has not asked for its first event by then is stopped
TERMINATE_S = 2.0  # from SIGTERM to SIGKILL

InstanceState = Literal["starting", "running", "frozen", "ended"]


class LaunchSpec(Struct, frozen=True):
    """How processes of a function are started."""

    function: FunctionSpec
    arn: str
    command: Sequence[str]
    folder: Path  # the process's working directory
    environment: Mapping[str, str]
    group: int | None  # the process group they join
    log: ProcessLog


class InstanceOwner(Protocol):
    """The pool that an instance belongs to."""

    def next_for(self, instance: Instance) -> Invocation | None:
        """What the instance should do next; None: nothing for now, and it may freeze."""

    def gone(self, instance: Instance) -> None:
        """The instance has ended."""


class Instance:
    """A process and its keeper."""

    def __init__(self, launch: LaunchSpec, owner: InstanceOwner) -> None:
        self.function = launch.function
        self.arn = launch.arn
        self.state: InstanceState = "starting"
        self.fault: InvocationResult | None = None  # why it never became ready
        self.killed = False  # its process has been: whatever it still asked for, it takes no more
        self.box: queue.SimpleQueue[Invocation | None] = (
            queue.SimpleQueue()
        )  # what it is given; None: the end
        self._launch = launch
        self._owner = owner
        self._running: Invocation | None = None
        self._deadline: float | None = MACHINE.monotonic() + INIT_S_MAX
        self._deadline_ms = 0
        self._lock = threading.Lock()  # between starting the process and ending it
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._exited = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4)
        self._keeper = threading.Thread(target=self._keep, name=f"{self.function.name} keeper", daemon=True)
        self._reader = threading.Thread(target=self._read, name=f"{self.function.name} log", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name=f"{self.function.name} end", daemon=True)

    @property
    def pid(self) -> int | None:
        """The process's id, once it runs."""
        return None if self._process is None else self._process.pid

    @property
    def busy(self) -> bool:
        """Whether somebody waits for its answer."""
        running = self._running
        return running is not None and not running.finished

    def start(self) -> None:
        """Begin."""
        self._keeper.start()

    def kill(self) -> int | None:
        """End the process at once, whatever it does (SIGKILL), as a crash would. Answers its id."""
        with self._lock:
            if self._process is not None:
                self.killed = True
                self._process.kill()
            return self.pid

    def stop(self) -> None:
        """Ask the process to end (SIGTERM); it has ``TERMINATE_S`` for it. Returns at once."""
        with self._lock:
            self._stopping = True
            if self._process is not None:
                self._process.terminate()
                self._process.send_signal(signal.SIGCONT)  # a frozen process hears nothing
        self.box.put(None)
        self._knock()

    def join(self, seconds: float) -> bool:
        """Wait for the end; answers whether it came."""
        self._keeper.join(seconds)
        return not self._keeper.is_alive()

    # ── What the runtime client asks and says ────────────────────────────────
    def next(self) -> Invocation | None:
        """The next invocation for the process; frozen until there is one."""
        self._running = None
        self._deadline = None
        invocation = self._owner.next_for(self)
        if invocation is None:
            self._signal(signal.SIGSTOP)
            self.state = "frozen"
            invocation = self.box.get()
            if invocation is None:
                return None
            self._signal(signal.SIGCONT)
        self.state = "running"
        self._running = invocation
        self._deadline = MACHINE.monotonic() + self.function.timeout_s
        self._deadline_ms = MACHINE.now_ms() + self.function.timeout_s * 1000
        return invocation

    def ended(self, request_id: str, outcome: InvocationResult) -> bool:
        """The process says how its invocation ended."""
        if self._running is None or self._running.request_id != request_id:
            return False
        self._running.finish(outcome)
        return True

    def init_failed(self, outcome: InvocationResult) -> None:
        """The handler could not be loaded."""
        self.fault = outcome

    def seconds_left(self) -> float | None:
        """Until the process is stopped."""
        return None if self._deadline is None else max(self._deadline - MACHINE.monotonic(), 0.001)

    def deadline_ms(self) -> int:
        """When the running invocation is stopped, in milliseconds since the epoch."""
        return self._deadline_ms

    # ── The keeper ───────────────────────────────────────────────────────────
    def _keep(self) -> None:
        try:
            if self._spawn():
                self._reader.start()
                self._watcher.start()
                self._serve()
                self._listener.close()  # a client whose connection ends tries another one, and has to fail
                self._bury()
        finally:
            self._listener.close()
            self.state = "ended"
            self._owner.gone(self)

    def _spawn(self) -> bool:
        launch = self._launch
        port = self._listener.getsockname()[1]
        with self._lock:
            if self._stopping:
                return False
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the runtime client, on a handler of ours
                    launch.command,
                    cwd=launch.folder,
                    env={**launch.environment, "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{port}"},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    process_group=launch.group,
                )
            except (OSError, TypeError, ValueError) as error:  # the last two: variables that are none
                self.fault = failure(
                    "Runtime.InvalidEntrypoint", f"the process could not be started: {error}"
                )
                self._note(f"cannot start: {error}")
                return False
        return True

    def _serve(self) -> None:
        """Answer the runtime client until its process has ended, or has to."""
        while not (self._exited.is_set() or self._stopping):
            self._listener.settimeout(self.seconds_left())
            try:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(ConnectionError):
                    RuntimeConnection(connection, self)
            except TimeoutError:
                pass
            if self._deadline is not None and MACHINE.monotonic() >= self._deadline:
                self._time_out()
                return

    def _time_out(self) -> None:
        running = self._running
        if running is None:
            self.fault = failure("Sandbox.Timedout", f"Error: Init timed out after {INIT_S_MAX:.0f} seconds")
            self._note("did not ask for an event in time")
        elif not running.finished:
            text = f"Task timed out after {self.function.timeout_s:.2f} seconds"
            running.finish(failure("Sandbox.Timedout", f"RequestId: {running.request_id} Error: {text}"))
            self._note(f"{running.request_id} {text}")
        self.kill()

    def _bury(self) -> None:
        """Wait for the process's end, for a while, and tell who waits for it."""
        process = self._process
        assert process is not None
        try:
            process.wait(TERMINATE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join(TERMINATE_S)  # a child of its own may hold its output open
        running = self._running
        if running is not None and not running.finished:
            running.finish(exit_failure(running.request_id, process.returncode))
        elif running is None and self._deadline is not None and self.fault is None:  # it never became ready
            self.fault = exit_failure("", process.returncode)
        if not self._stopping:
            self._note(f"process {process.pid} ended ({process.returncode})")

    def _read(self) -> None:
        """Bring what the process writes to the log."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._launch.log.write(self.function.name, line.decode(errors="replace").rstrip("\r\n"))

    def _watch(self) -> None:
        """Bring the process's end to the keeper, also where a child of its own holds its output open."""
        assert self._process is not None
        self._process.wait()
        self._exited.set()
        self.box.put(None)
        self._knock()

    def _knock(self) -> None:
        """Wake the keeper where it waits for a connection."""
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.getsockname(), 1).close()

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None and not self._stopping:
                self._process.send_signal(number)

    def _note(self, text: str) -> None:
        self._launch.log.write("stack", f"{self.function.name}: {text}")
