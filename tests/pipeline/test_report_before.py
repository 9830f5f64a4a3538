"""A report's figures against those of the period of the same length before, with answers computed by hand."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from osqueue.core.archive_record import ArchiveRecord
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import compact, metrics, report, run
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.jobs.metrics import Metrics
from osqueue.pipeline.jobs.report import Review
from osqueue.pipeline.jobs.run import PipelineRun
from tests.pipeline.past import Archive, at, done, hour, lease

COLUMNS = ("name", "jobs", "failed", "late", "p95 wait", "p95 run")


def a_job(
    number: int, hours: float, wait_s: int, run_s: int = 1, outcome: str = "completed"
) -> ArchiveRecord:
    """One that arrived so many hours after the midnight between Sunday and Monday."""
    begin = at(hours) + wait_s * 1_000
    return done(number, at(hours), lease(1, begin, begin + run_s * 1_000, outcome))


@pytest.fixture
def filled(archive: Archive) -> Archive:
    """Monday and Tuesday: a queue that got better, one that ended and one that began; and a job of Sunday."""
    archive.write(-10, "00-a", [a_job(1, -10, 500, 500)])
    archive.write(1, "00-a", [a_job(2, 1, 10)])
    archive.write(26, "00-a", [a_job(3, 2, 90, 3, "failed")])  # it was archived a day later
    archive.write(30, "00-a", [a_job(number, 30, 20, 2) for number in (4, 5, 6, 7)])
    archive.write(1, "00-a", [a_job(8, 1, 10)], "ended")
    archive.write(30, "00-a", [a_job(9, 30, 20, 2)], "new")
    return archive


def measured(engine: Engine, archive: Archive, *, since: int | None = None) -> None:
    compact.run(engine, Compaction(str(archive.store), str(archive.tables)))
    metrics.run(engine, Metrics(str(archive.tables), None if since is None else hour(since)))


def section(engine: Engine, archive: Archive, **fields: object) -> ET.Element:
    out = archive.tables.parent / "report.html"
    report.run(engine, Review(str(archive.tables), str(out), **fields))  # type: ignore[arg-type]
    return the_section(out)


def the_section(out: Path) -> ET.Element:
    page = ET.fromstring(out.read_text())  # noqa: S314 - what is parsed was made here
    return next(each for each in page.iter("section") if each.get("id") == "before")


def said(element: ET.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def rows(of: ET.Element) -> list[tuple[str, ...]]:
    return [tuple(said(cell) for cell in row) for row in of.findall(".//tbody/tr")]


TUESDAY = [
    ("All queues", "5 +66.7 %", "0 % −33.3 points", "0 % −33.3 points", "20 s −75.6 %", "2 s +100 %"),
    ("emails", "4 +100 %", "0 % −50.0 points", "0 % −50.0 points", "20 s −76.7 %", "2 s +100 %"),
    ("new", "1 was 0", "0 %", "0 %", "20 s", "2 s"),
    ("ended", "0 −100 %", "– was 0 %", "– was 0 %", "– was 10 s", "– was 1 s"),
]


@pytest.mark.both_engines
def test_each_figure_is_told_with_what_has_changed_since_the_period_before(
    engine: Engine, filled: Archive
) -> None:
    measured(engine, filled)
    told = section(engine, filled, since=hour(24), until=hour(48))
    assert rows(told) == TUESDAY
    assert "5 Jan 2026, of the same length." in said(told)


def test_a_nightly_run_compares_with_what_it_does_not_measure_anew(engine: Engine, filled: Archive) -> None:
    measured(engine, filled)
    out = filled.tables.parent / "report.html"
    run.run(engine, PipelineRun(str(filled.store), str(filled.tables), str(out), at=hour(48), days=1))
    assert rows(the_section(out)) == TUESDAY


def test_a_queue_alone_is_compared_with_itself(engine: Engine, filled: Archive) -> None:
    measured(engine, filled)
    assert rows(section(engine, filled, since=hour(24), until=hour(48), queues=("emails",))) == TUESDAY[1:2]


def test_a_period_that_ends_with_the_last_job_is_compared_with_as_many_hours(
    engine: Engine, filled: Archive
) -> None:
    measured(engine, filled)
    told = said(section(engine, filled, since=hour(24)))  # until half a minute after 06:00: seven hours
    assert "5 Jan 2026 17:00 to 6 Jan 2026 00:00" in told


@pytest.mark.parametrize("fields", [{}, {"since": hour(-24), "until": hour(0)}], ids=["all", "the first day"])
def test_where_the_tables_have_nothing_before_the_page_says_so(
    engine: Engine, filled: Archive, fields: dict[str, object]
) -> None:
    measured(engine, filled)
    told = section(engine, filled, **fields)
    assert said(told).startswith("Against the period before No data before: the tables have nothing of ")
    assert rows(told) == []


def test_a_history_that_begins_within_the_period_before_is_compared_with_a_remark(
    engine: Engine, filled: Archive
) -> None:
    measured(engine, filled)
    told = section(engine, filled, since=hour(0), until=hour(24))
    assert "the tables have nothing before 4 Jan 2026 14:00." in said(told)
    assert rows(told)[0][:2] == ("All queues", "3 +200 %")


def test_days_before_that_are_not_measured_are_named(engine: Engine, filled: Archive) -> None:
    measured(engine, filled, since=24)
    told = said(section(engine, filled, since=hour(24), until=hour(48)))
    assert "Not everything before is measured: emails (5 Jan 2026), ended (5 Jan 2026)" in told
    assert "No data before" not in told
