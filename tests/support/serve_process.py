"""``osqueue serve`` in a process of its own, what it logs, and which processes it has started."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE


class Server:
    """A running ``osqueue serve``."""

    def __init__(self, *arguments: str) -> None:
        self.log: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "osqueue", "serve", *arguments, "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said, self.log
        self.url: str = json.loads(said)["url"]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line) if line.startswith("{") else {"message": line})

    def children(self) -> list[int]:
        """The processes that it has started."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        for task in tasks:
            found += (task / "children").read_text().split()
        return sorted({int(each) for each in found})

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        if number != signal.SIGKILL:
            self._reader.join(PATIENCE)  # all that it said
        return code


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    server = Server(*arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
