"""From small tables to the file, with answers computed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from osqueue.core.fingerprint import fingerprint
from osqueue.errors import NotFound, Rejected, Unavailable
from osqueue.pipeline import figures
from osqueue.pipeline.engines.base import Engine, Relation
from osqueue.pipeline.engines.base import rows as engine_rows
from osqueue.pipeline.figures import FigureWindow
from osqueue.pipeline.jobs import report
from osqueue.pipeline.jobs.report import Review, run
from osqueue.pipeline.report.collect import collect
from osqueue.pipeline.report.history import ReportTables
from osqueue.pipeline.report.model import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Error,
    Point,
    Quantiles,
    QueueSection,
    ReviewPage,
    WeekHour,
    WorkerLoad,
)
from osqueue.pipeline.tables import (
    ATTEMPTS,
    JOBS,
    METRICS_ERRORS,
    METRICS_HOURLY,
    METRICS_WORKERS,
    TableSpec,
    write,
)

pytestmark = pytest.mark.both_engines("three_seconds")

NOON_MS = 1_790_856_000_000  # Thursday, 1 October 2026, noon
DAY = date(2026, 10, 1)
WAITS = Quantiles(500, 1_130, 1_186, 1_200)  # of 100, 500 and 1,200, interpolated


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def a_lease(
    run_: int, worker: str, started_ms: int, ended_ms: int, outcome: str, error: str = ""
) -> dict[str, Any]:
    return {
        "run": run_,
        "worker": worker,
        "started_at": at(started_ms),
        "ended_at": at(ended_ms),
        "outcome": outcome,
        "error_type": "OSError" if error else "",
        "error": error,
        "run_ms": ended_ms - started_ms,
    }


def a_job(
    job_id: str, state: str, enqueued_ms: int, finished_ms: int, *leases: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    started_at = leases[0]["started_at"] if leases else None
    return {
        "queue": "emails",
        "date": DAY,
        "hour": 12,
        "job_id": job_id,
        "run": len(leases),
        "state": state,
        "enqueued_at": at(enqueued_ms),
        "claimable_at": at(enqueued_ms),
        "started_at": started_at,
        "finished_at": at(finished_ms),
        "redriven": False,
        "wait_ms": round(started_at.timestamp() * 1000) - enqueued_ms if started_at else None,
        "total_ms": finished_ms - enqueued_ms,
        "attempts": list(leases),
        **fields,
    }


def attempts_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    """As compaction makes them."""
    leases = job["attempts"]
    same = {name: job[name] for name in ("queue", "date", "hour", "job_id")}
    return [
        {**lease, **same, "final": lease is leases[-1] and lease["outcome"] == job["state"]}
        for lease in leases
    ]


def relation(engine: Engine, table: TableSpec, rows: Iterable[dict[str, Any]]) -> Relation:
    return engine.of(pa.Table.from_pylist(list(rows), table.schema))


# Four jobs within three seconds of noon. Times are milliseconds after it.
#
#   one    waits    0 …  500, runs until 1,000 on a: completed
#   two    waits    0 … 1,200, fails at 1,700 on b, waits … 2,500, runs until 2,900 on a: completed
#   three  waits  100 … 2,950 and is cancelled
#   four   waits 1,000 … 1,100, stalls on b at 2,100, waits … 2,200, fails on a at 2,999: failed
def jobs() -> list[dict[str, Any]]:
    t = NOON_MS
    return [
        a_job("one", "completed", t, t + 1_000, a_lease(1, "a", t + 500, t + 1_000, "completed")),
        a_job(
            "two",
            "completed",
            t,
            t + 2_900,
            a_lease(1, "b", t + 1_200, t + 1_700, "failed", "broken pipe"),
            a_lease(2, "a", t + 2_500, t + 2_900, "completed"),
        ),
        a_job("three", "cancelled", t + 100, t + 2_950),
        a_job(
            "four",
            "failed",
            t + 1_000,
            t + 2_999,
            a_lease(1, "b", t + 1_100, t + 2_100, "stalled"),
            a_lease(2, "a", t + 2_200, t + 2_999, "failed", "disk full"),
        ),
    ]


def an_hour(start_ms: int, queue: str = "emails", **fields: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("enqueued", "completed", "failed", "cancelled", "retried", "stalled"), 0)
    named = {"queue": queue, "date": at(start_ms).date(), "start": at(start_ms)}
    return {**nothing, "depth_max": 0, "depth_end": 0, "target_ms": 1_000, **named, **fields}


def a_workers_hour(start_ms: int, worker: str, held_ms: int, **fields: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("completed", "failed", "stalled", "released", "cancelled"), 0)
    named = {"queue": "emails", "date": at(start_ms).date(), "start": at(start_ms), "worker": worker}
    return {**nothing, **named, "held_ms": held_ms, "utilisation": held_ms / HOUR_MS, **fields}


def an_errors_hour(start_ms: int, text: str, attempts: int, deaths: int = 0) -> dict[str, Any]:
    return {
        "queue": "emails",
        "date": at(start_ms).date(),
        "start": at(start_ms),
        "fingerprint": fingerprint("OSError", text),
        "error_type": "OSError",
        "example": text,
        "attempts": attempts,
        "deaths": deaths,
        "first_at": at(start_ms + 1),
        "last_at": at(start_ms + 2),
    }


def of(
    engine: Engine,
    jobs_: Sequence[dict[str, Any]] = (),
    hours: Sequence[dict[str, Any]] = (),
    workers: Sequence[dict[str, Any]] = (),
    errors: Sequence[dict[str, Any]] = (),
) -> ReportTables:
    return ReportTables(
        "tables",
        relation(engine, JOBS, jobs_),
        relation(engine, ATTEMPTS, [lease for job in jobs_ for lease in attempts_of(job)]),
        relation(engine, METRICS_HOURLY, hours),
        relation(engine, METRICS_WORKERS, workers),
        relation(engine, METRICS_ERRORS, errors),
        relation(engine, JOBS, ()),
    )


def noon(engine: Engine) -> ReportTables:
    """The four jobs, and the metrics of their hour."""
    return of(
        engine,
        jobs(),
        [an_hour(NOON_MS, enqueued=4, completed=2, failed=1, cancelled=1, retried=1, stalled=1)],
        [
            a_workers_hour(NOON_MS, "a", 1_699, completed=2, failed=1),
            a_workers_hour(NOON_MS, "b", 1_500, failed=1, stalled=1),
        ],
        [an_errors_hour(NOON_MS, "broken pipe", 1), an_errors_hour(NOON_MS, "disk full", 1, 1)],
    )


@pytest.fixture(scope="module")
def three_seconds(engine: Engine) -> ReviewPage:
    return collect(engine, noon(engine), NOON_MS, NOON_MS + 3_000)


def the_queue(told: ReviewPage) -> QueueSection:
    (queue,) = told.queues
    return queue


def test_the_headline_numbers_are_those_of_the_tables(three_seconds: ReviewPage) -> None:
    totals = three_seconds.totals
    assert (totals.enqueued, totals.completed, totals.failed, totals.cancelled) == (4, 2, 1, 1)
    assert (totals.attempts, totals.retried, totals.stalled) == (5, 1, 1)
    assert (totals.started, totals.in_time) == (3, 2)  # waits of 500, 1,200 and 100, on a target of 1,000
    assert totals.wait == WAITS
    assert totals.run == Quantiles(450, 495, 499, 500)
    assert totals.whole == Quantiles(1_950, 2_805, 2_881, 2_900)
    assert the_queue(three_seconds).totals == totals


def test_what_is_finer_than_an_hour_is_counted_from_the_jobs(three_seconds: ReviewPage) -> None:
    assert three_seconds.step_ms == 100
    told = {
        point.at_ms - NOON_MS: (
            *(point.enqueued, point.started, point.in_time),
            *(point.completed, point.failed, point.retried, point.stalled),
        )
        for point in the_queue(three_seconds).points
    }
    assert {at_ms: counts for at_ms, counts in told.items() if any(counts)} == {
        0: (2, 0, 0, 0, 0, 0, 0),
        100: (1, 0, 0, 0, 0, 0, 0),
        500: (0, 1, 1, 0, 0, 0, 0),
        1_000: (1, 0, 0, 1, 0, 0, 0),
        1_100: (0, 1, 1, 0, 0, 0, 0),
        1_200: (0, 1, 0, 0, 0, 0, 0),
        1_700: (0, 0, 0, 0, 0, 1, 0),
        2_100: (0, 0, 0, 0, 0, 0, 1),
        2_900: (0, 0, 0, 1, 1, 0, 0),
    }


def test_the_depth_of_a_step_is_the_most_that_waited_in_it(three_seconds: ReviewPage) -> None:
    depths = {point.at_ms - NOON_MS: point.depth for point in the_queue(three_seconds).points}
    expected = {
        **dict.fromkeys(range(0, 100, 100), 2),  # one and two
        **dict.fromkeys(range(100, 600, 100), 3),  # and three; until one is claimed
        **dict.fromkeys(range(600, 1_000, 100), 2),
        **dict.fromkeys(range(1_000, 1_200, 100), 3),  # and four
        **dict.fromkeys(range(1_200, 1_300, 100), 2),
        **dict.fromkeys(range(1_300, 1_700, 100), 1),  # three alone
        **dict.fromkeys(range(1_700, 2_100, 100), 2),  # and two again
        **dict.fromkeys(range(2_100, 2_300, 100), 3),  # and four again
        **dict.fromkeys(range(2_300, 2_600, 100), 2),
        **dict.fromkeys(range(2_600, 3_000, 100), 1),
    }
    assert depths == expected


def test_the_waits_of_a_step_are_those_of_the_jobs_that_started_in_it(three_seconds: ReviewPage) -> None:
    waits = {point.at_ms - NOON_MS: point.wait for point in the_queue(three_seconds).points if point.wait}
    assert waits == {
        500: Quantiles(500, 500, 500, 500),
        1_100: Quantiles(100, 100, 100, 100),
        1_200: Quantiles(1_200, 1_200, 1_200, 1_200),
    }


def test_the_steps_add_up_to_the_totals(three_seconds: ReviewPage) -> None:
    queue = the_queue(three_seconds)
    for name in ("enqueued", "completed", "failed", "retried", "stalled", "started", "in_time"):
        assert sum(getattr(point, name) for point in queue.points) == getattr(queue.totals, name), name
    assert sum(each.count for each in queue.waits) == queue.totals.started
    assert sum(each.count for each in queue.runs) == queue.totals.completed


def test_a_span_is_in_the_bar_that_covers_it(three_seconds: ReviewPage) -> None:
    bars = the_queue(three_seconds).waits
    for wait_ms, each in zip((100, 500, 1_200), bars, strict=True):
        assert each.low_ms - 1e-6 <= wait_ms < each.high_ms
        assert each.count == 1


def test_a_worker_is_told_by_what_it_held_in_each_step(three_seconds: ReviewPage) -> None:
    first, second = the_queue(three_seconds).workers
    assert (first.name, first.attempts, first.failed, first.held_ms) == ("a", 3, 1, 1_699)
    assert (second.name, second.attempts, second.failed, second.held_ms) == ("b", 2, 2, 1_500)
    assert (first.used, second.used) == pytest.approx((1_699 / 3_000, 0.5))
    loads = {load.at_ms - NOON_MS: load.busy for load in first.load}
    assert loads == {
        **dict.fromkeys(range(500, 1_000, 100), 1.0),  # one
        **dict.fromkeys(range(2_200, 2_500, 100), 1.0),  # four
        **dict.fromkeys(range(2_500, 2_900, 100), 2.0),  # four and two
        2_900: 0.99,  # four, but for the last millisecond
    }


@pytest.mark.both_engines
def test_a_longer_period_is_told_by_its_hours(engine: Engine) -> None:
    one, three, far = NOON_MS, NOON_MS + 2 * HOUR_MS, NOON_MS + 7 * DAY_MS
    told = collect(
        engine,
        of(
            engine,
            jobs(),
            [
                an_hour(one, enqueued=5, completed=3, depth_max=9, depth_end=2),
                an_hour(three, enqueued=7, failed=1, retried=2, stalled=3, depth_max=1, depth_end=0),
                an_hour(far, enqueued=100, depth_max=100),  # just after the period
            ],
            [a_workers_hour(one, "a", 2 * HOUR_MS), a_workers_hour(three, "a", HOUR_MS // 2)],
        ),
        one,
        far,
    )
    assert told.step_ms == HOUR_MS
    assert the_queue(told).points == (
        Point(one, enqueued=5, completed=3, started=3, in_time=2, depth=9, wait=WAITS),
        Point(one + HOUR_MS, depth=2),  # nothing happened, and two waited
        Point(three, enqueued=7, failed=1, retried=2, stalled=3, depth=2),
    )
    (worker,) = the_queue(told).workers
    assert worker.load == (WorkerLoad(one, 2.0), WorkerLoad(three, 0.5))


@pytest.mark.both_engines
def test_the_hours_of_the_week_count_the_quiet_ones(engine: Engine) -> None:
    weeks = 2 * 7 * DAY_MS
    told = collect(
        engine,
        of(engine, jobs(), [an_hour(NOON_MS, enqueued=4), an_hour(NOON_MS + 7 * DAY_MS, enqueued=6)]),
        NOON_MS,
        NOON_MS + weeks,
    )
    week = the_queue(told).week
    assert len(week) == 7 * 24
    assert [each for each in week if each.enqueued] == [WeekHour(3, 12, 2, enqueued=10, started=3, in_time=2)]
    assert {each.hours for each in week} == {2}


@pytest.mark.both_engines
def test_errors_of_all_hours_are_added_and_the_rest_is_counted(engine: Engine) -> None:
    kinds = [chr(ord("a") + n) * 3 for n in range(12)]
    rows = [
        *(an_errors_hour(NOON_MS, text, 20 - n, n) for n, text in enumerate(kinds)),
        an_errors_hour(NOON_MS + HOUR_MS, "aaa", 5, 1),
    ]
    told = collect(
        engine, of(engine, jobs(), [an_hour(NOON_MS)], errors=rows), NOON_MS, NOON_MS + 2 * HOUR_MS
    )
    queue = the_queue(told)
    assert queue.errors[0] == Error(
        fingerprint("OSError", "aaa"), "OSError", "aaa", 25, 1, NOON_MS + 1, NOON_MS + HOUR_MS + 2
    )
    assert [error.count for error in queue.errors] == [25, 19, 18, 17, 16, 15, 14, 13, 12, 11]
    assert queue.errors_other == 10 + 9


@pytest.mark.both_engines
def test_queues_with_most_trouble_have_sections_and_all_are_told(engine: Engine) -> None:
    hours = [an_hour(NOON_MS, f"queue-{n:02}", enqueued=n, failed=int(n == 7)) for n in range(23)]
    told = collect(engine, of(engine, hours=hours), NOON_MS, NOON_MS + HOUR_MS)
    assert [queue.name for queue in told.queues] == [
        "queue-07",
        *(f"queue-{n:02}" for n in range(22, 18, -1)),
    ]
    assert [name for name, _ in told.others] == [f"queue-{n:02}" for n in range(18, -1, -1) if n != 7]
    assert told.totals.enqueued == sum(range(23))


def test_a_redriven_job_arrived_once(engine: Engine, three_seconds: ReviewPage) -> None:
    again = a_job(
        "four",
        "completed",
        NOON_MS + 1_000,
        NOON_MS + 2_999,
        a_lease(4, "a", NOON_MS + 2_500, NOON_MS + 2_999, "completed"),
        redriven=True,
        wait_ms=None,
        total_ms=None,
        run=4,
    )
    told = collect(
        engine, of(engine, [*jobs(), again], [an_hour(NOON_MS, enqueued=4)]), NOON_MS, NOON_MS + 3_000
    )
    points = the_queue(told).points
    assert sum(point.enqueued for point in points) == 4
    assert told.totals.started == 3
    assert [point.depth for point in points] == [point.depth for point in the_queue(three_seconds).points]


def test_finer_steps_and_the_metrics_of_their_hour_tell_the_same(engine: Engine) -> None:
    bare, hour = of(engine, jobs()), FigureWindow(NOON_MS, NOON_MS + HOUR_MS)
    happened = figures.events(engine, bare.jobs, bare.attempts)
    depths = figures.depths(engine, happened, hour)
    hours = figures.summed(engine, happened, depths, hour, target_ms=1_000)
    measured = replace(bare, hours=hours, workers=figures.workers(engine, bare.attempts, hour))
    told = collect(engine, measured, NOON_MS, NOON_MS + 3_000)
    (queue,), (row,) = told.queues, engine_rows(engine, hours)
    for name in ("enqueued", "completed", "failed", "retried", "stalled"):
        assert (
            sum(getattr(point, name) for point in queue.points) == row[name] == getattr(told.totals, name)
        ), name
    assert max(point.depth for point in queue.points) == row["depth_max"]
    assert told.totals.in_time == row["on_target"]
    for name, found in (("wait", told.totals.wait), ("run", told.totals.run), ("total", told.totals.whole)):
        assert found == Quantiles(*(row[f"{name}_{of_}_ms"] for of_ in ("p50", "p95", "p99", "max"))), name
    for worker in queue.workers:
        assert sum(load.busy for load in worker.load) * told.step_ms == pytest.approx(worker.held_ms)


def saved(engine: Engine, told: ReportTables, folder: Path) -> str:
    """Tables on disk."""
    for table, rows in (
        (JOBS, told.jobs),
        (ATTEMPTS, told.attempts),
        (METRICS_HOURLY, told.hours),
        (METRICS_WORKERS, told.workers),
        (METRICS_ERRORS, told.errors),
    ):
        write(engine.arrow(rows), f"file://{folder}", table)
    return str(folder)


@pytest.fixture(scope="module")
def tables(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(engine, noon(engine), tmp_path_factory.mktemp("tables"))


def test_the_report_is_one_file_whose_numbers_are_those_of_the_tables(
    engine: Engine, tables: str, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "report.html"
    done = run(engine, Review(tables, str(out)))
    assert (done.path, done.queues, done.jobs, done.bytes) == (str(out), 1, 4, out.stat().st_size)
    assert (done.since, done.until) == ("2026-10-01T12:00:00.000+00:00", "2026-10-01T12:00:03.000+00:00")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    text = out.read_text()
    assert "66.7 %</b> of 3 jobs started within 1 s" in text
    assert "the most frequent error is <bdi>OSError</bdi>, 1 time." in text
    run(engine, Review(tables, str(out)))
    assert out.read_text() == text, "the same tables make the same file"


def test_a_period_is_made_of_whole_hours(engine: Engine, tables: str, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    since, until = at(NOON_MS + 40 * MINUTE_MS), at(NOON_MS + HOUR_MS + MINUTE_MS)
    done = run(engine, Review(tables, f"file://{out}", since, until, target_ms=2_000, title="Week <40>"))
    assert (done.since, done.until) == ("2026-10-01T12:00:00.000+00:00", "2026-10-01T13:00:00.000+00:00")
    assert "100 %</b> of 3 jobs started within 2 s" in out.read_text()
    assert "<h1>Week &lt;40&gt;</h1>" in out.read_text()


def test_a_period_in_which_nothing_happened_says_so(engine: Engine, tables: str, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = run(engine, Review(tables, str(out), at(NOON_MS + DAY_MS), at(NOON_MS + 2 * DAY_MS)))
    assert done.jobs == 0
    assert "No jobs arrived, started or ended in this period." in out.read_text()


def test_only_the_queues_asked_for_are_told_of(engine: Engine, tables: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no jobs"):
        run(engine, Review(tables, str(tmp_path / "report.html"), queues=("others",)))


def test_tables_that_are_not_there_are_missed_with_a_remedy(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="osqueue pipeline compact"):
        run(engine, Review(str(tmp_path / "none"), str(tmp_path / "report.html")))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"since": at(NOON_MS + DAY_MS), "until": at(NOON_MS)}, "until"),
        ({"since": datetime(2026, 10, 1)}, "since"),  # noqa: DTZ001
        ({"target_ms": -1}, "target_ms"),
        ({"out": ""}, "out"),
        ({"queues": ("no/queue",)}, "queue"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    engine: Engine, tables: str, tmp_path: Path, fields: dict[str, Any], named: str
) -> None:
    config = {"tables": tables, "out": str(tmp_path / "report.html"), **fields}
    with pytest.raises(Rejected, match=named):
        run(engine, Review(**config))
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named(engine: Engine, tables: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match="could not be written"):
        run(engine, Review(tables, str(tmp_path / "file" / "report.html")))


def test_the_entry_point_prints_what_it_wrote(
    engine: Engine, tables: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert (
        report.main(
            [
                tables,
                str(out),
                "--queue",
                "emails",
                "--since",
                "2026-10-02T12:00Z",
                "--until",
                "2026-10-03T00:00Z",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["path"] == str(out)
    with pytest.raises(NotFound, match="osqueue pipeline compact"):
        report.main([str(tmp_path / "none"), str(out)])
