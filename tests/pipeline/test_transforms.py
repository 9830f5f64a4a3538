"""Records as jobs and attempts, with answers made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from osqueue import limits
from osqueue.core.archive_record import ArchiveRecord, AttemptRecord
from osqueue.pipeline import tables, transforms
from tests.pipeline.past import PART, at, done, key, lease


def job(record: ArchiveRecord) -> Any:
    (found,) = transforms.rows({PART: [record]}).jobs.to_pylist()
    leases = [SimpleNamespace(**each) for each in found.pop("attempts")]
    return SimpleNamespace(**found, attempts=leases)


def attempts(*records: ArchiveRecord) -> list[Any]:
    return [SimpleNamespace(**each) for each in transforms.rows({PART: records}).attempts.to_pylist()]


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


FAILED = lease(1, at(10), at(10) + 500, "failed", error="no route", error_type="OSError")


def test_a_lease_in_a_job_has_a_column_for_every_field_the_library_writes() -> None:
    (found,) = transforms.rows({PART: [done(1, at(9), FAILED)]}).jobs["attempts"].to_pylist()
    assert list(found[0]) == list(AttemptRecord.__struct_fields__)


def test_no_field_that_the_library_writes_is_left_out_of_a_job() -> None:
    """A field that it adds is found here."""
    times = {
        "enqueued_ms": "enqueued_at",
        "finished_ms": "finished_at",
        "scheduled_ms": "claimable_at",
        "start_by_ms": "start_by",
    }
    untold = {"format", "result_body"}  # neither means anything outside of the store
    untold |= {
        "payload",
        "result",
        "result_codec",
        "left_out",
    }  # they stay in the archive, where a purge finds them
    told = {times.get(name, name) for name in ArchiveRecord.__struct_encode_fields__} - untold
    assert told <= set(tables.JOBS.arrow.names)


def test_a_record_that_leaves_out_its_defaults_has_them_as_a_job() -> None:
    found = job(done(1, at(9), lease(1, at(9) + 250, at(9) + 1000)))
    assert (found.kind, found.priority, found.max_attempts) == (
        "",
        limits.PRIORITY_DEFAULT,
        limits.ATTEMPTS_DEFAULT,
    )
    assert (found.result_ttl_ms, found.codec, found.result_bytes) == (limits.RESULT_TTL_MS_DEFAULT, "json", 0)
    assert (found.why, found.id, found.redriven) == ("", None, False)


def test_headers_of_a_record_are_a_map_of_the_job() -> None:
    found = job(done(1, at(9), lease(1, at(9) + 250, at(9) + 1000), headers={"tenant": "a"}))
    assert found.headers == [("tenant", "a")]


def test_waiting_counts_from_when_a_job_could_be_claimed() -> None:
    once = job(done(1, at(9), lease(1, at(9) + 250, at(9) + 1000)))
    assert (once.wait_ms, once.total_ms) == (250, 1000)
    assert (once.enqueued_at, once.started_at, once.finished_at) == tuple(
        map(moment, (at(9), at(9) + 250, at(9) + 1000))
    )
    later = job(done(2, at(9), lease(1, at(12) + 40, at(12) + 90), scheduled_ms=at(12)))
    assert (later.claimable_at, later.wait_ms, later.total_ms) == (moment(at(12)), 40, 90)


def test_a_job_cancelled_before_its_time_has_waited_for_nothing() -> None:
    found = job(done(1, at(9), state="cancelled", finished_ms=at(9.5), scheduled_ms=at(12), why="a mistake"))
    assert (found.wait_ms, found.total_ms, found.started_at, found.attempts, found.why) == (
        None,
        0,
        None,
        [],
        "a mistake",
    )


def test_a_redriven_job_tells_only_of_its_leases_since() -> None:
    again = done(1, at(9), FAILED, lease(3, at(11), at(11) + 70), attempt=1)
    found = job(again)
    assert [each.run for each in found.attempts] == [3]
    assert (found.redriven, found.started_at, found.wait_ms, found.total_ms) == (
        True,
        moment(at(11)),
        None,
        None,
    )


@pytest.mark.parametrize(
    ("history", "used", "own"),
    [
        pytest.param([(1, "released"), (2, "completed")], 1, [1, 2], id="given back first"),
        pytest.param(
            [(1, "failed"), (3, "released"), (4, "completed")], 1, [3, 4], id="given back after a redrive"
        ),
        pytest.param(
            [(1, "released"), (2, "failed"), (4, "completed")], 1, [4], id="given back before a redrive"
        ),
        pytest.param([(1, "failed"), (2, "stalled"), (3, "failed")], 3, [1, 2, 3], id="never redriven"),
        pytest.param([(1, "failed"), (90, "completed")], 2, [1, 90], id="restored from a backup: runs leap"),
        pytest.param([(1, "failed"), (3, "failed"), (5, "completed")], 1, [5], id="redriven twice"),
        pytest.param([(1, "failed")], 0, [], id="cancelled after a redrive"),
    ],
)
def test_which_leases_are_a_records_own(history: list[tuple[int, str]], used: int, own: list[int]) -> None:
    leases = [lease(run, at(10) + run, at(10) + run, outcome) for run, outcome in history]
    state = "completed" if history[-1][1] == "completed" else "failed" if used else "cancelled"
    found = job(done(1, at(9), *leases, attempt=used, state=state))
    assert [each.run for each in found.attempts] == own
    assert found.redriven is (len(own) < len(history))


def test_a_job_whose_first_leases_are_forgotten_has_no_wait() -> None:
    leases = [lease(run, at(10) + run, at(10) + run, "stalled") for run in range(5, 12)]
    found = job(done(1, at(9), *leases, lease(12, at(11), at(11) + 9), attempt=12))
    assert (len(found.attempts), found.started_at, found.wait_ms, found.total_ms) == (
        8,
        None,
        None,
        7_200_009,
    )


@pytest.mark.parametrize("outcome", ["stalled", "released"])
def test_a_job_that_may_have_been_redriven_before_what_it_remembers_has_no_times(outcome: str) -> None:
    """Runs 1 to 4 were three attempts and a redrive, or leases given back: eight leases do not tell."""
    leases = [lease(run, at(10) + run, at(10) + run, outcome) for run in range(5, 12)]
    found = job(done(1, at(9), *leases, lease(12, at(11), at(11) + 9)))
    assert (found.started_at, found.wait_ms, found.total_ms) == (None, None, None)


def test_attempts_say_who_when_and_how_long() -> None:
    first, second = attempts(done(1, at(9), FAILED, lease(2, at(11), at(11) + 70, worker="w2"), kind="mail"))
    assert (first.job_id, first.run, first.job_run, first.kind, first.worker) == (key(1), 1, 2, "mail", "w1")
    assert (first.outcome, first.error_type, first.error, first.run_ms) == (
        "failed",
        "OSError",
        "no route",
        500,
    )
    assert (second.worker, second.started_at, second.ended_at) == ("w2", moment(at(11)), moment(at(11) + 70))
    assert (second.run_ms, second.error, second.heartbeat_at) == (70, "", None)


def test_a_lease_that_a_job_did_not_end_with_is_not_final() -> None:
    found = attempts(
        done(1, at(9), lease(1, at(9), at(9), "failed"), state="cancelled", finished_ms=at(10)),
        done(
            2, at(9), lease(2, at(9), at(9), "failed"), lease(3, at(9), at(9), "stalled", beat_ms=at(9) - 5)
        ),
        done(3, at(9), lease(4, at(9), at(9), "cancelled")),
        done(4, at(9), lease(5, at(9), at(9), "released"), state="cancelled", attempt=0),
    )
    assert [(each.run, each.final) for each in found] == [
        (1, False),
        (2, False),
        (3, True),
        (4, True),
        (5, False),
    ]
    assert found[2].heartbeat_at == moment(at(9)) - timedelta(milliseconds=5)


def test_the_leases_of_a_job_stand_in_the_same_order_in_both_tables() -> None:
    """Both are made of the same columns, cut at different places."""
    records = [
        done(1, at(9), FAILED, lease(2, at(11), at(11) + 70)),
        done(2, at(9), state="cancelled"),
        done(3, at(9), FAILED, lease(3, at(11), at(11) + 9), attempt=1),
        done(4, at(9), lease(1, at(9), at(10))),
    ]
    both = transforms.rows({PART: records})
    nested = [(row["job_id"], each["run"]) for row in both.jobs.to_pylist() for each in row["attempts"]]
    assert nested == [(key(1), 1), (key(1), 2), (key(3), 3), (key(4), 1)]
    assert [(row["job_id"], row["run"]) for row in both.attempts.to_pylist()] == nested


def test_an_ending_is_told_from_others_of_the_same_job() -> None:
    once, again = (done(1, at(9), lease(run, at(9), at(9))) for run in (1, 3))
    assert transforms.key(once) != transforms.key(again)
    assert transforms.key(done(1, at(9), lease(12, at(9), at(9)))) != transforms.key(once)


def test_the_tables_columns_are_those_that_the_transforms_make() -> None:
    both = transforms.rows({PART: [done(1, at(9), FAILED)]})
    for made, table in ((both.jobs, tables.JOBS), (both.attempts, tables.ATTEMPTS)):
        assert made.schema == table.arrow
        assert made.column_names == table.arrow.names


def test_every_column_says_what_it_holds() -> None:
    silent: list[Any] = [
        (table.name, column.name)
        for table in tables.TABLES
        for column in (*table.columns, *tables.PARTITIONS)
        if not column.comment
    ]
    assert silent == []
