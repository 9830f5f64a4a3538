"""What each process writes down for itself, beside the queue: the other half of the double-entry check.

One line of JSON per step, handed to the system in a single write, so that a process killed at any moment leaves
every line but perhaps its last one whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec
from msgspec import Struct


class Start(Struct, array_like=True, frozen=True):
    """A worker begins to run a job."""

    job_id: str
    number: int  # the job's number in the log, as its payload says
    attempt: int


class Entry(Struct, omit_defaults=True, frozen=True):
    """One step of one process."""

    requests: dict[str, int] = {}  # what the process has asked of the store so far, by kind
    enqueued: list[tuple[int, str]] = []  # number in the log, job id that the queue answered
    started: list[Start] = []
    completed: list[str] = []  # ids whose completion the queue has acknowledged
    failed: list[str] = []  # ids whose failure the queue has acknowledged
    lost: list[str] = []  # ids of jobs that had gone to somebody else
    beaten: int = 0  # leases that a heartbeat extended


class Journal:
    """An open journal, to write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, entry: Entry) -> None:
        os.write(self._file, msgspec.json.encode(entry) + b"\n")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def read_journal(path: Path) -> Iterator[Entry]:
    """The whole lines of a journal; none when the process never came to write one."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=Entry)
