"""Processes that run the same command, started, stopped and replaced together: of ``osqueue worker`` and ``serve``."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import msgspec

from ..signals import ending_signals, has_no_effect
from .exits import USAGE

PARENT = "OSQUEUE_PARENT"  # of a process's environment: its standard input ends with whoever started it
METRICS_PORT = "--metrics-port"  # of the first process; the others have those behind it
PAUSE_SECONDS_FIRST = 1.0  # before a process that ended by itself is replaced, doubled up to …
PAUSE_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.5  # between two looks at the files, with --reload
JOIN_SECONDS = 0.5  # a signal is heard between two looks at the processes

log = logging.getLogger("osqueue.worker")


class ProcessCrew:
    """Processes that run the same command. One that fails is replaced; a wrong command ends all."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        watched: str | None = None,
        what: str = "worker",
        descriptors: Sequence[int] = (),
    ) -> None:
        self.commands = commands
        self.what = what  # for the log
        self.descriptors = descriptors  # that the processes inherit
        self.watched = watched  # a folder: when a file of Python in it changes, all processes begin anew
        self.answers: list[dict[str, Any]] = []  # what those said that ended well
        self.refused = False  # the command is wrong: a process has said why
        self._children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._changed = threading.Event()  # since the last process began
        self._reloads = 0

    def run(self) -> None:
        """Start them, and return when all have ended."""
        threads = [threading.Thread(target=self._keep, args=(command,)) for command in self.commands]
        with self._signals():
            for thread in threads:
                thread.start()
            if self.watched is not None:
                threading.Thread(target=self._watch, args=(self.watched,), daemon=True).start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(JOIN_SECONDS)

    def stop(self) -> None:
        """Have every process drain; the second time, end now."""
        with self._lock:
            self._stopping.set()
            for child in self._children:
                child.terminate()

    def _watch(self, folder: str) -> None:
        before = sources(folder)
        while not self._stopping.wait(LOOK_SECONDS):
            now = sources(folder)
            if now == before:
                continue
            names = sorted(os.path.relpath(path, folder) for path, _ in now.items() ^ before.items())
            log.info("%s changed: the %s begins anew", ", ".join(dict.fromkeys(names)), self.what)
            before = now
            with self._lock:
                self._reloads += 1
                self._changed.set()
                for child in self._children:
                    child.terminate()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = ending_signals()
        before = [signal.signal(number, self._on_signal) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not has_no_effect(number, ending=self._stopping.is_set()):
            self.stop()

    def _keep(self, command: Sequence[str]) -> None:
        pause = PAUSE_SECONDS_FIRST
        while True:
            with self._lock:
                if self._stopping.is_set():
                    return
                reloads = self._reloads
                self._changed.clear()
                # A session of its own: Ctrl-C at a terminal comes from here, once.
                child = subprocess.Popen(  # noqa: S603 - this very command
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=self.descriptors,
                    env={**os.environ, PARENT: "1"},
                )
                self._children.append(child)
            assert child.stdout is not None
            said = child.stdout.read()
            code = child.wait()
            with self._lock:
                self._children.remove(child)
            if code == 0:
                self.answers += [msgspec.json.decode(line) for line in said.splitlines()]
            if self._reloads > reloads:
                pause = PAUSE_SECONDS_FIRST
                continue
            if code == 0:
                return
            if self.watched is not None:  # whoever is at work on the code mends it
                log.error(
                    "the %s's process ended with %d; another one begins when a file changes", self.what, code
                )
                while not (self._changed.wait(JOIN_SECONDS) or self._stopping.is_set()):
                    pass
                continue
            if code == USAGE:
                self.refused = True
                self.stop()
                return
            if not self._stopping.is_set():
                log.error("a %s's process ended with %d; another one begins in %g s", self.what, code, pause)
            self._stopping.wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)


def sources(folder: str) -> dict[str, int]:
    """When each file of Python in a folder was changed; hidden folders and what is installed there do not count."""
    found: dict[str, int] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [
            each
            for each in folders
            if each[0] not in "._" and not os.path.exists(os.path.join(place, each, "pyvenv.cfg"))
        ]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                with suppress(OSError):  # gone since
                    found[path] = os.stat(path).st_mtime_ns
    return found


def command_of(args: Sequence[str], at: int, name: str | None) -> list[str]:
    """The command of one process, made from the arguments of all."""
    kept: list[str] = []
    rest = iter(args)
    for arg in rest:
        option, _, value = arg.partition("=")
        if arg == "--processes":
            next(rest)
        elif option == METRICS_PORT:
            kept += [METRICS_PORT, str(int(value or next(rest)) + at - 1)]
        elif arg != "--reload" and not arg.startswith("--processes="):
            kept.append(arg)
    names = [] if name is None else ["--name", f"{name}-{at}"]
    return [sys.executable, "-m", "osqueue", "worker", *kept, *names, "--json"]


def end_with_parent() -> None:
    """Drain when whoever started this process is gone, killed or not."""
    if not os.environ.pop(PARENT, ""):
        return

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
