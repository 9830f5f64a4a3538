"""Worker processes that stay for many short rounds, so that sides can take turns without starting anew.

A crew's worker reads a line of JSON, the order; opens what it names, does one job to be warm (the process that
``creates`` it always, the others once in their life) and prints ``ready``.
It reads a second line with the moment of the start, on the monotonic clock that all processes of a machine share,
and the length of the round; works; and prints one line of JSON. Closing its input ends it.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from bench.fleet import PATIENCE_S, READY, ROOT, Answer

HEAD_START_S = 0.03  # in which every process has heard of the start


class BenchCrew:
    """Several processes of one command. Use it in a ``with``."""

    def __init__(
        self, command: Sequence[str], size: int, environment: Mapping[str, str] | None = None
    ) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "layers/osqueue/python"),
            "PYTHONHASHSEED": "0",
            **(environment or {}),
        }
        self.command = command
        self.workers = [
            subprocess.Popen(
                command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for _ in range(size)
        ]

    def round(self, size: int, seconds: float, **order: Any) -> list[Answer]:
        """The answers of the first ``size`` processes to one order. One opens before the others, and creates."""
        first, *others = self.workers[:size]
        watchdog = threading.Timer(PATIENCE_S, self.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            for few in ([first], others):
                for worker in few:
                    self.tell(worker, {**order, "creates": worker is first})
                for worker in few:
                    if (line := self.line(worker).strip()) != READY:
                        raise RuntimeError(f"{' '.join(self.command)} said {line!r} instead of {READY!r}")
            start = time.monotonic() + HEAD_START_S
            for worker in (first, *others):
                self.tell(worker, {"start": start, "seconds": seconds})
            return [json.loads(self.line(worker)) for worker in (first, *others)]
        finally:
            watchdog.cancel()

    def tell(self, worker: subprocess.Popen[str], message: dict[str, Any]) -> None:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(message) + "\n")
        worker.stdin.flush()

    def line(self, worker: subprocess.Popen[str]) -> str:
        assert worker.stdout is not None
        if not (line := worker.stdout.readline()):
            raise RuntimeError(f"{' '.join(self.command)} ended with status {worker.wait()}")
        return line

    def kill(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()

    def __enter__(self) -> BenchCrew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        for worker in self.workers:
            worker.communicate()
