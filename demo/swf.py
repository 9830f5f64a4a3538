"""Reads logs in the Standard Workload Format: one job a line, 18 numbers each, ``;`` before comments.

The format belongs to the Parallel Workloads Archive, which keeps logs of real machines in it. A log may be
plain or gzip-compressed; jobs are read one at a time, so a log of any length fits.

    for job in read_jobs("demo/data/nasa-ipsc-1993.swf.gz"):
        print(job.submit_s, job.run_s, job.processors)
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import fields

UNKNOWN = -1  # how the format says that a value was not recorded
GZIP_MAGIC = b"\x1f\x8b"
LINE_BYTES_MAX = 4096  # a longer line is no line of a log
HEADER_FIELD = re.compile(r"; ?([A-Za-z]\w*):\s*(.*)")


class SwfError(ValueError):
    """A file is not a readable log. The message names the file, the line and, where it can, the field."""


class SwfJob(Struct, frozen=True):
    """One job as it was logged, its fields in the format's order. ``-1`` means unknown everywhere."""

    number: int  # the job's number in the log, rising from 1; a cleaned log has gaps
    submit_s: int  # when it was submitted, seconds since the log's start
    wait_s: int  # between submission and start, seconds
    run_s: int  # wall-clock time it ran, seconds
    processors: int  # processors it was given, count
    cpu_s: float  # CPU time used, averaged over its processors, seconds
    memory_kb: float  # memory used, averaged over its processors, kilobytes
    requested_processors: int  # processors it asked for, count
    requested_s: float  # time it asked for, seconds (wall clock or CPU: the header says)
    requested_memory_kb: float  # memory it asked for per processor, kilobytes
    status: int  # 1 completed, 0 failed, 5 cancelled; 2 to 4 are parts of a job logged in pieces
    user: int  # who ran it, a number from 1
    group: int  # the user's group, a number from 1
    application: int  # the program it ran, a number from 1
    queue: int  # the batch queue it was put in; 0 is interactive
    partition: int  # the part of the machine it ran on, a number from 1
    after_job: int  # it could start only when the job of this number had ended
    think_s: int  # between the end of that job and this one's submission, seconds


class SwfHeader(Struct, frozen=True):
    """What a log says about itself in the comments before its first job."""

    fields: dict[str, tuple[str, ...]]  # by key; a repeated key keeps every value, in order

    def text(self, key: str) -> str | None:
        """The first value of a key, or None where the log does not have it."""
        return self.fields.get(key, (None,))[0]

    def number(self, key: str) -> int | None:
        """The first value of a key as a whole number, or None where it is absent or not one."""
        value = self.text(key)
        return int(value) if value is not None and re.fullmatch(r"-?[0-9]+", value) else None


COLUMNS = tuple((field.name, {"int": int, "float": float}[field.type.__name__]) for field in fields(SwfJob))


def read_jobs(path: str | Path) -> Iterator[SwfJob]:
    """The jobs of a log in the file's order, one at a time. Raises SwfError at the first damaged line."""
    with log_lines(Path(path)) as lines:
        for number, line in lines:
            words = line.split()
            if words and not words[0].startswith(";"):
                yield parse_job(words, path, number)


def read_header(path: str | Path) -> SwfHeader:
    """The comments before a log's first job. A line indented further continues the value above it."""
    found: dict[str, list[str]] = {}
    key: str | None = None
    with log_lines(Path(path)) as lines:
        for _, line in lines:
            if line.strip() and not line.startswith(";"):
                break
            comment = line[1:].strip()
            if match := HEADER_FIELD.match(line):
                key = match[1]
                found.setdefault(key, []).append(match[2].strip())
            elif comment and key is not None:
                found[key][-1] = f"{found[key][-1]}\n{comment}".strip()
            else:
                key = None
    return SwfHeader({name: tuple(values) for name, values in found.items()})


def parse_job(words: list[str], path: str | Path, line: int) -> SwfJob:
    """One job from a line's words; SwfError names the first word that is wrong."""
    if len(words) != len(COLUMNS):
        damaged(path, line, f"it has {len(words)} fields where a job has {len(COLUMNS)}")
    values = []
    for place, (word, (name, kind)) in enumerate(zip(words, COLUMNS, strict=True), start=1):
        try:
            value = kind(word) if word.isascii() and "_" not in word else None
        except ValueError:
            value = None
        if value is None or not UNKNOWN <= value < float("inf"):
            wanted = "a whole number" if kind is int else "a number"
            damaged(
                path, line, f"field {place} ({name}) is {word[:40]!r}, not {wanted} of at least {UNKNOWN}"
            )
        values.append(value)
    return SwfJob(*values)


@contextmanager
def log_lines(path: Path) -> Iterator[Iterator[tuple[int, str]]]:
    """A log's lines with their numbers from 1, unpacked on the way when the file is gzip-compressed."""
    with path.open("rb") as raw:
        packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    with gzip.open(path, "rb") if packed else path.open("rb") as source:

        def lines() -> Iterator[tuple[int, str]]:
            number = 0
            while True:
                number += 1
                try:
                    line = source.readline(LINE_BYTES_MAX)
                except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                    raise SwfError(
                        f"{path}, line {number}: the compressed file is damaged ({error})"
                    ) from error
                if not line:
                    return
                if len(line) == LINE_BYTES_MAX:
                    damaged(path, number, f"it is longer than {LINE_BYTES_MAX} bytes")
                yield number, line.decode("utf-8", errors="replace")

        yield lines()


def damaged(path: str | Path, line: int, what: str) -> NoReturn:
    raise SwfError(f"{path}, line {line}: {what}")
