"""Compaction over small archives: what a run writes, and what it leaves alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from osqueue.core.archive_record import encode_part
from osqueue.errors import NotFound, NotSupported, Rejected, Timeout, Unavailable
from osqueue.pipeline import plan, stretch
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import compact
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.places import place, store_at
from osqueue.pipeline.stretch import Compacted
from osqueue.pipeline.tables import ATTEMPTS, JOBS
from osqueue.stores.address import open_store
from osqueue.stores.base import Put
from tests.pipeline.past import Archive, at, done, hour, job, jobs, key, lease, marks, read, run


def everything(archive: Archive) -> list[str]:
    """All rows of both tables, as text."""
    return sorted(str(row) for table in (JOBS, ATTEMPTS) for row in read(archive.tables, table))


def written(archive: Archive) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in archive.tables.rglob("*.parquet")}


@pytest.mark.both_engines
def test_parts_become_jobs_and_attempts_of_their_hours(engine: Engine, archive: Archive) -> None:
    twice = done(3, at(9), lease(1, at(9), at(9) + 5, "failed", error="x"), lease(2, at(10), at(10) + 9))
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(10, "00-b", [job(2, 9.5), twice])
    archive.write(10, "01-b", [job(4, 9.6)], queue="2024")
    told = run(engine, archive)
    assert told == Compacted(hours=3, parts=3, jobs=4, attempts=5)
    assert jobs(archive) == [
        (1, 1, "emails", 9),
        (2, 1, "emails", 10),
        (3, 2, "emails", 10),
        (4, 1, "2024", 10),
    ]
    leases = [row for row in read(archive.tables, ATTEMPTS) if (row.queue, row.hour) == ("emails", 10)]
    assert sorted((row.job_id, row.run, row.outcome, row.final) for row in leases) == [
        (key(2), 1, "completed", True),
        (key(3), 1, "failed", False),
        (key(3), 2, "completed", True),
    ]
    assert (archive.tables / "jobs/queue=emails/date=2026-01-05/rows.parquet").is_file()
    assert marks(archive) == []


@pytest.mark.both_engines
def test_the_columns_read_back_have_their_types(engine: Engine, archive: Archive) -> None:
    archive.write(10, "00-b", [job(1, 9.5)], queue="2024")
    run(engine, archive)
    for table in (JOBS, ATTEMPTS):
        found = engine.arrow(engine.read(str(archive.tables), table))
        assert found.schema.equals(table.schema)
        assert found["queue"].to_pylist() == ["2024"]


def test_a_run_again_changes_nothing(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9), job(2, 8.9)])
    archive.write(10, "00-b", [job(2, 8.9), job(3, 9.9)])
    first = run(engine, archive)
    before = everything(archive), written(archive)
    assert run(engine, archive) == first
    assert (everything(archive), written(archive)) == before


def test_a_repeated_record_stays_in_the_hour_that_had_it_first(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(9, "00-b", [job(1, 8.9), job(2, 8.9)])
    archive.write(10, "00-c", [job(2, 8.9), job(3, 9.9), job(3, 9.9)])
    told = run(engine, archive)
    assert (told.jobs, told.attempts, told.repeats) == (3, 3, 3)
    assert jobs(archive) == [(1, 1, "emails", 9), (2, 1, "emails", 9), (3, 1, "emails", 10)]


def test_the_look_back_reaches_as_far_as_a_job_ended(engine: Engine, archive: Archive) -> None:
    archive.write(2, "00-a", [job(1, 1.9)])
    archive.write(30, "00-b", [job(1, 1.9), job(2, 29.5)])
    told = run(engine, archive, 30, 31)
    assert (told.jobs, told.repeats, told.parts) == (1, 1, 1)
    assert jobs(archive) == [(2, 1, "emails", 30)]


def test_queues_do_not_repeat_each_other(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(9, "00-a", [job(1, 8.9)], queue="mails")
    assert run(engine, archive).jobs == 2


def test_each_ending_of_a_redriven_job_is_a_job_and_no_lease_is_told_twice(
    engine: Engine, archive: Archive
) -> None:
    death = lease(1, at(9), at(9) + 5, "failed", error="x")
    archive.write(9, "00-a", [done(1, at(8), death)])
    archive.write(12, "00-b", [done(1, at(8), death, lease(3, at(12), at(12) + 7), attempt=1)])
    assert run(engine, archive).attempts == 2
    assert jobs(archive) == [(1, 1, "emails", 9), (1, 3, "emails", 12)]


def test_only_the_hours_of_the_range_are_replaced(engine: Engine, archive: Archive) -> None:
    for number in (8, 9, 10, 11):
        archive.write(number, "00-a", [job(number, number)])
    run(engine, archive)
    for number in (8, 9, 10, 11):
        archive.write(number, "00-b", [job(number + 10, number)])
    told = run(engine, archive, 9, 11)
    assert told.hours == 2
    assert [number for number, *_ in jobs(archive)] == [8, 9, 10, 11, 19, 20]


def test_only_the_days_are_written_in_which_something_changed(engine: Engine, archive: Archive) -> None:
    for number in (9, 30, 31):
        archive.write(number, "00-a", [job(number, number)])
    run(engine, archive)
    before = written(archive)
    archive.write(31, "00-b", [job(1, 31)])
    assert run(engine, archive).hours == 3
    changed = {path.parent.name for path, inode in written(archive).items() if before[path] != inode}
    assert changed == {"date=2026-01-06"}


def test_a_range_cut_in_the_middle_of_an_hour_begins_with_that_hour(engine: Engine, archive: Archive) -> None:
    for number in (9, 10):
        archive.write(number, "00-a", [job(number, number)])
    half_past = hour(9).replace(minute=30), hour(10).replace(minute=30)
    told = compact.run(engine, Compaction(str(archive.store), str(archive.tables), *half_past))
    assert (told.hours, jobs(archive)) == (1, [(9, 1, "emails", 9)])


def test_a_queue_left_out_is_left_alone(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(9, "00-a", [job(2, 8.9)], queue="mails")
    run(engine, archive)
    shutil.rmtree(archive.store / "archive/queue=mails")
    config = Compaction(str(archive.store), str(archive.tables), hour(0), hour(24), ("emails",))
    assert compact.run(engine, config).emptied == 0
    assert jobs(archive) == [(1, 1, "emails", 9), (2, 1, "mails", 9)]


def test_a_part_that_came_late_is_found_by_the_next_run(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(10, "00-b", [job(2, 9.9), job(3, 8.8)])
    run(engine, archive)
    archive.write(9, "00-c", [job(3, 8.8), job(4, 8.8)])
    assert run(engine, archive, *range(8, 13, 4)).jobs == 4
    assert jobs(archive) == [
        *((number, 1, "emails", 9) for number in (1,)),
        (2, 1, "emails", 10),
        *((number, 1, "emails", 9) for number in (3, 4)),
    ]


def test_a_part_written_anew_takes_the_place_of_the_old_one(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    run(engine, archive)
    archive.write(9, "00-a", [job(1, 8.9), job(2, 8.9)])
    assert run(engine, archive).jobs == 2
    assert [number for number, *_ in jobs(archive)] == [1, 2]


def test_an_hour_that_became_empty_is_emptied(engine: Engine, archive: Archive) -> None:
    for number in (8, 9, 10):
        archive.write(number, "00-a", [job(number, number)])
    run(engine, archive)
    archive.path(9, "00-a").unlink()
    told = run(engine, archive)
    assert (told.hours, told.emptied) == (3, 1)
    assert [number for number, *_ in jobs(archive)] == [8, 10]
    assert len(read(archive.tables, ATTEMPTS)) == 2


def test_an_hour_of_repeats_alone_is_empty(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(10, "00-b", [job(1, 8.9)])
    assert run(engine, archive, 10, 11) == Compacted(hours=1, emptied=1, parts=1, repeats=1)


def test_what_the_archive_purged_before_its_first_hour_stays_in_the_tables(
    engine: Engine, archive: Archive
) -> None:
    for number in (8, 9):
        archive.write(number, "00-a", [job(number, number)])
    run(engine, archive)
    archive.path(8, "00-a").unlink()
    assert run(engine, archive).emptied == 0
    assert [number for number, *_ in jobs(archive)] == [8, 9]
    assert run(engine, archive, 8, 10).emptied == 1
    assert [number for number, *_ in jobs(archive)] == [9]


def test_nothing_to_compact_is_no_error(engine: Engine, archive: Archive) -> None:
    assert run(engine, archive) == Compacted()
    assert jobs(archive) == []
    assert run(engine, archive, 3, 5) == Compacted()


def test_a_repeat_of_a_record_that_the_archive_has_purged_stays_out(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(10, "00-b", [job(1, 8.9), job(2, 9.9)])
    run(engine, archive)
    archive.path(9, "00-a").unlink()
    assert run(engine, archive).repeats == 1
    assert jobs(archive) == [(1, 1, "emails", 9), (2, 1, "emails", 10)]


def test_a_store_without_an_archive_empties_nothing(engine: Engine, archive: Archive, tmp_path: Path) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    run(engine, archive)
    wrong = Compaction(str(tmp_path / "stroe"), str(archive.tables), hour(0), hour(24))
    with pytest.raises(NotFound, match=r"no archive in file:.*stroe.* check the address"):
        compact.run(engine, wrong)
    assert jobs(archive) == [(1, 1, "emails", 9)]


def test_a_run_that_catches_up_begins_where_the_tables_end(engine: Engine, archive: Archive) -> None:
    for number in (1, 4, 7, 30):
        archive.write(number, "00-a", [job(number, number)])
    catching_up = Compaction(str(archive.store), str(archive.tables), hour(4), hour(5), catch_up=True)
    assert compact.run(engine, catching_up).hours == 2  # the tables have nothing: from the beginning
    later = replace(catching_up, since=hour(30), until=hour(31))
    assert compact.run(engine, later).hours == 3
    assert [number for number, *_ in jobs(archive)] == [1, 4, 7, 30]


def test_a_run_that_catches_up_takes_up_each_queue_where_it_was_left(
    engine: Engine, archive: Archive
) -> None:
    for queue in ("ahead", "behind"):
        for number in (1, 4, 30):
            archive.write(number, "00-a", [job(number, number)], queue)
    run(engine, archive, 0, 2)
    compact.run(engine, Compaction(str(archive.store), str(archive.tables), queues=("ahead",)))
    catching_up = Compaction(str(archive.store), str(archive.tables), hour(29), hour(31), catch_up=True)
    compact.run(engine, catching_up)
    wanted = [(number, queue) for number in (1, 4, 30) for queue in ("ahead", "behind")]
    assert [(number, queue) for number, _, queue, _ in jobs(archive)] == wanted


def test_repeats_among_earlier_hours_are_not_this_runs_business(engine: Engine, archive: Archive) -> None:
    for part in ("00-a", "00-b"):
        archive.write(9, part, [job(1, 8.9)])
    archive.write(10, "00-c", [job(2, 9.9)])
    assert run(engine, archive, 10, 11) == Compacted(hours=1, parts=1, jobs=1, attempts=1)


def test_a_run_that_catches_up_keeps_what_the_archive_has_purged(engine: Engine, archive: Archive) -> None:
    archive.write(1, "00-a", [job(1, 1)])
    run(engine, archive)
    archive.path(1, "00-a").unlink()
    catching_up = Compaction(str(archive.store), str(archive.tables), hour(30), hour(31), catch_up=True)
    assert compact.run(engine, catching_up) == Compacted()
    assert [number for number, *_ in jobs(archive)] == [1]


def test_an_hour_written_with_one_digit_is_the_same_hour(engine: Engine, archive: Archive) -> None:
    part = archive.write(7, "00-a", [job(1, 6.9)])
    part.parent.rename(part.parent.with_name("hour=7"))
    archive.write(7, "00-b", [job(1, 6.9), job(2, 6.9)])
    assert run(engine, archive) == Compacted(hours=1, parts=2, jobs=2, attempts=2, repeats=1)


def test_foreign_files_and_folders_are_left_out(engine: Engine, archive: Archive) -> None:
    good = archive.write(9, "00-a", [job(1, 8.9)])
    good.with_name("notes.txt").write_text("not ours")
    for folder in (
        "queue=emails/date=soon/hour=09",
        "queue=emails/date=2026-01-05/late",
        "queue=No Queue/date=x",
    ):
        (archive.store / "archive" / folder).mkdir(parents=True)
    for folder in ("emails", "queue=emails/day=2026-01-05/hour=09", "queue=emails/date=2026-01-05/part=9"):
        foreign = archive.store / "archive" / folder / good.name
        foreign.parent.mkdir(parents=True)
        foreign.write_bytes(good.read_bytes())
    assert run(engine, archive) == Compacted(hours=1, parts=1, jobs=1, attempts=1)
    (archive.tables / "jobs/queue=emails/date=soon").mkdir(parents=True)
    assert run(engine, archive) == Compacted(hours=1, parts=1, jobs=1, attempts=1)


def test_names_that_sort_in_between_or_last_are_found_or_left_out(engine: Engine, archive: Archive) -> None:
    for number, queue in enumerate(("a", "a-b", "a0", "ab", "b")):
        archive.write(9, "00-a", [job(number, 8.9)], queue)
    for name in ("queue=a/~", "queue=a/übersicht.txt", "zusammenfassung.txt"):
        (archive.store / "archive" / name).write_text("not ours")
    assert [queue for _, _, queue, _ in jobs(archive)] == []
    assert run(engine, archive).jobs == 5
    assert [queue for _, _, queue, _ in jobs(archive)] == ["a", "a-b", "a0", "ab", "b"]


def test_a_job_that_ended_on_a_clock_that_is_ahead_is_looked_for_an_hour_earlier(
    engine: Engine, archive: Archive
) -> None:
    ahead = done(1, at(8), lease(1, at(8), at(10) + 30_000))
    archive.write(9, "00-a", [ahead])
    archive.write(10, "00-b", [ahead])
    assert run(engine, archive).repeats == 1


# ── Batches, publication, configuration ──────────────────────────────────────
def test_long_work_goes_batch_by_batch_and_tells_how_far_it_is(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "BATCH_PARTS", 2 / engine.cores)
    archive.write(8, "00-a", [job(1, 7.9)])
    archive.write(8, "00-b", [job(2, 7.9)])
    archive.write(9, "00-c", [job(2, 7.9), job(3, 8.9)])
    archive.write(10, "00-d", [job(3, 8.9), job(4, 9.9)])
    archive.put(11, "00-e", encode_part([job(5, 10.9)])[:-9])
    far: list[tuple[int, int]] = []
    told = compact.run(
        engine, Compaction(str(archive.store), str(archive.tables)), lambda *progress: far.append(progress)
    )
    assert far == [(2, 5), (4, 5), (5, 5)]
    assert (told.hours, told.jobs, told.repeats, told.parts, len(told.aside)) == (4, 4, 2, 4, 1)
    assert [number for number, *_ in jobs(archive)] == [1, 2, 3, 4]


def test_thin_hours_are_one_task_that_lists_a_day_once(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other hour has a job that ended in the hour before: each looks back into an hour of nothing."""
    listed: list[tuple[object, ...]] = []
    hours, in_tasks, tasks = stretch.archive.hours, compact.in_tasks, list[int]()

    def counted(engine: Engine, stretches: Iterable[stretch.HourRange]) -> list[Compacted]:
        given = list(stretches)
        tasks.append(len(given))
        monkeypatch.setattr(stretch.archive, "hours", lambda *range: listed.append(range) or hours(*range))
        return in_tasks(engine, given)

    monkeypatch.setattr(compact, "in_tasks", counted)
    for number in range(2, 48, 2):
        archive.write(number, "00-a", [job(number, number - 0.5)])
    told = run(engine, archive)
    assert (told.jobs, tasks, len(listed)) == (23, [1], 2)


