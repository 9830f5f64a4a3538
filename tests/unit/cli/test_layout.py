"""Tables on narrow terminals: one thing a line, what has to be copied or compared whole."""

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
from osqueue.cli.layout import GAP_CELLS, Layout, layout
from osqueue.cli.output import cell

NAMES = ("job_id", "state", "kind", "attempt", "enqueued_at", "worker", "error")
ROW = (
    "j" * 36,
    "processing",
    "welcome",
    "1",
    "2026-11-21 12:00:00Z",
    "host-4711-abcdef",
    "mailbox full " * 9,
)


def width(found: Layout) -> int:
    return sum(each.width for each in found.columns) + GAP_CELLS * (len(found.columns) - 1)


@pytest.mark.parametrize("room", [80, 100, 120, 250])
def test_a_table_of_jobs_fits(room: int) -> None:
    found = layout(NAMES, [ROW], "-", room)
    assert width(found) <= room
    widths = {each.name: each.width for each in found.columns}
    assert widths["job_id"] == 36
    assert widths["state"] == 10
    assert widths["error"] >= 8
    assert {*widths, *found.left_out} == set(NAMES)
    assert (found.left_out == ()) is (room >= 120)


def test_a_column_without_anything_in_it_is_dropped() -> None:
    found = layout(NAMES, [(*ROW[:5], "-", "-")], "-", 200)
    assert [each.name for each in found.columns] == list(NAMES[:5])
    assert found.left_out == ()


def test_a_long_head_takes_two_lines_before_anything_is_cut() -> None:
    (column,) = layout(("oldest_seconds",), [("1",)], "-", 10).columns
    assert (column.head, column.width) == ("oldest\nseconds", 10)


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


def test_an_empty_list_is_shown_as_nothing() -> None:
    assert [cell(value) for value in ([], None, "", 0, ["a"])] == ["-", "-", "-", "0", '["a"]']
