"""Tiny functions for the local stack: one handler that does what its event asks, in a folder for each name."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from osqueue.contract.functions import FUNCTIONS, FunctionSpec
from osqueue.devstack import Stack
from tests.support.patience import PATIENCE

HANDLER = """
import json, os, signal, subprocess, sys, threading

def terminated(number, frame):
    print("terminated", os.getpid())
    sys.exit(0)

def spin():
    while True:
        pass

def handler(event, context):
    ask = event
    if "requestContext" in event:
        ask = json.loads(event.get("body") or "{}")
        if not isinstance(ask, dict):
            ask = {}
    do = ask.get("do")
    if do == "answer":
        return ask["value"]
    if do == "raise":
        raise ValueError("as asked")
    if do == "hold":
        print("holding", os.getpid())
        open(ask["until"]).read()  # a pipe: until somebody opens its other end and closes it
        print("released", os.getpid())
    if do == "exit":
        print("last words", flush=True)
        os._exit(ask["code"])
    if do == "leave":  # and a child stays behind, which has the output
        child = "import sys; open(sys.argv[1]).read()"
        subprocess.Popen([sys.executable, "-I", "-S", "-c", child, ask["until"]])
        if "code" in ask:
            os._exit(ask["code"])
    if do == "listen":
        signal.signal(signal.SIGTERM, terminated)
        print("listening", os.getpid())
    if do == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if do == "spin":
        threading.Thread(target=spin, daemon=True).start()
    if do == "large":
        return "x" * ask["size"]
    if do == "environment":
        return dict(os.environ)
    if do == "context":
        return {
            "request_id": context.aws_request_id,
            "name": context.function_name,
            "arn": context.invoked_function_arn,
            "memory": context.memory_limit_in_mb,
            "left_ms": context.get_remaining_time_in_millis(),
            "custom": getattr(context.client_context, "custom", None),
            "folder": os.getcwd(),
        }
    return {"event": event, "pid": os.getpid()}
"""


def lay_out(folder: Path, source: str = HANDLER, names: Sequence[str] = ()) -> Path:
    """A folder of functions, each with this handler."""
    for name in names or [each.name for each in FUNCTIONS]:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "handler.py").write_text(source)
    return folder


class Lines:
    """What the stack logged, and a way to wait for it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self._changed = threading.Condition()

    def __call__(self, who: str, line: str) -> None:
        with self._changed:
            self.seen.append((who, line))
            self._changed.notify_all()

    def of(self, who: str) -> list[str]:
        with self._changed:
            return [line for name, line in self.seen if name == who]

    def wait(self, who: str, starts: str, count: int = 1) -> list[str]:
        """The lines that begin so, once there are that many."""

        def found() -> list[str]:
            return [line for name, line in self.seen if name == who and line.startswith(starts)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, PATIENCE), self.seen
            return found()


class Gate:
    """A pipe in the file system: a handler that reads it is held until it is opened."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.path = folder / name
        os.mkfifo(self.path)

    @property
    def ask(self) -> dict[str, Any]:
        return {"do": "hold", "until": str(self.path)}

    def open(self) -> None:
        """Let the one that reads go on."""
        self.path.open("w").close()


def tiny_stack(folder: Path, lines: Lines | None = None, **more: Any) -> Stack:
    """A stack over tiny functions."""
    functions = more.pop("functions", None) or lay_out(folder / "functions")
    more.setdefault("schedule_seconds", 0)
    more.setdefault("patience_s", PATIENCE)
    return Stack(f"file://{folder}/store", functions=functions, on_line=lines, **more)


def function(name: str, **more: Any) -> FunctionSpec:
    """An entry of the table."""
    return FunctionSpec(name, "for tests", more.pop("timeout_s", 20), more.pop("memory_mb", 128), **more)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], bool], why: str) -> None:
    """For what tells nobody when it happens: another process's state."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, why
        time.sleep(0.005)


def stat_of(pid: int) -> tuple[str, int]:
    """A process's state and the clock ticks it has used, from the kernel."""
    return _stat(Path(f"/proc/{pid}"))


def is_stopped(pid: int) -> bool:
    """Whether every thread of it is: they do not stop at the same moment."""
    return all(_stat(thread)[0] == "T" for thread in Path(f"/proc/{pid}/task").iterdir())


def _stat(place: Path) -> tuple[str, int]:
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])
