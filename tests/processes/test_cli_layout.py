"""Tables as a person sees them on a narrow terminal: one thing a line, ids whole."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from osqueue import Queue


def on_a_terminal(columns: int, *args: str) -> list[str]:
    """The lines that a person sees on a terminal of that width."""
    mine, its = pty.openpty()
    termios.tcsetwinsize(its, (24, columns))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "osqueue", *args],
        stdin=its,
        stdout=its,
        stderr=its,
        env={**environment, "TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(its)
    seen = b""
    while True:
        try:
            data = os.read(mine, 65536)
        except OSError:  # the terminal is closed
            break
        if not data:
            break
        seen += data
    os.close(mine)
    assert process.wait(60) == 0, seen
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).splitlines()


@pytest.mark.parametrize("columns", [80, 100])
def test_jobs_are_one_line_each_on_a_narrow_terminal(columns: int, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/jobs?fsync=off"
    with Queue.connect(address, "emails") as q:
        ids = [q.enqueue(n, kind="welcome").job_id for n in range(3)]
        (first, _) = q.claim(2, worker="a-host-with-a-long-name-4711")
        first.fail("mailbox full " * 20, retry_in=3600)
    lines = on_a_terminal(columns, "queue", "jobs", address, "emails")
    assert max(map(len, lines)) <= columns
    states = {}
    for job_id in ids:
        (line,) = [line for line in lines if job_id in line]
        states[line.split()[1]] = line
    assert set(states) == {"failing", "processing", "queued"}
    head = next(line for line in lines if "attempt" in line)
    at = head.index("attempt")
    assert {state: line[at:].split()[0] for state, line in states.items()} == {
        "failing": "1",
        "processing": "1",
        "queued": "0",
    }
    assert "…" in states["failing"]
    lines = on_a_terminal(columns, "queue", "ls", address)
    assert max(map(len, lines)) <= columns
    assert [line.split() for line in lines if "emails" in line] == [
        ["emails", "no", "1", "1", "0", "1", "0", *next(x for x in lines if "emails" in x).split()[7:]]
    ]
