"""Damaged parts of an archive: which are noticed, what is said of them, and that the rest goes on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from osqueue.core.archive_record import encode_part
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.stretch import Compacted
from tests.pipeline.past import Archive, job, jobs, run

GOOD = encode_part([job(number, 8.9) for number in range(100, 400)])
LINES = gzip.decompress(GOOD)


def without(field: str) -> bytes:
    """The records, but one has lost a field."""
    first, *rest = LINES.splitlines()
    record = json.loads(first)
    del record[field]
    return gzip.compress(b"\n".join([json.dumps(record).encode(), *rest]))


def with_(**fields: object) -> bytes:
    """The records, but one has other values."""
    first, *rest = LINES.splitlines()
    return gzip.compress(b"\n".join([*rest, json.dumps(json.loads(first) | fields).encode()]))


DAMAGE: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "cut in the header": lambda: GOOD[:5],
    "cut in the middle": lambda: GOOD[: len(GOOD) // 2],
    "cut by one byte": lambda: GOOD[:-1],
    "a flipped bit": lambda: GOOD[:300] + bytes([GOOD[300] ^ 4]) + GOOD[301:],
    "not compressed": lambda: LINES,
    "a line that is no JSON": lambda: gzip.compress(LINES + b"oh no\n"),
    "a line cut short": lambda: gzip.compress(LINES[:-40]),
    "a number that is text": lambda: with_(finished_ms="yesterday"),
    "attempts that are none": lambda: with_(attempts="many"),
    "a missing state": lambda: without("state"),
    "a missing job id": lambda: without("job_id"),
    "a newer format": lambda: with_(format=2),
    "a priority out of range": lambda: with_(priority=10**10),
    "a run out of range": lambda: with_(run=2**63),
    "a moment out of range": lambda: with_(enqueued_ms=2**63),
}


@pytest.mark.both_engines
def test_damaged_parts_are_counted_and_named_and_the_rest_goes_on(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    bad = [archive.put(9, name.replace(" ", "-"), data()) for name, data in DAMAGE.items()]
    archive.write(10, "00-c", [job(2, 9.9)])
    told = run(engine, archive)
    assert (told.parts, told.jobs) == (2, 2)
    assert sorted(each.part for each in told.aside) == sorted(f"file://{each}" for each in bad)
    assert all(each.why for each in told.aside)
    assert [number for number, *_ in jobs(archive)] == [1, 2]


def test_it_says_what_is_wrong_with_each_damaged_part(engine: Engine, archive: Archive) -> None:
    for name in ("cut in the middle", "a newer format", "empty"):
        archive.put(9, name.replace(" ", "-"), DAMAGE[name]())
    why = {Path(each.part).name.split(".")[0]: each.why for each in run(engine, archive).aside}
    assert why["empty"] == "it is empty"
    assert "newer release. Upgrade osqueue" in why["a-newer-format"]
    assert "is not an archive part: its end is missing" in why["cut-in-the-middle"]


def test_an_hour_of_damaged_parts_alone_is_empty(engine: Engine, archive: Archive) -> None:
    archive.put(9, "00-a", b"")
    archive.put(9, "00-b", GOOD[:-9])
    told = run(engine, archive)
    assert (told.hours, told.emptied, told.parts, told.jobs, len(told.aside)) == (1, 1, 0, 0, 2)


def test_what_a_damaged_part_would_repeat_is_kept(engine: Engine, archive: Archive) -> None:
    """A part of an earlier hour that cannot be read does not have its records."""
    archive.put(9, "00-a", encode_part([job(1, 8.9), *(job(number, 8.9) for number in range(100, 400))])[:-9])
    archive.write(10, "00-b", [job(1, 8.9)])
    assert (run(engine, archive, 10, 11).jobs, jobs(archive)) == (1, [(1, 1, "emails", 10)])


def test_a_mended_part_is_compacted_by_the_next_run(engine: Engine, archive: Archive) -> None:
    archive.put(9, "00-a", GOOD[:-9])
    assert run(engine, archive).jobs == 0
    archive.put(9, "00-a", GOOD)
    assert run(engine, archive) == Compacted(hours=1, parts=1, jobs=300, attempts=300)
