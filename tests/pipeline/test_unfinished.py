"""Runs of compaction that are killed, skip hours or meet others: what they leave, and who does the rest."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import pytest

from osqueue.core.archive_record import ArchiveRecord
from osqueue.errors import Unavailable
from osqueue.pipeline import files, stretch
from osqueue.pipeline.archive import Hour
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import compact
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.tables import ATTEMPTS, JOBS
from osqueue.stores.file import FileStore
from tests.pipeline.past import Archive, at, hour, job, jobs, marks, read, run


def ninth(archive: Archive) -> stretch.HourRange:
    """A task with one hour."""
    part = archive.path(9, "00-a").relative_to(archive.store).as_posix()
    hours = (Hour(at(9), "emails", (part,)),)
    return stretch.HourRange(f"file://{archive.store}", f"file://{archive.tables}", "emails", hours)


def kill_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """End this process's next runs after so many writes to a folder, without a word."""
    left = iter(range(writes))

    def mortal(method: str) -> None:
        act = getattr(FileStore, method)

        def acted(*arguments: object) -> object:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return act(*arguments)

        monkeypatch.setattr(FileStore, method, acted)

    for method in ("put", "put_if_absent", "put_if_match", "delete", "delete_if_match"):
        mortal(method)
    monkeypatch.setattr(compact, "in_tasks", lambda _, stretches: list(map(stretch.compact, stretches)))


@pytest.mark.parametrize("writes", range(1, 7))
def test_a_run_that_catches_up_does_what_a_killed_one_has_not(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Killed after so many writes: the mark, two files of each of two days, and the mark once more."""
    for number in (1, 28, 31):
        archive.write(number, "00-a", [job(number, number)])
    run(engine, archive)
    for number in (1, 28):
        archive.write(number, "00-late", [job(number + 10, number)])
    kill_after(monkeypatch, writes)
    with pytest.raises(KeyboardInterrupt) if writes < 6 else nullcontext():
        run(engine, archive, 1, 29)
    monkeypatch.undo()
    later = Compaction(str(archive.store), str(archive.tables), hour(40), hour(41), catch_up=True)
    told = compact.run(engine, later)
    assert told.hours == (3 if writes < 6 else 1)
    assert sorted(number for number, *_ in jobs(archive)) == [1, 11, 28, 31, 38]
    assert len(read(archive.tables, ATTEMPTS)) == 5
    assert marks(archive) == []


def test_a_run_removes_the_marks_of_its_own_hours_alone(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    folder = archive.tables / "_unfinished/queue=emails"
    folder.mkdir(parents=True)
    inside, across = (folder / f"{at(first)}-{at(last)}" for first, last in ((9, 10), (8, 12)))
    other = archive.tables / "_unfinished/queue=mails" / inside.name
    other.parent.mkdir()
    for each in (inside, across, other):
        each.touch()
    run(engine, archive, 9, 11)
    assert marks(archive) == [across]
    run(engine, archive)
    assert marks(archive) == []


def test_a_run_leaves_the_marks_of_other_queues(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    other = archive.tables / f"_unfinished/queue=mails/{at(9)}-{at(10)}"
    other.parent.mkdir(parents=True)
    other.touch()
    compact.run(engine, Compaction(str(archive.store), str(archive.tables), queues=("emails",)))
    assert marks(archive) == [other]


def test_hours_that_a_run_has_skipped_are_done_by_one_that_catches_up(
    engine: Engine, archive: Archive
) -> None:
    for number in (1, 3, 4, 7, 40):
        archive.write(number, "00-a", [job(number, number)])
    run(engine, archive, 1, 2)
    run(engine, archive, 7, 8)
    assert [path.name for path in marks(archive)] == [f"{at(2)}-{at(7)}"]
    later = Compaction(str(archive.store), str(archive.tables), hour(40), hour(41), catch_up=True)
    compact.run(engine, later)
    assert [number for number, *_ in jobs(archive)] == [1, 3, 4, 7, 40]
    assert marks(archive) == []


@pytest.mark.parametrize("writes", range(2, 6))
def test_what_a_killed_run_has_not_emptied_is_emptied_by_one_that_catches_up(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Killed after so many writes: two marks, then a file of each table, of two days."""
    for number in (1, 26, 27, 33):
        archive.write(number, "00-a", [job(number, number)])
    run(engine, archive)
    for number in (1, 26, 27):
        archive.path(number, "00-a").unlink()
    kill_after(monkeypatch, writes)
    with pytest.raises(KeyboardInterrupt):
        run(engine, archive, 1, 27)
    monkeypatch.undo()
    later = Compaction(str(archive.store), str(archive.tables), hour(33), hour(34), catch_up=True)
    compact.run(engine, later)
    assert [number for number, *_ in jobs(archive)] == [27, 33]  # the third nobody asked to empty
    assert len(read(archive.tables, ATTEMPTS)) == 2
    assert marks(archive) == []


def test_a_task_that_wakes_up_late_does_not_bring_back_what_another_run_has_taken_out(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write(9, "00-a", [job(1, 8.9), job(2, 8.9)])
    one = ninth(archive)
    decode = stretch.decode_part
    asked: list[str] = []

    def late(data: bytes, name: str) -> list[ArchiveRecord]:
        records = decode(data, name)
        asked.append(name)
        if len(asked) == 1:  # read, and not yet written
            archive.write(9, "00-a", [job(1, 8.9)])
            stretch.compact(one)
        return records

    monkeypatch.setattr(stretch, "decode_part", late)
    monkeypatch.setattr(files, "PAUSES_SECONDS", (0,))
    assert stretch.compact(one).jobs == 1
    assert len(asked) == 3


def test_an_hour_that_another_run_writes_again_and_again_is_told(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    one = ninth(archive)
    rows, asked = stretch.transforms.rows, itertools.count(2)
    target = archive.tables / "jobs/queue=emails/date=2026-01-05/rows.parquet"
    target.parent.mkdir(parents=True)

    def slow(parts: Any) -> Any:
        draft = files.TableFileWriter(JOBS.arrow)
        draft.add(rows({each: [job(next(asked), 8.9)] for each in parts}).jobs)
        target.write_bytes(draft.finish() or b"")
        return rows(parts)

    monkeypatch.setattr(stretch.transforms, "rows", slow)
    monkeypatch.setattr(files, "PAUSES_SECONDS", (0, 0))
    with pytest.raises(Unavailable, match="another run writes the same tables"):
        stretch.compact(one)
    assert next(asked) == 5
