"""The child processes: started together, ended together, and one of them killed without warning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from demo.plan import ReplayPlan

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 10.0  # for a child to finish what it is at


class Crashed(Exception):
    """A process ended that should not have. The message holds the last it said."""


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a child: it finds the library of this checkout."""
    paths = [str(ROOT / "layers/osqueue/python"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **(variables or {})}


class ChildProcesses:
    """The processes of a replay. Leaving the ``with`` block ends every one of them."""

    def __init__(self, plan: ReplayPlan, plan_path: Path) -> None:
        self.plan = plan
        self.plan_path = plan_path
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: str | None = None
        self.served: set[str] = set()  # processes that do not listen to their input, and end by SIGTERM

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Start one of the replay's own programs."""
        self.run(name, module, str(self.plan_path), *arguments)

    def run(
        self, name: str, module: str, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start a process in a session of its own: the terminal's Ctrl-C is for the parent to act on.

        ``variables`` are added to its environment.
        """
        with self.plan.output(name).open("wb") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=environment(variables),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def serve(
        self, name: str, module: str, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start a server: it ends when the others, which need it, have ended."""
        self.served.add(name)
        self.run(name, module, *arguments, variables=variables)

    def check(self) -> None:
        """Raise Crashed when a process has failed that nobody killed."""
        for name, process in self.processes.items():
            if process.poll() not in (None, 0) and name != self.killed:
                said = self.plan.output(name).read_text(errors="replace").strip()
                raise Crashed(f"{name} ended with status {process.returncode}.\n{said[-2000:]}")

    def ended(self, names: Sequence[str]) -> bool:
        """Have these processes done their work?"""
        return all(self.processes[name].poll() == 0 for name in names)

    def pid(self, name: str) -> int:
        return self.processes[name].pid

    def freeze(self, name: str) -> None:
        """Stop a process where it stands, so that what it holds can be looked at."""
        self.processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        """kill -9: the process gets no chance to say good-bye."""
        self.killed = name
        self.processes[name].kill()
        self.processes[name].wait()

    def dismiss(self) -> None:
        """Tell every process that it is over, the latest first, and wait until it has ended."""
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for name, process in reversed(self.processes.items()):
            if name in self.served:
                process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> ChildProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()
