"""One run of everything: of the whole archive, and as a schedule runs it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from osqueue.cli.app import app
from osqueue.errors import NotFound, Rejected
from osqueue.pipeline import files
from osqueue.pipeline.engines import choice
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import command, run
from osqueue.pipeline.jobs.run import PipelineRun
from osqueue.pipeline.tables import JOBS, METRICS_DAILY
from tests.pipeline.past import Archive, at, done, key, lease, read

DAY = 24  # hours
OLD, LATE, NEW, OPEN = 0, 9 * DAY, 9 * DAY + 2, 9 * DAY + 5  # hours in which a job ended and was archived
SCHEDULED = datetime(2026, 1, 14, 5, 10, tzinfo=UTC)  # ten minutes into the last of them


@pytest.fixture
def filled(archive: Archive) -> Archive:
    """Jobs of four hours; the last hour had not ended when the run was scheduled."""
    for number, hour in enumerate((OLD, LATE, NEW, OPEN)):
        ended = at(hour + 0.05)
        archive.write(hour, f"part-{number}", [done(number, ended - 2_000, lease(1, ended - 1_000, ended))])
    return archive


def whole(archive: Archive, **more: object) -> PipelineRun:
    config = PipelineRun(str(archive.store), str(archive.tables), str(archive.tables.parent / "report.html"))
    return PipelineRun(config.store, config.tables, config.out, **more)  # type: ignore[arg-type]


def held(archive: Archive) -> set[str]:
    return {row.job_id for row in read(archive.tables, JOBS)}


def test_without_a_schedule_everything_is_gone_through_and_a_scheduled_run_leaves_the_rest_alone(
    engine: Engine, filled: Archive
) -> None:
    told = run.run(engine, whole(filled))
    assert (told.compacted.parts, told.reported.jobs) == (4, 4)
    assert held(filled) == {key(number) for number in range(4)}
    # The report is of the target that is asked for, though later days were measured with another one.
    config = whole(filled, target_ms=999, until=datetime(2026, 1, 6, tzinfo=UTC))
    run.run(engine, config)
    assert "0 %</b> of 1 job started within 999 ms" in Path(config.out).read_text()
    told = run.run(engine, whole(filled, at=SCHEDULED))
    assert (told.compacted.parts, told.compacted.hours) == (1, 1)
    assert held(filled) == {key(number) for number in range(4)}
    assert "queue=emails/date=2026-01-05" in files.days(f"file://{filled.tables}", METRICS_DAILY.name)


@pytest.mark.both_engines
def test_a_scheduled_run_goes_over_the_last_hours_and_days_alone_and_again_with_the_same_result(
    engine: Engine, filled: Archive
) -> None:
    config = whole(filled, at=SCHEDULED)
    first = run.run(engine, config)
    assert first.compacted.parts == 3  # the tables had nothing: up to the hours 2, 3 and 4 of that day
    page = Path(config.out).read_bytes()
    told = run.run(engine, config)
    assert told.compacted.parts == 1  # of these hours
    assert held(filled) == {key(number) for number in range(3)}
    assert (told.measured.since, told.measured.until) == (
        datetime(2026, 1, 7, tzinfo=UTC),
        datetime(2026, 1, 15, tzinfo=UTC),
    )
    assert told.reported.since == "2026-01-07T05:00:00.000+00:00"
    assert told.reported.until == "2026-01-14T05:00:00.000+00:00"
    assert told.reported.jobs == 2
    assert (told.measured, told.reported) == (first.measured, first.reported)
    assert Path(config.out).read_bytes() == page


def test_a_scheduled_run_over_an_archive_without_jobs_is_no_error(engine: Engine, archive: Archive) -> None:
    told = run.run(engine, whole(archive, at=SCHEDULED))
    assert (told.compacted.parts, told.reported.jobs) == (0, 0)
    assert Path(told.reported.path).is_file()


@pytest.mark.parametrize(("field", "more"), [("hours", {"hours": 0}), ("days", {"days": 0})])
def test_a_look_back_of_nothing_is_refused(
    engine: Engine, archive: Archive, field: str, more: dict[str, int]
) -> None:
    with pytest.raises(Rejected, match=f"{field}: it is less than 1") as caught:
        run.run(engine, whole(archive, at=SCHEDULED, **more))
    assert caught.value.field == field


def test_a_scheduled_moment_without_a_time_zone_is_refused(engine: Engine, archive: Archive) -> None:
    with pytest.raises(Rejected, match="no time zone"):
        run.run(engine, whole(archive, at=SCHEDULED.replace(tzinfo=None)))


def test_the_entry_point_takes_the_moment_as_a_scheduler_writes_it(
    engine: Engine,
    filled: Archive,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(choice, "engine", lambda name: nullcontext(engine))
    config = whole(filled)
    places = [config.store, config.tables, config.out]
    ranges = ["--at", "2026-01-14T05:10:00Z", "--hours", "6", "--days", "1"]
    assert run.main([*places, *ranges, "--engine", engine.name]) == 0
    said = capsys.readouterr()
    (line,) = said.out.splitlines()
    assert said.err.splitlines()[0] == "3 of 3 archive parts"
    assert said.err.splitlines()[-1] == "4 of 4 tables of metrics"
    told = json.loads(line)
    assert held(filled) == {key(number) for number in range(3)}
    assert (told["compacted"]["parts"], told["reported"]["jobs"]) == (3, 2)
    assert told["measured"]["since"] == "2026-01-13T00:00:00Z"


def test_a_range_is_gone_through_as_it_is_asked_for(engine: Engine, filled: Archive) -> None:
    began, ended = datetime(2026, 1, 14, tzinfo=UTC), datetime(2026, 1, 14, 5, tzinfo=UTC)
    told = run.run(engine, whole(filled, since=began, until=ended))
    assert (told.compacted.parts, told.measured.since, told.measured.until) == (
        2,
        began,
        datetime(2026, 1, 15, tzinfo=UTC),
    )


def test_a_schedule_and_a_range_are_not_asked_for_at_once(engine: Engine, filled: Archive) -> None:
    with pytest.raises(Rejected, match="at: it sets the range by itself"):
        run.run(engine, whole(filled, at=SCHEDULED, since=SCHEDULED))


def test_the_entry_point_ends_with_an_error_that_says_what_to_do(
    engine: Engine,
    archive: Archive,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(choice, "engine", lambda name: nullcontext(engine))
    places = [str(archive.tables), str(archive.tables / "r.html")]
    assert command.script(lambda: run.main(["gcs://bucket", *places, "--engine", engine.name])) == 1
    assert capsys.readouterr().err.startswith(
        "error: rejected: store: write gs://bucket/prefix in the place of gcs://"
    )
    with pytest.raises(
        NotFound, match=r"^store: the archive of .* has no jobs of this range\. .* osqueue reap\."
    ):
        run.main([str(archive.store), *places, "--engine", engine.name])


@pytest.mark.parametrize(
    ("name", "places", "status", "told"),
    [
        (
            "run",
            ["gcs://bucket", "TABLES", "TABLES/r.html"],
            2,
            "error: rejected: store: write gs://bucket/prefix",
        ),
        ("report", ["TABLES", "TABLES/r.html"], 1, "error: not_found: tables: "),
        ("sql", ["TABLES", "SELECT nothing FROM jobs"], 2, "error: rejected: query: "),
    ],
)
def test_the_command_line_ends_as_with_any_other_error(
    engine: Engine,
    archive: Archive,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    places: list[str],
    status: int,
    told: str,
) -> None:
    monkeypatch.setattr(choice, "engine", lambda name: nullcontext(engine))
    places = [each.replace("TABLES", str(archive.tables)) for each in places]
    ended = CliRunner().invoke(app, ["pipeline", name, *places, "--engine", engine.name])
    assert (ended.exit_code, ended.stdout) == (status, "")
    assert ended.stderr.startswith(told)
    assert len(ended.stderr.splitlines()) == 1
