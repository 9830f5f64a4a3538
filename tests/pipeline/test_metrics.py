"""Metrics of small pasts, against answers worked out by hand. Each past is a queue of its own, all computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from osqueue.core.archive_record import ArchiveRecord
from osqueue.core.fingerprint import fingerprint
from osqueue.errors import Rejected
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import compact, metrics
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.jobs.metrics import Metrics, MetricsResult
from osqueue.pipeline.tables import (
    METRICS_DAILY,
    METRICS_ERRORS,
    METRICS_HOURLY,
    METRICS_WORKERS,
    TABLES,
    TableSpec,
)
from tests.pipeline.past import HOUR_MS, Archive, Row, at, done, lease, read

pytestmark = pytest.mark.both_engines("told")

MINUTE = 60_000
TARGET_MS = 1000
PASTS: dict[str, Sequence[ArchiveRecord]] = {}  # by queue

Hours = dict[int, Row]


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


class Told:
    """The metrics of all pasts."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        archive = Archive(folder)
        for queue, records in PASTS.items():
            archive.write(20, "00-a", records, queue)
        compact.run(engine, Compaction(str(archive.store), str(archive.tables)))
        metrics.run(engine, Metrics(str(archive.tables), target_ms=TARGET_MS))
        self._rows = {
            table.name: [
                Row(row, since_ms=round(row.start.timestamp() * 1000) - at(0))
                for row in read(archive.tables, table)
            ]
            for table in (METRICS_HOURLY, METRICS_DAILY, METRICS_WORKERS, METRICS_ERRORS)
        }

    def rows(self, queue: str, table: TableSpec) -> list[Row]:
        return [row for row in self._rows[table.name] if row.queue == queue]

    def hours(self, queue: str) -> Hours:
        """By the hour after midnight."""
        return {row.since_ms // HOUR_MS: row for row in self.rows(queue, METRICS_HOURLY)}

    def day(self, queue: str) -> Row:
        (row,) = self.rows(queue, METRICS_DAILY)
        return row


@pytest.fixture(scope="module")
def told(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return Told(engine, tmp_path_factory.mktemp("metrics"))


PASTS["events"] = [
    done(1, at(8), lease(1, at(9), at(10))),
    done(2, at(8), lease(1, at(9), at(9) + 5, "failed"), lease(2, at(10), at(11) + 1)),
    done(
        3, at(9), lease(1, at(9), at(10), "stalled"), lease(2, at(10), at(10) + 5, "failed"), max_attempts=2
    ),
    done(4, at(9), state="cancelled", finished_ms=at(11) - 1),
    done(5, at(10), lease(1, at(10), at(10) + 5, "released"), lease(2, at(11), at(11) + 5)),
]


def test_every_event_counts_in_the_hour_in_which_it_happened(told: Told) -> None:
    names = (
        "enqueued",
        "claimed",
        "completed",
        "failed",
        "cancelled",
        "retried",
        "stalled",
        "released",
        "growth",
    )
    found = {hour: tuple(row[name] for name in names) for hour, row in told.hours("events").items()}
    assert found == {
        8: (2, 0, 0, 0, 0, 0, 0, 0, 2),
        9: (2, 3, 0, 0, 0, 1, 0, 0, 2),
        10: (1, 3, 1, 1, 1, 0, 1, 1, -2),
        11: (0, 1, 2, 0, 0, 0, 0, 0, -2),
    }
    whole = told.day("events")
    assert tuple(whole[name] for name in names) == tuple(map(sum, zip(*found.values(), strict=True)))
    assert whole["date"] == date(2026, 1, 5)


PASTS["edges"] = [
    done(1, at(9) - 1, lease(1, at(9), at(10) - 1)),
    done(2, at(9), lease(1, at(10) - 1, at(10))),
]


def test_the_end_of_an_hour_belongs_to_the_next(told: Told) -> None:
    found = told.hours("edges")
    assert {hour: (row.enqueued, row.claimed, row.completed) for hour, row in found.items()} == {
        8: (1, 0, 0),
        9: (1, 2, 1),
        10: (0, 0, 1),
    }


PASTS["eleven"] = [done(each, at(9), lease(1, at(9) + 10 * each, at(9) + 30 * each)) for each in range(11)]


def test_percentiles_are_exact_and_interpolated(told: Told) -> None:
    """Of 0, 10, … 100 the median is 50; 95 % lie up to half the way from 90 to 100, 99 % up to nine tenths."""
    row = told.hours("eleven")[9]
    assert (row.wait_p50_ms, row.wait_p95_ms, row.wait_p99_ms, row.wait_max_ms) == (
        50,
        95,
        pytest.approx(99),
        100,
    )
    assert (row.run_p50_ms, row.run_p95_ms, row.run_p99_ms, row.run_max_ms) == (
        100,
        190,
        pytest.approx(198),
        200,
    )
    assert (row.total_p50_ms, row.total_p95_ms, row.total_max_ms) == (150, 285, 300)


PASTS["day"] = [
    done(number, at(hour), lease(1, at(hour) + wait, at(hour) + wait))
    for number, (hour, wait) in enumerate([(9, 1), (9, 2), (9, 3), (10, 1000), (11, 2000)])
]


def test_percentiles_of_a_day_are_those_of_all_its_values(told: Told) -> None:
    whole = told.day("day")
    assert (whole.wait_p50_ms, whole.wait_max_ms) == (3, 2000)


PASTS["quiet"] = [done(1, at(8), lease(1, at(10), at(10) + 7))]


def test_what_has_nothing_to_tell_of_is_null_and_no_zero(told: Told) -> None:
    quiet = told.hours("quiet")[9]
    assert (quiet.enqueued, quiet.completed, quiet.workers, quiet.on_target) == (0, 0, 0, 0)
    silent = ("wait_p50_ms", "wait_max_ms", "run_p99_ms", "total_max_ms", "attempts_mean", "on_target_share")
    assert [quiet[name] for name in silent] == [None] * 6


PASTS["depth"] = [
    done(1, at(9.25), lease(1, at(9.75), at(9) + 50 * MINUTE, "failed"), lease(2, at(10), at(10.5))),
    done(2, at(9.5), lease(1, at(10.5), at(12))),
]


def test_depth_is_the_jobs_that_wait_over_time(told: Told) -> None:
    """One waits from 9:15 to 9:45, another from 9:30 to 10:30; the first fails, and waits again from 9:50 to 10:00."""
    found = told.hours("depth")
    assert {hour: (row.depth_mean, row.depth_max, row.depth_end) for hour, row in found.items()} == {
        9: (pytest.approx((30 + 30 + 10) / 60), 2, 2),
        10: (pytest.approx(0.5), 1, 0),
        11: (0, 0, 0),
        12: (0, 0, 0),
    }
    assert {hour: (row.running_mean, row.running_max, row.running_end) for hour, row in found.items()} == {
        9: (pytest.approx(5 / 60), 1, 0),
        10: (1, 1, 1),
        11: (1, 1, 1),
        12: (0, 0, 0),
    }


PASTS["delayed"] = [done(1, at(8), lease(1, at(10.5), at(10.5)), scheduled_ms=at(10))]


def test_a_delayed_job_waits_from_its_time_on(told: Told) -> None:
    found = told.hours("delayed")
    assert {hour: row.depth_max for hour, row in found.items()} == {8: 0, 10: 1}
    assert found[10].wait_max_ms == 30 * MINUTE


PASTS["at-once"] = [
    done(1, at(9), lease(1, at(9), at(9) + 5)),
    done(2, at(9) + 5, lease(1, at(9) + 5, at(9.5))),
]


def test_a_job_that_is_handed_over_at_once_is_never_seen_waiting(told: Told) -> None:
    row = told.hours("at-once")[9]
    assert (row.depth_max, row.depth_mean, row.running_max) == (0, 0, 1)


PASTS["called-off"] = [done(1, at(8), state="cancelled", finished_ms=at(9), scheduled_ms=at(12))]


def test_a_job_cancelled_before_its_time_was_never_waiting(told: Told) -> None:
    found = told.hours("called-off")
    assert {hour: (row.depth_max, row.depth_end) for hour, row in found.items()} == {8: (0, 0), 9: (0, 0)}


DEATH = lease(1, at(9), at(9.5), "failed", error="x")
PASTS["redriven"] = [done(1, at(8), DEATH), done(1, at(8), DEATH, lease(3, at(12), at(12.25)), attempt=1)]


def test_a_redriven_job_arrives_once_and_ends_twice(told: Told) -> None:
    found, whole = told.hours("redriven"), told.day("redriven")
    assert (whole.enqueued, whole.failed, whole.completed, whole.claimed, whole.retried) == (1, 1, 1, 2, 0)
    assert {hour: row.depth_mean for hour, row in found.items()} == {8: 1, 9: 0, 12: 0}
    assert (found[12].wait_max_ms, found[12].total_max_ms, found[12].run_max_ms) == (None, None, 15 * MINUTE)


DEATHS = [lease(run, at(9), at(9) + 5, "failed") for run in range(1, 9)]
LATER = [lease(run, at(12) + run, at(12) + run, "failed") for run in range(10, 17)]
PASTS["redriven-and-forgotten"] = [
    done(1, at(8), *DEATHS),
    done(1, at(8), *LATER, lease(17, at(12.5), at(12.75)), attempt=8),
]


def test_a_redriven_job_that_forgot_its_death_does_not_wait_meanwhile(told: Told) -> None:
    found = told.hours("redriven-and-forgotten")
    assert (found[8].depth_max, found.keys()) == (1, {8, 9, 12})
    assert found[12].depth_mean == pytest.approx(0.5, abs=1e-5)
    assert (found[12].depth_max, found[12].depth_end, found[12].total_max_ms) == (1, 0, None)


PASTS["target"] = [
    done(number, at(9), lease(1, at(9) + wait, at(9) + wait))
    for number, wait in enumerate((0, 999, 1000, 1001))
]


def test_the_share_on_target_counts_waits_up_to_the_target(told: Told) -> None:
    row = told.hours("target")[9]
    assert (row.target_ms, row.on_target, row.on_target_share) == (1000, 3, 0.75)


FAILURES = [lease(run, at(9), at(9), "failed") for run in (1, 2, 3)]
PASTS["attempts"] = [
    done(1, at(9), lease(1, at(9), at(9))),
    done(2, at(9), *FAILURES),
    done(3, at(9), *FAILURES[:2], state="cancelled"),
]


def test_attempts_are_those_of_jobs_completed_or_failed(told: Told) -> None:
    row = told.hours("attempts")[9]
    assert (row.attempts_mean, row.attempts_max) == (2, 3)


PASTS["workers"] = [
    done(1, at(9), lease(1, at(9.5), at(10.5), worker="a")),
    done(2, at(9), lease(1, at(10), at(10.25), worker="a")),
    done(3, at(9), lease(1, at(10), at(10), "failed", worker="b")),
]


def test_workers_are_busy_while_they_hold_a_lease(told: Told) -> None:
    """a holds one lease from 9:30 to 10:30 and another from 10:00 to 10:15; b one for no time at all."""
    found = {(row.since_ms // HOUR_MS, row.worker): row for row in told.rows("workers", METRICS_WORKERS)}
    assert {
        who: (
            row.claimed,
            row.completed,
            row.failed,
            row.held_ms,
            row.held_mean,
            row.held_max,
            row.utilisation,
        )
        for who, row in found.items()
    } == {
        (9, "a"): (1, 0, 0, 30 * MINUTE, 0.5, 1, 0.5),
        (10, "a"): (1, 2, 0, 45 * MINUTE, 0.75, 2, 0.5),
        (10, "b"): (1, 0, 1, 0, 0, 0, 0),
    }
    assert {hour: row.workers for hour, row in told.hours("workers").items()} == {9: 1, 10: 2}


def refused(run: int, host: int) -> Any:
    return lease(
        run, at(9) + host, at(9) + host, "failed", error=f"host {host} refused", error_type="OSError"
    )


PASTS["errors"] = [
    done(1, at(9), refused(1, 7), refused(2, 9)),
    done(2, at(9), refused(1, 3), lease(2, at(10), at(10))),
    done(3, at(9), lease(1, at(9), at(9) + 30, "stalled"), lease(2, at(10), at(10))),
]


def test_errors_are_grouped_by_the_librarys_fingerprint(told: Told) -> None:
    found = {row.error_type: row for row in told.rows("errors", METRICS_ERRORS)}
    assert found.keys() == {"OSError", "stalled"}
    one = found["OSError"]
    assert one.fingerprint == fingerprint("OSError", "host 99 refused")
    assert (one.error, one.example) == ("host <n> refused", "host 3 refused")
    assert (one.attempts, one.jobs, one.deaths) == (3, 2, 1)
    assert (one.last_at - one.first_at).total_seconds() == 0.006
    silent = found["stalled"]
    assert silent.fingerprint == fingerprint("stalled", "its lease ended without a word from its worker")


def test_every_past_is_a_queue_with_rows(told: Told) -> None:
    assert {queue for queue in PASTS if told.hours(queue) and told.day(queue)} == PASTS.keys()


# ── Runs ─────────────────────────────────────────────────────────────────────
def test_no_jobs_no_metrics(engine: Engine, archive: Archive) -> None:
    assert metrics.run(engine, Metrics(str(archive.tables))) == MetricsResult()
    told = metrics.run(engine, Metrics(str(archive.tables), day(5), day(6)))
    assert sum(told.rows.values()) == 0


def test_some_days_again_are_the_same_as_all_of_them(engine: Engine, archive: Archive) -> None:
    """Whatever happened before and after them: a job waits through a day, a queue has nothing to do on another one.

    And what was archived on a day need not have ended on it.
    """
    for queue, hour, record in (
        ("emails", 61, done(1, at(20), lease(1, at(60), at(60.5), worker="a"))),
        ("emails", 50, done(2, at(26), lease(1, at(27), at(49), worker="b"))),
        ("emails", 5, done(3, at(2), lease(1, at(3), at(4), worker="a"))),
        ("late", 25, done(1, at(22), lease(1, at(22), at(23)))),
        ("idle", 22, done(1, at(20), lease(1, at(20), at(21)))),
        ("idle", 60, done(2, at(59), lease(1, at(59), at(60)))),
        ("new", 60, done(2, at(59), lease(1, at(59), at(60)))),
    ):
        archive.write(hour, "00-a", [record], queue)
    compact.run(engine, Compaction(str(archive.store), str(archive.tables)))

    def everything() -> list[str]:
        return sorted(str(row) for table in TABLES for row in read(archive.tables, table))

    first = metrics.run(engine, Metrics(str(archive.tables)))
    assert (first.since, first.until) == (day(5), day(8))
    before = everything()
    within = day(6).replace(hour=7), day(6).replace(hour=9)  # rounded to the whole day
    again = metrics.run(engine, Metrics(str(archive.tables), *within))
    assert (again.since, again.until, again.rows["metrics_hourly"]) == (day(6), day(7), 24)
    assert everything() == before
    for number in (5, 7, 8):
        metrics.run(engine, Metrics(str(archive.tables), day(number), day(number + 1)))
    assert everything() == before


def test_days_whose_jobs_are_gone_are_emptied(engine: Engine, archive: Archive) -> None:
    archive.write(20, "00-a", [done(1, at(8), lease(1, at(9), at(9)))])
    compact.run(engine, Compaction(str(archive.store), str(archive.tables)))
    metrics.run(engine, Metrics(str(archive.tables)))
    archive.path(20, "00-a").unlink()
    archive.write(70, "00-a", [done(2, at(60))])  # of a later day: there is an archive still
    compact.run(engine, Compaction(str(archive.store), str(archive.tables), day(5), day(6)))
    metrics.run(engine, Metrics(str(archive.tables), day(5), day(6)))
    assert [row for table in TABLES for row in read(archive.tables, table)] == []


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (Metrics(""), "tables"),
        (Metrics("t", day(6), day(6)), "until"),
        (Metrics("t", datetime(2026, 1, 5)), "since"),  # noqa: DTZ001
        (Metrics("t", target_ms=-1), "target_ms"),
        (Metrics("t", queues=("No Queue",)), "queue"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(engine: Engine, config: Metrics, field: str) -> None:
    with pytest.raises(Rejected) as told:
        metrics.run(engine, config)
    assert told.value.field == field
    assert told.value.message.startswith(f"{field}: ")
