"""Parts set aside: a mark is left of each, and a later run takes its hour up once the part can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from osqueue.core.archive_record import encode_part
from osqueue.pipeline import unfinished
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import compact
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.stretch import Compacted
from tests.pipeline.past import Archive, hour, job, jobs, marks, run

GOOD = encode_part([job(1, 8.9)])
BAD = GOOD[:-9]


def scheduled(engine: Engine, archive: Archive, until: int) -> Compacted:
    """A run over the three hours before one, as a schedule starts it."""
    config = Compaction(str(archive.store), str(archive.tables), hour(until - 3), hour(until), catch_up=True)
    return compact.run(engine, config)


def aside(archive: Archive) -> list[str]:
    """The parts that there are marks of, from their day on."""
    folder = archive.tables / "_unfinished/aside"
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path.relative_to(folder / "queue=emails/date=2026-01-05").as_posix() for path in found)


@pytest.fixture
def damaged(engine: Engine, archive: Archive) -> Path:
    """The part of an hour that a scheduled run has set aside; another part of it was read, and so was a later hour."""
    archive.write(9, "01-b", [job(2, 8.9)])
    archive.write(10, "00-c", [job(1, 8.9), job(3, 9.9)])
    part = archive.put(9, "00-a", BAD)
    assert [each.part for each in scheduled(engine, archive, 11).aside] == [f"file://{part}"]
    assert jobs(archive) == [(1, 1, "emails", 10), (2, 1, "emails", 9), (3, 1, "emails", 10)]
    assert (aside(archive), marks(archive)) == (["hour=09/00-a.jsonl.gz"], [])
    return part


def test_a_part_that_was_mended_is_in_the_tables_after_the_next_scheduled_run(
    engine: Engine, archive: Archive, damaged: Path
) -> None:
    """However late that is; and what a later hour has of it is there once."""
    archive.write(30, "00-d", [job(4, 29.9)])
    scheduled(engine, archive, 31)
    damaged.write_bytes(GOOD)
    told = scheduled(engine, archive, 32)
    assert (told.hours, told.aside, aside(archive), marks(archive)) == (3, (), [], [])
    assert jobs(archive) == [
        (1, 1, "emails", 9),
        (2, 1, "emails", 9),
        (3, 1, "emails", 10),
        (4, 1, "emails", 30),
    ]
    assert scheduled(engine, archive, 33).hours == 1


def test_a_part_damaged_for_good_is_told_by_each_run_and_its_hour_is_not_gone_over(
    engine: Engine, archive: Archive, damaged: Path
) -> None:
    archive.write(30, "00-d", [job(4, 29.9)])
    scheduled(engine, archive, 31)
    told = scheduled(engine, archive, 32)
    assert (told.hours, [each.part for each in told.aside]) == (1, [f"file://{damaged}"])
    assert "is not an archive part" in told.aside[0].why
    assert aside(archive) == ["hour=09/00-a.jsonl.gz"]


def test_the_mark_goes_with_the_part(engine: Engine, archive: Archive, damaged: Path) -> None:
    archive.write(30, "00-d", [job(4, 29.9)])
    scheduled(engine, archive, 31)
    damaged.unlink()
    told = scheduled(engine, archive, 32)
    assert (told.hours, told.aside, aside(archive)) == (1, (), [])


def test_a_run_over_other_hours_leaves_the_mark_and_one_that_reads_the_part_removes_it(
    engine: Engine, archive: Archive, damaged: Path
) -> None:
    damaged.write_bytes(GOOD)
    run(engine, archive, 10, 11)
    assert aside(archive) == ["hour=09/00-a.jsonl.gz"]
    run(engine, archive)
    assert (aside(archive), jobs(archive)[0]) == ([], (1, 1, "emails", 9))


def test_a_part_of_another_queue_is_not_looked_at(engine: Engine, archive: Archive, damaged: Path) -> None:
    damaged.write_bytes(GOOD)
    config = Compaction(str(archive.store), str(archive.tables), hour(8), hour(11), ("mails",), catch_up=True)
    assert compact.run(engine, config).hours == 0
    assert aside(archive) == ["hour=09/00-a.jsonl.gz"]


def test_the_marks_of_a_queue_are_no_more_than_so_many_and_the_oldest_stay(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "UNREAD_MAX", 2)
    for number in (12, 10, 11):
        archive.put(number, "00-a", BAD)
    assert len(run(engine, archive).aside) == 3
    assert aside(archive) == ["hour=10/00-a.jsonl.gz", "hour=11/00-a.jsonl.gz"]


def test_a_run_that_is_killed_has_left_the_mark(engine: Engine, archive: Archive) -> None:
    archive.put(9, "00-a", BAD)

    def killed(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact.run(engine, Compaction(str(archive.store), str(archive.tables)), killed)
    assert aside(archive) == ["hour=09/00-a.jsonl.gz"]


def test_a_store_without_an_archive_takes_no_mark_away(
    engine: Engine, archive: Archive, damaged: Path, tmp_path: Path
) -> None:
    """It is more likely the wrong one than one whose parts are all gone."""
    empty = tmp_path / "empty"
    empty.mkdir()
    config = Compaction(str(empty), str(archive.tables), hour(40), hour(41), catch_up=True)
    compact.run(engine, config)
    assert aside(archive) == ["hour=09/00-a.jsonl.gz"]
