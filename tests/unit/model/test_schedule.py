"""Schedules as callers write and see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from osqueue import limits
from osqueue.core.state import ScheduleRow
from osqueue.errors import Rejected
from osqueue.model.schedule import JOB_OPTIONS, Schedule, schedule_row, schedule_view

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def row(**wished: object) -> ScheduleRow:
    known: dict[str, object] = {
        "cron": None,
        "tz": "UTC",
        "every": None,
        "missed": "once",
        "overlap": "allow",
    }
    return schedule_row("x", **(known | wished), codec="json", options={})  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [60, timedelta(minutes=1), limits.EVERY_MS_MAX / 1000])
def test_an_interval_lasts_from_a_minute_to_a_year(every: object) -> None:
    assert row(every=every).every_ms >= limits.EVERY_MS_MIN


@pytest.mark.parametrize(
    "every", [59.999, 0, -60, limits.EVERY_MS_MAX / 1000 + 1, float("nan"), float("inf"), True, "60"]
)
def test_any_other_is_refused(every: object) -> None:
    with pytest.raises(Rejected, match="every: "):
        row(every=every)


def test_a_line_is_as_long_as_it_may_be_and_no_longer() -> None:
    minutes = ",".join(["7"] * 96)
    assert row(cron=f"{minutes} * * * *").cron.startswith("7,7")
    with pytest.raises(Rejected, match=r"cron: .*1 to 200"):
        row(cron=f"{minutes},7 * * * *")


def test_names_of_crontabs_and_spaces_are_read() -> None:
    assert row(cron=" @Hourly ").cron == "0 * * * *"
    assert row(cron="0  3 * *  mon").cron == "0 3 * * mon"


@pytest.mark.parametrize(
    ("tz", "why"),
    [
        ("localtime", "depend on the machine"),
        ("posix/UTC", "depend"),
        ("Europe/Atlantis", "does not know"),
        ("europe/berlin", "IANA"),
        (None, "tz: "),
    ],
)
def test_a_zone_is_the_same_on_each_machine_or_refused(tz: object, why: str) -> None:
    with pytest.raises(Rejected, match=f"tz: .*{why}" if tz else why):
        row(cron="@daily", tz=tz)


def test_a_step_beyond_its_field_is_refused() -> None:
    with pytest.raises(Rejected, match=r"cron: .*\*/90 is longer than the field.*every="):
        row(cron="*/90 * * * *")


def test_an_option_that_no_job_of_a_schedule_has_is_refused_with_a_remedy() -> None:
    with pytest.raises(Rejected, match=r"at: no option of a schedule.*says by itself"):
        schedule_row("x", "@daily", "UTC", None, "once", "allow", "json", {"at": 5})
    with pytest.raises(Rejected, match=r"no option of a schedule"):
        schedule_row("x", "@daily", "UTC", None, "once", "allow", "json", {"colour": 5})


def test_a_view_says_what_the_row_was_made_of() -> None:
    options = {"kind": "report", "priority": 2, "max_attempts": 7, "result_ttl": 60.0, "run_within": 5.0}
    options |= {"start_within": 90.0, "units": 3, "headers": {"a": "b"}, "then": [{"kind": "next"}]}
    assert options.keys() == set(JOB_OPTIONS)
    made = schedule_row("x", "@daily", "Europe/Berlin", None, "all", "queue", "json", options)
    view = schedule_view(made)
    assert view.options == options
    assert (view.cron, view.tz, view.every, view.missed, view.overlap) == (
        "0 0 * * *",
        "Europe/Berlin",
        None,
        "all",
        "queue",
    )


def test_the_coming_ticks_and_their_words() -> None:
    daily = Schedule(name="x", cron="0 3 * * *", tz="Europe/Berlin")
    assert [f"{at:%d %H:%M}" for at in daily.coming(3, NEW_YEAR)] == ["01 02:00", "02 02:00", "03 02:00"]
    assert daily.words == "At 03:00 every day, Europe/Berlin"
    assert [f"{at:%H:%M}" for at in Schedule(name="x", every=900).coming(2, NEW_YEAR)] == ["00:15", "00:30"]
    assert Schedule(name="x", every=900).words == "Every 15 min"
    assert Schedule(name="x", cron="0 3 * * *", tz="Mars").coming(3, NEW_YEAR) == []
