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


class RunResult(Struct, frozen=True):
    """What a run of a job answers: its result in the queue."""

    n: int  # the job's number in the log
    attempt: int  # which of its attempts this was


class Sent(Struct, frozen=True, omit_defaults=True):
    """A producer sent a job, and what the queue answered."""

    number: int  # in the log
    job_id: str
    status: str  # queued, duplicate or completed
    state: str | None = None  # in which the job was
    id: str | None = None  # the id that it was sent under
    result: RunResult | None = None  # completed: what the queue had kept


class Wait(Struct, frozen=True, omit_defaults=True):
    """A caller waited for the result of the job it had sent."""

    number: int
    id: str
    seconds: float  # from the call to the result
    at_ms: int  # when it had the result, Unix time
    late: bool = False  # its time was up before; it read the result later
    result: RunResult | None = None
    error: str = ""  # what it got instead


class RunStart(Struct, array_like=True, frozen=True):
    """A worker begins to run a job."""

    job_id: str
    number: int  # the job's number in the log, as its payload says
    attempt: int
    run_s: int  # how long it ran in 1993, as its payload says


class RunEnd(Struct, array_like=True, frozen=True):
    """A worker reported the end of a run, and the queue has acknowledged it.

    The queue granted the lease while the claim was under way, and ended it while the report was. So the time between
    these two, which the archive tells, lies between the worker's two measurements.
    """

    job_id: str
    attempt: int
    least_ms: int  # from the claim's return to the report's call
    most_ms: int  # from the claim's call to the report's return


class JournalEntry(Struct, omit_defaults=True, frozen=True):
    """One step of one process."""

    requests: dict[str, int] = {}  # what the process has asked of the store so far, by kind
    sent: list[Sent] = []
    waited: list[Wait] = []
    started: list[RunStart] = []
    completed: list[RunEnd] = []
    failed: list[RunEnd] = []
    lost: list[str] = []  # ids of jobs that had gone to somebody else
    beaten: int = 0  # leases that a heartbeat extended
    reaps: int = 0  # passes of the reaper


class Journal:
    """An open journal, to write. Several threads may do so."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, entry: JournalEntry) -> None:
        os.write(self._file, msgspec.json.encode(entry) + b"\n")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def read_journal(path: Path) -> Iterator[JournalEntry]:
    """The whole lines of a journal; none when the process never came to write one."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=JournalEntry)
