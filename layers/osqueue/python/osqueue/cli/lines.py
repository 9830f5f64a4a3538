"""JSON lines as jobs: reading them in bounded memory, checking them, cutting them into batches."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

import click
import msgspec
from msgspec import Struct

from .. import limits
from ..core.encoding import cut_by_weight
from ..errors import Rejected
from ..model.job_options import check_item, columns_of
from .options import json, moment

LINE_BYTES_MAX = 64 * 1024 * limits.KB  # longer payloads go in through the library
BATCH_JOBS = 20_000  # in one call to the queue
BATCH_BYTES = 16 * 1024 * limits.KB  # of their lines
REMOTE_JOBS = (
    limits.ITEMS_PER_REQUEST_MAX
)  # the same over an API: what fits into one request, and so in one commit
REMOTE_BYTES = 4 * 1024 * limits.KB
SPOOL_BYTES = 8 * 1024 * limits.KB  # of standard input kept in memory before it goes to a temporary file

JOB_EXAMPLE = 'a job and its options: {"payload": ..., "delay": 5}'
REMEDY = "Write one JSON value a line; text needs its quotes."


class InputLine(Struct, frozen=True):
    """One line of input: the job it is, or what is wrong with it."""

    number: int  # from 1
    item: dict[str, Any] | None
    size: int  # bytes
    error: Rejected | None = None


def read_lines(stream: IO[bytes], first: int = 1) -> Iterator[tuple[int, bytes]]:
    """Numbered lines from number ``first`` on. Blank ones are passed over; one that is too long comes cut."""
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        data = line
        while len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            line = stream.readline(LINE_BYTES_MAX + 1)  # the rest of it
        if number == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")  # a byte order mark
        if number >= first and (len(data) > LINE_BYTES_MAX or data.strip()):
            yield number, data


def read_jobs(
    stream: IO[bytes], first: int, as_items: bool, defaults: Mapping[str, Any]
) -> Iterator[InputLine]:
    """Jobs from lines. Each line is a payload, or with ``as_items`` a mapping of the options of enqueue."""
    for number, data in read_lines(stream, first):
        try:
            yield InputLine(number, _item(data, as_items, defaults), len(data))
        except Rejected as error:
            yield InputLine(number, None, len(data), error)


def _item(data: bytes, as_items: bool, defaults: Mapping[str, Any]) -> dict[str, Any]:
    payload = json_line(data)
    if not as_items:
        return {"payload": payload, **defaults}
    item = _times({**defaults, **fields_of(payload, JOB_EXAMPLE)})
    refuse_bad(item)
    return item


def json_line(data: bytes) -> msgspec.Raw:
    """The JSON of a line; raises Rejected."""
    if len(data) > LINE_BYTES_MAX:
        raise Rejected(
            f"longer than {LINE_BYTES_MAX:,} bytes. Enqueue it through the library.", field="payload"
        )
    try:
        return json(data)
    except click.BadParameter as error:
        why = error.message.partition(" Text needs")[0]
        raise Rejected(f"{why} {REMEDY}", field="payload") from None


def fields_of(line: msgspec.Raw, example: str) -> dict[str, Any]:
    """The fields of a mapping in JSON, with payloads and results kept as they were written; raises Rejected."""
    try:
        raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise Rejected(f"not a mapping. Write {example}.") from None
    kept = ("payload", "result")
    return {name: value if name in kept else msgspec.json.decode(value) for name, value in raw.items()}


def _times(item: dict[str, Any]) -> dict[str, Any]:
    if isinstance(item.get("at"), str):
        try:
            item["at"] = moment(item["at"])
        except click.BadParameter as error:
            raise Rejected(f"at: {error.message}", field="at") from None
    return item


def refuse_bad(item: Mapping[str, Any]) -> None:
    """What the queue would refuse in an item, before anything is sent; raises Rejected."""
    columns_of(check_item(item))


def batches(
    jobs: Iterable[InputLine], flush: Callable[[list[InputLine]], None], remote: bool = False
) -> None:
    """Hand the jobs over in batches of bounded number and size."""
    count, most = (REMOTE_JOBS, REMOTE_BYTES) if remote else (BATCH_JOBS, BATCH_BYTES)
    for batch in cut_by_weight(jobs, lambda line: line.size, most, count):
        flush(batch)


def rereadable(stream: IO[bytes]) -> IO[bytes]:
    """The stream itself if it can be read twice, else a copy of all it has, on disk where it is large."""
    try:
        if stream.seekable():
            stream.seek(stream.tell())
            return stream
    except OSError:
        pass
    copy = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115 - lives as long as the command
    shutil.copyfileobj(stream, copy, length=1024 * limits.KB)
    copy.seek(0)
    return copy