def test_an_hour_that_was_emptied_has_no_records_for_those_that_look_back(
    engine: Engine, archive: Archive
) -> None:
    """Its file was there when the day was listed."""
    archive.write(7, "00-a", [job(1, 6.9)])
    archive.write(8, "00-a", [job(2, 7.9)])
    archive.write(12, "00-a", [job(3, 11.9)])
    run(engine, archive)
    archive.path(8, "00-a").unlink()
    archive.write(12, "00-b", [job(2, 6.9)])
    assert run(engine, archive).jobs == 3
    assert jobs(archive) == [(1, 1, "emails", 7), (2, 1, "emails", 12), (3, 1, "emails", 12)]


def test_a_part_with_a_value_out_of_range_leaves_its_records_to_others(
    engine: Engine, archive: Archive
) -> None:
    """Parts become rows together; this one is set aside by itself, and what it has is no repeat."""
    archive.write(9, "00-a", [job(1, 8.9), job(2, 8.9, priority=10**10)])
    archive.write(9, "00-b", [job(1, 8.9)])
    told = run(engine, archive)
    assert (told.jobs, told.repeats, len(told.aside)) == (1, 0, 1)


@pytest.mark.both_engines
def test_hours_are_spread_over_tasks_queue_by_queue_and_repeats_are_found_across_them(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "RANGE_PARTS_MIN", 1)
    for number in range(1, 9):
        archive.write(number, "00-a", [job(number, number - 0.1), job(number - 1, number - 1.1)], "mails")
    for number in range(1, 5):
        archive.write(number, "00-a", [job(number, number)])
    given: list[stretch.HourRange] = []
    in_tasks = compact.in_tasks

    def seen(engine: Engine, stretches: Iterable[stretch.HourRange]) -> list[Compacted]:
        given.extend(stretches)
        return in_tasks(engine, given)

    monkeypatch.setattr(compact, "in_tasks", seen)
    told = run(engine, archive)
    pieces = {1: [("emails", 4), ("mails", 8)], 2: [("emails", 4), ("mails", 2), ("mails", 6)]}
    assert sorted((each.queue, len(each.hours)) for each in given) == pieces[engine.cores]
    assert all(each.queue == one.queue for one in given for each in one.hours)
    assert (told.jobs, told.repeats) == (13, 7)
    assert [(number, hour) for number, _, queue, hour in jobs(archive) if queue == "mails"] == [
        (0, 1),
        *((number, number) for number in range(1, 9)),
    ]


