"""The files of a day: thick hours have their own, and who does some hours leaves others alone, also when two meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from osqueue.core.archive_record import ArchiveRecord
from osqueue.errors import Damaged
from osqueue.pipeline import day_files, files, stretch
from osqueue.pipeline.archive import Hour
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.stretch import Compacted, HourRange
from osqueue.pipeline.tables import ATTEMPTS, JOBS
from tests.pipeline.past import Archive, at, job, jobs, marks, read, run

DAY = "queue=emails/date=2026-01-05"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs are many."""
    monkeypatch.setattr(stretch, "OWN_FILE_ROWS", 3)
    monkeypatch.setattr(files, "PAUSES_SECONDS", (0, 0, 0))


def names(archive: Archive, table: str = JOBS.name) -> list[str]:
    return sorted(path.name for path in (archive.tables / table / DAY).glob("*.parquet"))


def hours_of(archive: Archive) -> list[tuple[int, int]]:
    """Each job with its hour."""
    return [(number, hour) for number, _, _, hour in jobs(archive)]


def one(archive: Archive, *hours: int) -> HourRange:
    """A task with some hours of the day."""

    def parts(hour: int) -> tuple[str, ...]:
        there = sorted(archive.path(hour, "x").parent.glob("*.gz"))
        return tuple(path.relative_to(archive.store).as_posix() for path in there)

    mine = tuple(Hour(at(hour), "emails", parts(hour)) for hour in hours)
    return HourRange(f"file://{archive.store}", f"file://{archive.tables}?fsync=off", "emails", mine)


def many(*numbers: int, hour: int) -> list[ArchiveRecord]:
    return [job(number, hour - 0.1) for number in numbers]


@pytest.mark.parametrize(
    ("number", "wanted"), [(2, ["rows.parquet"]), (3, ["rows-09.parquet", "rows.parquet"])]
)
def test_an_hour_of_so_many_jobs_has_a_file_of_its_own(
    engine: Engine, archive: Archive, number: int, wanted: list[str]
) -> None:
    archive.write(8, "00-a", many(100, hour=8))
    archive.write(9, "00-a", many(*range(number), hour=9))
    archive.write(10, "00-a", many(200, hour=10))
    told = run(engine, archive)
    assert told == Compacted(hours=3, parts=3, jobs=number + 2, attempts=number + 2)
    assert names(archive) == names(archive, ATTEMPTS.name) == wanted
    assert hours_of(archive) == [*((each, 9) for each in range(number)), (100, 8), (200, 10)]
    assert run(engine, archive) == told


def test_an_hour_moves_to_a_file_of_its_own_and_back(engine: Engine, archive: Archive) -> None:
    archive.write(8, "00-a", many(100, hour=8))
    part = archive.write(9, "00-a", many(1, 2, hour=9))
    run(engine, archive)
    archive.write(9, "00-a", many(1, 2, 3, hour=9))
    run(engine, archive, 9, 10)
    assert names(archive) == ["rows-09.parquet", "rows.parquet"]
    assert hours_of(archive) == [(1, 9), (2, 9), (3, 9), (100, 8)]
    archive.write(9, "00-a", many(2, hour=9))
    run(engine, archive, 9, 10)
    assert (names(archive), hours_of(archive)) == (["rows.parquet"], [(2, 9), (100, 8)])
    part.unlink()
    assert run(engine, archive, 9, 10).emptied == 1
    assert hours_of(archive) == [(100, 8)]


def test_a_thick_hour_that_the_archive_has_no_more_is_emptied_and_looked_at(
    engine: Engine, archive: Archive
) -> None:
    part = archive.write(9, "00-a", many(1, 2, 3, hour=9))
    run(engine, archive)
    part.unlink()
    archive.write(10, "00-b", many(3, 4, hour=10))
    assert (
        run(engine, archive).repeats == 1
    )  # the range begins with the archive's first hour: the ninth stays
    assert hours_of(archive) == [(1, 9), (2, 9), (3, 9), (4, 10)]
    assert run(engine, archive, 9, 11).emptied == 1
    assert (names(archive), hours_of(archive)) == (["rows.parquet"], [(3, 10), (4, 10)])


def test_the_bytes_of_a_day_do_not_tell_in_how_many_runs_it_was_written(
    engine: Engine, archive: Archive, tmp_path: Path
) -> None:
    for hour in (7, 8, 9, 10):
        archive.write(hour, "00-a", many(*range(hour * 10, hour * 10 + hour - 6), hour=hour))
    run(engine, archive)
    folder = archive.tables / JOBS.name / DAY
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [*sorted(whole)] == ["rows-09.parquet", "rows-10.parquet", "rows.parquet"]
    archive.tables = tmp_path / "other"
    for hour in (9, 7, 10, 8):
        run(engine, archive, hour, hour + 1)
    folder = archive.tables / JOBS.name / DAY
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


