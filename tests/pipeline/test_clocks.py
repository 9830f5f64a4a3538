"""Records whose moments the store's clock does not allow: which these are, and that they harm nobody but themselves."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from osqueue import limits
from osqueue.core.archive_record import ArchiveRecord
from osqueue.errors import NotFound
from osqueue.pipeline import clocks, transforms
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import metrics, report, run
from osqueue.pipeline.jobs.metrics import Metrics
from osqueue.pipeline.jobs.report import Review
from osqueue.pipeline.jobs.run import PipelineRun
from osqueue.pipeline.stretch import Compacted
from osqueue.pipeline.tables import ATTEMPTS, JOBS, METRICS_HOURLY, METRICS_WORKERS
from tests.pipeline import past
from tests.pipeline.past import HOUR_MS, PART, Archive, at, done, key, lease, read

YEAR_2100_MS = round(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 24 * HOUR_MS
WRITTEN = at(10)  # the hour of the part
GOOD = done(1, at(10), lease(1, at(10.1), at(10.2)))
WRONG: dict[str, tuple[ArchiveRecord, str]] = {
    "finished in 2100": (done(2, at(10), lease(1, at(10.1), YEAR_2100_MS)), "attempts, finished_at"),
    "enqueued in 1970": (done(3, 0, lease(1, at(10.1), at(10.2))), "enqueued_at"),
    "finished in 1970": (done(4, at(10), finished_ms=5), "finished_at"),
    "claimed in 1970": (done(5, at(10), lease(1, 9, at(10.2))), "attempts"),
    "finished at 2^52": (done(6, at(10), lease(1, at(10.1), 2**52)), "attempts, finished_at"),
    "enqueued at 2^62": (done(7, 2**62, finished_ms=at(10)), "enqueued_at"),
    "enqueued before 1970": (done(8, -5, finished_ms=at(10)), "enqueued_at"),
}


def why(record: ArchiveRecord) -> str | None:
    found = transforms.rows({PART: [GOOD, record]})
    job = found.jobs["clock_suspect"].to_pylist()
    assert job[0] is None
    assert set(found.attempts["clock_suspect"].to_pylist()[1:]) <= {
        job[1]
    }  # a lease is as suspect as its job
    return str(job[1]) if job[1] else None


# ── The rule ─────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("record", "names"), WRONG.values(), ids=WRONG.keys())
def test_the_moments_that_are_wrong_are_named(record: ArchiveRecord, names: str) -> None:
    assert why(record) == names


LATE = WRITTEN + HOUR_MS + clocks.AHEAD_MS_MAX
EARLY = WRITTEN - clocks.LIVED_MS_MAX


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        (done(2, at(10), finished_ms=LATE), done(2, at(10), finished_ms=LATE + 1)),
        (done(2, EARLY, finished_ms=EARLY), done(2, EARLY, finished_ms=EARLY - 1)),
        (done(2, EARLY, finished_ms=at(10)), done(2, EARLY - 1, finished_ms=at(10))),
        (
            done(2, EARLY - limits.DELAY_MS_MAX, scheduled_ms=EARLY, finished_ms=at(10)),
            done(2, EARLY - limits.DELAY_MS_MAX - 1, scheduled_ms=EARLY, finished_ms=at(10)),
        ),
    ],
    ids=["late", "early", "waited", "delayed"],
)
def test_the_tolerance_is_that_of_the_rule_to_the_millisecond(
    within: ArchiveRecord, beyond: ArchiveRecord
) -> None:
    assert why(within) is None
    assert why(beyond) is not None


def test_a_job_that_was_cancelled_long_before_its_time_is_not_suspect() -> None:
    assert why(done(2, at(9), scheduled_ms=YEAR_2100_MS, state="cancelled", finished_ms=at(10))) is None


def test_a_dead_letter_that_is_redriven_years_later_is_not_suspect() -> None:
    old = at(0) - 3 * clocks.LIVED_MS_MAX
    died, again = lease(1, old, old + 5, "failed"), lease(3, at(10), at(10) + 5)
    assert why(done(2, old, died, again, attempt=1)) is None


def test_a_moment_that_no_reader_could_show_is_null() -> None:
    found = transforms.rows({PART: [done(2, at(10), lease(1, at(10), 2**52, beat_ms=2**60))]})
    (job,), (attempt,) = found.jobs.to_pylist(), found.attempts.to_pylist()
    assert (job["finished_at"], job["attempts"][0]["ended_ms"]) == (None, 2**52)
    assert (attempt["ended_at"], attempt["heartbeat_at"]) == (None, None)


# ── Runs ─────────────────────────────────────────────────────────────────────
def whole(archive: Archive) -> PipelineRun:
    return PipelineRun(str(archive.store), f"file://{archive.tables}", str(archive.store.parent / "r.html"))


@pytest.mark.both_engines
def test_records_with_wrong_clocks_cost_an_ordinary_run_nothing(engine: Engine, archive: Archive) -> None:
    """Each by itself made a grid of hours over decades; 2^52 ended the Java machine."""
    archive.write(10, "00-a", [GOOD])
    alone = run.run(engine, whole(archive))
    metric_rows = [read(archive.tables, table) for table in (METRICS_HOURLY, METRICS_WORKERS)]
    archive.write(10, "00-b", [record for record, _ in WRONG.values()])
    told = run.run(engine, whole(archive))
    assert told.measured == alone.measured.__class__(
        alone.measured.since, alone.measured.until, alone.measured.rows, {"emails": len(WRONG)}
    )
    assert [read(archive.tables, table) for table in (METRICS_HOURLY, METRICS_WORKERS)] == metric_rows
    assert told.compacted.clock_suspect == told.reported.clock_suspect == len(WRONG)
    assert (told.reported.jobs, told.reported.since, told.reported.until) == (
        alone.reported.jobs,
        alone.reported.since,
        alone.reported.until,
    )
    suspect = {row.job_id: row.clock_suspect for row in read(archive.tables, JOBS)}
    assert suspect == {key(1): None} | {record.job_id: names for record, names in WRONG.values()}
    assert {row.clock_suspect for row in read(archive.tables, ATTEMPTS)} <= {None, *suspect.values()}
    page = Path(told.reported.path).read_text()
    assert (
        f"{len(WRONG)} jobs with a wrong clock left out: </b><bdi>emails</bdi> ({len(WRONG)}, such as {key(2)}: "
        in page
    )


def test_the_line_that_a_run_ends_with_tells_how_many_there_are(
    archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.write(10, "00-a", [GOOD, WRONG["finished in 2100"][0]])
    config = whole(archive)
    run.main([config.store, config.tables, config.out, "--engine", "local"])
    told = json.loads(capsys.readouterr().out)
    assert told["compacted"]["clock_suspect"] == told["reported"]["clock_suspect"] == 1
    assert told["measured"]["clock_suspect"] == {"emails": 1}


def test_a_report_of_an_earlier_period_leaves_out_what_was_archived_after_it(
    engine: Engine, archive: Archive
) -> None:
    archive.write(10, "00-a", [GOOD])
    archive.write(60, "00-a", [done(2, 0, lease(1, at(60), at(60.1)))])
    run.run(engine, whole(archive))
    config = whole(archive)
    until = past.hour(24)
    assert report.run(engine, Review(config.tables, config.out, until=until)).clock_suspect == 0
    assert report.run(engine, Review(config.tables, config.out)).clock_suspect == 1


def test_tables_of_nothing_else_have_no_report_and_are_told(engine: Engine, archive: Archive) -> None:
    archive.write(10, "00-a", [WRONG["finished in 2100"][0]])
    assert past.run(engine, archive) == Compacted(hours=1, parts=1, jobs=1, attempts=1, clock_suspect=1)
    assert metrics.run(engine, Metrics(str(archive.tables))).clock_suspect == {"emails": 1}
    with pytest.raises(NotFound, match="no other jobs than 1 whose moments the store's clock does not allow"):
        report.run(engine, Review(str(archive.tables), str(archive.store / "r.html")))


# ── Thin histories ───────────────────────────────────────────────────────────
@pytest.mark.both_engines
def test_hours_in_which_nothing_happens_nor_waits_have_no_row(engine: Engine, archive: Archive) -> None:
    year = 365 * 24
    archive.write(10, "00-a", [GOOD])
    archive.write(10 + year, "00-a", [done(2, at(9.5 + year), lease(1, at(10.1 + year), at(10.2 + year)))])
    run.run(engine, whole(archive))
    found = [(row.start, row.depth_max, row.depth_end) for row in read(archive.tables, METRICS_HOURLY)]
    assert found == [
        (past.hour(10), 1, 0),
        (past.hour(9 + year), 1, 1),
        (past.hour(10 + year), 1, 0),
    ]


def test_a_reminder_that_was_set_a_year_ahead_waits_in_no_hour_before_its_time(
    engine: Engine, archive: Archive
) -> None:
    year = 365 * 24
    record = done(1, at(0), lease(1, at(10.1 + year), at(10.2 + year)), scheduled_ms=at(10 + year))
    archive.write(10 + year, "00-a", [record])
    run.run(engine, whole(archive))
    assert [row.start for row in read(archive.tables, METRICS_HOURLY)] == [past.hour(0), past.hour(10 + year)]