def test_each_day_of_a_queue_is_one_file_of_each_table(engine: Engine, archive: Archive) -> None:
    for number, part in enumerate("abc", 7):
        archive.write(number, f"00-{part}", [job(ord(part), number - 0.1)])
    run(engine, archive)
    names = sorted(f"{path.relative_to(archive.tables)}" for path in written(archive))
    place = "queue=emails/date=2026-01-05/rows.parquet"
    assert names == [f"attempts/{place}", f"jobs/{place}"]


@pytest.mark.both_engines
def test_a_store_that_fails_is_told_and_what_it_lost_is_made_good(engine: Engine, archive: Archive) -> None:
    for number in range(1, 9):
        archive.write(number, "00-a", [job(number, number - 0.1)])
    for seed in range(20):
        flaky = f"file://{archive.store}?error_rate=0.1&lost_reply_rate=0.1&seed={seed}"
        with suppress(Unavailable, Timeout):
            compact.run(engine, Compaction(flaky, str(archive.tables)))
            break
    assert [number for number, *_ in jobs(archive)] == [*range(1, 9)]
    with pytest.raises((Unavailable, Timeout)):
        compact.run(engine, Compaction(f"file://{archive.store}?error_rate=1", str(archive.tables)))


@pytest.mark.both_engines
def test_an_archive_at_an_endpoint_is_compacted_into_a_folder(
    engine: Engine,
    spark: SparkSession,
    archive: Archive,
    s3_endpoint: str,
    s3_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # workers have those of the session's begin
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    address = f"s3://{s3_bucket}/jobs?endpoint={s3_endpoint}&region=us-east-1"
    damaged = archive.put(9, "00-c", b"no part")
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(10, "00-b", [job(1, 8.9), job(2, 9.9)])
    with closing(open_store(address)) as store:
        for path in archive.store.rglob("*.gz"):
            store.put(Put(path.relative_to(archive.store).as_posix(), path.read_bytes()))
    told = compact.run(engine, Compaction(address, str(archive.tables)))
    assert jobs(archive) == [(1, 1, "emails", 9), (2, 1, "emails", 10)]
    assert (told.parts, told.repeats) == (2, 1)
    (aside,) = told.aside
    assert aside.part == f"s3://{s3_bucket}/jobs/{damaged.relative_to(archive.store)}"


@pytest.mark.both_engines
def test_a_run_that_fails_leaves_the_tables_as_they_were(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    run(engine, archive)
    before = written(archive)
    archive.write(9, "00-b", [job(2, 8.9)])

    def broken(*_: object) -> None:
        raise Unavailable("out of luck")

    monkeypatch.setattr(compact, "in_tasks", broken)
    with pytest.raises(Unavailable, match="out of luck"):
        run(engine, archive)
    assert written(archive) == before
    assert len(marks(archive)) == 1


def test_a_scheduled_run_goes_over_the_last_hours_that_had_ended() -> None:
    began, ended = compact.hours_before(hour(10).replace(minute=5))
    assert (began, ended) == (hour(7), hour(10))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (Compaction("", "t"), "store"),
        (Compaction("s", ""), "tables"),
        (Compaction("file://", "t"), "store"),
        (Compaction("s", "t", hour(9), hour(9)), "until"),
        (Compaction("s", "t", datetime(2026, 1, 5)), "since"),  # noqa: DTZ001
        (Compaction("s", "t", queues=("No Queue",)), "queue"),
        (Compaction("gcs://bucket", "t"), "store"),
        (Compaction("/jobs?fsync=off", "t"), "store"),
        (Compaction("s3://bucket?endpiont=x", "t"), "store"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(engine: Engine, config: Compaction, field: str) -> None:
    with pytest.raises(Rejected) as told:
        compact.run(engine, config)
    assert told.value.field == field
    assert told.value.message.startswith(f"{field}: ")


@pytest.mark.parametrize("address", ["memory://", "https://api"])
def test_a_store_that_tasks_cannot_reach_is_refused_by_name(address: str) -> None:
    with pytest.raises(NotSupported, match=r"^store: ") as told:
        store_at(address, "store")
    assert told.value.field == "store"


@pytest.mark.parametrize("address", ["memory://", "https://api", "s3://b/p?endpoint=http://127.0.0.1:9000"])
def test_a_folder_that_spark_cannot_read_is_refused_by_name(address: str) -> None:
    with pytest.raises(NotSupported, match="tables: Spark"):
        place(address, "tables")


def test_a_folder_that_spark_would_take_for_a_pattern_is_refused_by_name() -> None:
    with pytest.raises(Rejected, match="tables: Spark takes the"):
        place("/tables/2026-*", "tables")