# ── Two that meet ────────────────────────────────────────────────────────────
@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Something that another run does while the first part of this one is decoded: read, and not yet written."""
    decode, acts = stretch.decode_part, list[Callable[[], object]]()

    def late(data: bytes, name: str) -> list[ArchiveRecord]:
        records = decode(data, name)
        if acts:
            acts.pop()()
        return records

    monkeypatch.setattr(stretch, "decode_part", late)
    yield acts.append
    assert acts == []


def test_runs_over_other_hours_of_a_day_are_not_in_each_others_way(
    archive: Archive, meanwhile: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is read once: what the other has written is taken along."""
    for hour in (9, 10):
        archive.write(hour, "00-a", [job(hour, hour + 0.5)])  # too late to look back
    mine, others = one(archive, 9), one(archive, 10)
    meanwhile(lambda: stretch.compact(others))
    bodies, asked = stretch.bodies, list[object]()
    monkeypatch.setattr(stretch, "bodies", lambda parts: asked.extend(parts) or bodies(parts))
    stretch.compact(mine)
    assert asked == [part for task in (mine, others) for hour in task.hours for part in hour.parts]
    assert hours_of(archive) == [(9, 9), (10, 10)]
    assert len(read(archive.tables, ATTEMPTS)) == 2


def test_a_task_is_not_tired_out_by_others_of_its_run(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them wins once, and none of the parts is read again."""
    hours = range(8, 16)
    for hour in hours:
        archive.write(hour, "00-a", [job(hour, hour + 0.5)])
    mine, *others = (one(archive, hour) for hour in hours)
    exchange, bodies, asked = day_files.files.exchange, stretch.bodies, list[object]()

    def crossed(*arguments: object) -> object:
        if others:
            monkeypatch.setattr(day_files.files, "exchange", exchange)
            stretch.compact(others.pop())
            monkeypatch.setattr(day_files.files, "exchange", crossed)
        return exchange(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(day_files.files, "exchange", crossed)
    monkeypatch.setattr(stretch, "bodies", lambda parts: asked.extend(parts) or bodies(parts))
    stretch.compact(mine)
    assert len(asked) == len(hours)
    assert hours_of(archive) == [(hour, hour) for hour in hours]


@pytest.mark.parametrize("before", [1, 2, 3, 4], ids=lambda each: f"{each} before")
@pytest.mark.parametrize("after", [1, 2, 3, 4], ids=lambda each: f"{each} after")
def test_two_runs_that_do_not_agree_on_the_size_of_an_hour_leave_it_once(
    archive: Archive, meanwhile: Callable[[Callable[[], object]], None], before: int, after: int
) -> None:
    """The one that woke up late has read fewer jobs or more, and the hour lies wherever it was before."""
    archive.write(8, "00-a", many(100, hour=8))
    archive.write(9, "00-a", many(*range(before), hour=9))
    task = one(archive, 9)

    def other() -> None:
        archive.write(9, "00-a", many(*range(after), hour=9))
        stretch.compact(one(archive, 8, 9))

    meanwhile(other)
    stretch.compact(task)
    assert hours_of(archive) == [*((each, 9) for each in range(after)), (100, 8)]


def test_a_part_that_came_after_the_plan_is_read_by_whoever_writes_last(archive: Archive) -> None:
    """The one with the older plan would otherwise put the hour back to what it was, and nobody would know."""
    archive.write(9, "00-a", many(1, 2, hour=9))
    planned = one(archive, 9)
    archive.write(9, "00-b", many(3, hour=9))
    stretch.compact(one(archive, 9))
    assert names(archive) == ["rows-09.parquet"]
    stretch.compact(planned)
    assert names(archive) == ["rows-09.parquet"]
    assert hours_of(archive) == [(1, 9), (2, 9), (3, 9)]


# Jobs that are in the tables already, that this run finds, and that the other one finds; and before which exchange.
CROSSED = [
    *((0, 2, 3, write) for write in (1, 2)),
    *((0, 3, 2, write) for write in (1, 2, 3, 4)),
    *((2, 3, 2, write) for write in (1, 2, 3, 4)),
    *((3, 2, 3, write) for write in (1, 2, 3, 4)),
]


@pytest.mark.parametrize(("there", "before", "after", "write"), CROSSED)
def test_two_that_disagree_and_come_between_each_others_requests_leave_it_once(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, there: int, before: int, after: int, write: int
) -> None:
    """The other run does all of its work before one of the exchanges of this one."""
    if there:
        archive.write(9, "00-a", many(*range(there), hour=9))
        stretch.compact(one(archive, 9))
    archive.write(9, "00-a", many(*range(before), hour=9))
    task, exchange, count = one(archive, 9), day_files.files.exchange, iter(range(1, 100))

    def crossed(*arguments: object) -> object:
        if next(count) == write:
            archive.write(9, "00-a", many(*range(after), hour=9))
            stretch.compact(one(archive, 9))
        return exchange(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(day_files.files, "exchange", crossed)
    stretch.compact(task)
    assert next(count) > write, "this run made fewer exchanges: they did not cross"
    # Where the other one finds what is there already, it leaves no trace that this one could see.
    ends = (after, before) if there == after else (after,)
    assert hours_of(archive) in [[(each, 9) for each in range(number)] for number in ends]
    assert len(read(archive.tables, ATTEMPTS)) in ends


class Killed(BaseException):
    """Nothing of the run is left, as after a kill."""


@pytest.mark.parametrize("write", [1, 2, 3, 4])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)], ids=["grows", "shrinks"])
def test_an_hour_whose_move_is_killed_is_there_twice_but_never_not_at_all(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch, write: int, before: int, after: int
) -> None:
    archive.write(8, "00-a", many(100, hour=8))
    archive.write(9, "00-a", many(*range(before), hour=9))
    run(engine, archive)
    archive.write(9, "00-a", many(*range(after), hour=9))
    exchange, count = day_files.files.exchange, iter(range(1, 100))

    def killed(*arguments: object) -> object:
        if next(count) == write:
            raise Killed
        return exchange(*arguments)  # type: ignore[arg-type]

    task = one(archive, 8, 9)
    with monkeypatch.context() as patch:
        patch.setattr(day_files.files, "exchange", killed)
        with pytest.raises(Killed):
            stretch.compact(task)
    seen = hours_of(archive)
    assert {*seen} >= {*((each, 9) for each in range(min(before, after))), (100, 8)}
    assert max(map(seen.count, seen)) <= 2
    run(engine, archive)
    assert hours_of(archive) == [*((each, 9) for each in range(after)), (100, 8)]
    assert len(read(archive.tables, ATTEMPTS)) == after + 1


def test_a_damaged_file_of_a_day_is_named_and_not_written_over(engine: Engine, archive: Archive) -> None:
    """It had other hours, of which nothing would be left."""
    archive.write(9, "00-a", many(1, hour=9))
    run(engine, archive)
    path = archive.tables / JOBS.name / DAY / "rows.parquet"
    path.write_bytes(b"nothing")
    with pytest.raises(Damaged, match=r"rows\.parquet cannot be read.*Delete it, and compact its day again"):
        run(engine, archive)
    assert path.read_bytes() == b"nothing"
    path.unlink()
    run(engine, archive)
    assert hours_of(archive) == [(1, 9)]


def cut(body: bytes) -> bytes:
    return b"nothing"


def without_pages(body: bytes) -> bytes:
    return body[:4] + bytes(len(body) // 2) + body[4 + len(body) // 2 :]


def without_an_end(body: bytes) -> bytes:
    begin = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    return body[:begin] + b"\xff" * 64 + body[begin + 64 :]


@pytest.mark.parametrize("damage", [cut, without_pages, without_an_end])
@pytest.mark.parametrize("since", [8, None], ids=["met by the plan", "met by a task"])
def test_a_damaged_file_stops_its_own_queue_and_no_other(
    engine: Engine, archive: Archive, since: int | None, damage: Callable[[bytes], bytes]
) -> None:
    for queue in ("bills", "emails", "mails"):
        archive.write(9, "00-a", many(1, hour=9), queue=queue)
    run(engine, archive)
    for queue in ("bills", "emails", "mails"):
        archive.write(10, "00-b", many(2, hour=10), queue=queue)
    path = archive.tables / JOBS.name / DAY / "rows.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        Damaged, match=r"emails.*rows\.parquet cannot be read.*done in part: emails; all others"
    ):
        run(engine, archive, since)
    met_late = since is None  # a plan that was made has left its marks
    assert {mark.parent.name for mark in marks(archive)} == ({"queue=emails"} if met_late else set())
    path.unlink()
    assert [(number, queue) for number, _, queue, _ in jobs(archive)] == [
        *((1, "bills"), (1, "mails")),
        *((2, "bills"), (2, "mails")),
    ]
    run(engine, archive, since)
    assert len(jobs(archive)) == 6
    assert marks(archive) == []


def test_each_damaged_file_is_named_and_its_whole_day_marked(engine: Engine, archive: Archive) -> None:
    queues = ("bills", "emails")
    for queue in queues:
        archive.write(9, "00-a", many(1, hour=9), queue=queue)
    run(engine, archive)
    damaged = [archive.tables / JOBS.name / f"queue={each}/date=2026-01-05/rows.parquet" for each in queues]
    for path in damaged:
        path.write_bytes(b"nothing")
    with pytest.raises(
        Damaged, match=r"queue=bills.*cannot be read.*queue=emails.*cannot be read.*bills, emails;"
    ):
        run(engine, archive)
    assert sorted(mark.name for mark in marks(archive)) == [f"{at(0)}-{at(10)}"] * 2
    archive.write(10, "00-a", many(2, hour=10))
    for _ in range(2):
        with pytest.raises(Damaged, match="bills, emails;"):
            run(engine, archive)
        left = {mark.parent.name: mark.name for mark in marks(archive)}
        assert left == {"queue=bills": f"{at(0)}-{at(10)}", "queue=emails": f"{at(0)}-{at(11)}"}
        assert len(marks(archive)) == 2
