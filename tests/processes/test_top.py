"""``osqueue top`` as a process on a terminal: it shows, obeys keys, and leaves the terminal as it was."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from tests.support.patience import PATIENCE

COMMAND = [sys.executable, "-m", "osqueue.cli", "top"]
SHOWN, HIDDEN = "\x1b[?1049h", "\x1b[?1049l"  # the alternate screen begins, and ends


class Screen:
    """A terminal with ``osqueue top`` on it."""

    def __init__(self, address: str) -> None:
        self.mine, self.its = pty.openpty()
        self.resize(30, 120)
        self.before = termios.tcgetattr(self.its)
        env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        for name in ("COLUMNS", "LINES"):
            env.pop(name, None)
        self.process = subprocess.Popen(
            [*COMMAND, address, "--every", "500ms"],
            stdin=self.its,
            stdout=self.its,
            stderr=self.its,
            env=env,
        )
        self.seen = ""

    def resize(self, lines: int, cells: int) -> None:
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, cells, 0, 0))

    def press(self, keys: str) -> None:
        self.seen = ""
        os.write(self.mine, keys.encode())

    def see(self, text: str) -> None:
        """Wait until it was on the screen since the last keys."""
        while text not in self.seen:
            ready, _, _ = select.select([self.mine], [], [], PATIENCE)
            assert ready, f"no {text!r} in {self.seen!r}"
            self.seen += os.read(self.mine, 65536).decode(errors="replace")

    def ended(self) -> int:
        """Wait for the end; the terminal has to be as before."""
        self.see(HIDDEN)
        code = self.process.wait(PATIENCE)
        assert termios.tcgetattr(self.its) == self.before
        assert "Traceback" not in self.seen
        return code


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


@pytest.fixture
def q(address: str) -> Queue[Any]:
    return Queue.connect(address, "emails")  # type: ignore[no-any-return]


@pytest.fixture
def screen(address: str, q: Queue[Any]) -> Iterator[Screen]:
    q.enqueue_many([{"payload": n, "kind": "welcome"} for n in range(7)])
    q.claim(2, worker="host-1")
    Queue.connect(address, "reports").enqueue(1)
    shown = Screen(address)
    try:
        shown.see(SHOWN)
        shown.see("reports")
        yield shown
    finally:
        shown.process.kill()
        shown.process.wait()
        os.close(shown.mine)
        os.close(shown.its)


def test_keys_show_a_queue_pause_it_and_quit(screen: Screen, q: Queue[Any]) -> None:
    screen.see("2 queues")
    screen.press("\r")
    screen.see("host-1: 2 since")
    screen.see("welcome: 2 running")
    screen.press("\x1b")
    screen.see("reports")
    screen.press("p")
    screen.see("pause emails? y/n")
    screen.press("n")
    screen.see("q quit")
    assert not q.stats()["paused"]
    screen.press("p")
    screen.see("pause emails? y/n")
    screen.press("y")
    screen.see("emails is paused")
    assert q.stats()["paused"]
    screen.press("q")
    assert screen.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(screen: Screen, number: signal.Signals) -> None:
    screen.process.send_signal(number)
    assert screen.ended() == 0


def test_it_is_drawn_anew_when_the_terminal_has_another_size(screen: Screen) -> None:
    screen.press("/emai")
    screen.see("only queues with: emai_")
    screen.seen = ""
    screen.resize(10, 60)
    screen.process.send_signal(signal.SIGWINCH)  # as the kernel does to those whose terminal it is
    screen.see("only queues with: emai_")
    screen.press("\rq")
    assert screen.ended() == 0


def test_without_a_terminal_it_is_one_line_of_json_a_queue_in_order(address: str, q: Queue[Any]) -> None:
    q.enqueue(1)
    Queue.connect(address, "reports").enqueue_many([{"payload": n} for n in range(3)])
    done = subprocess.run(
        [*COMMAND, address],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert [json.loads(line)["queue"] for line in done.stdout.splitlines()] == ["reports", "emails"]
