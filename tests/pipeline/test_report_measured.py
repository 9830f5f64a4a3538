"""Whether the metrics of a report are those of its jobs, and what is said where they are not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from osqueue.errors import NotFound
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import compact, metrics, report
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.jobs.metrics import Metrics
from osqueue.pipeline.jobs.report import Review
from tests.pipeline.past import Archive, at, done, hour, lease


@dataclass
class Reported:
    engine: Engine
    archive: Archive

    def page(self, **fields: object) -> str:
        out = self.archive.tables.parent / "report.html"
        report.run(self.engine, Review(str(self.archive.tables), str(out), **fields))  # type: ignore[arg-type]
        return Path(out).read_text()

    def measure(self, **fields: object) -> None:
        metrics.run(self.engine, Metrics(str(self.archive.tables), **fields))  # type: ignore[arg-type]


@pytest.fixture
def reported(engine: Engine, archive: Archive) -> Reported:
    """A job of emails on each of four days, and one of mails on the last."""
    for day in range(4):
        begin = at(24 * day + 9)
        archive.write(24 * day + 10, "00-a", [done(day, begin, lease(1, begin + 5, begin + 10))])
    archive.write(24 * 3 + 10, "00-a", [done(9, at(81), lease(1, at(81), at(82), "failed"))], "mails")
    compact.run(engine, Compaction(str(archive.store), str(archive.tables)))
    return Reported(engine, archive)


@pytest.mark.both_engines
def test_jobs_without_metrics_are_missed_with_a_remedy(engine: Engine, archive: Archive) -> None:
    archive.write(10, "00-a", [done(1, at(9), lease(1, at(9), at(9) + 5))])
    compact.run(engine, Compaction(str(archive.store), str(archive.tables)))
    with pytest.raises(NotFound, match="osqueue pipeline metrics"):
        Reported(engine, archive).page()


def test_days_and_queues_that_are_not_measured_are_named(reported: Reported) -> None:
    reported.measure(since=hour(24 * 3), queues=("emails",))
    page = reported.page()
    assert "Not everything is measured" in page
    assert "<bdi>emails</bdi> (5 Jan 2026 to 7 Jan 2026), <bdi>mails</bdi> (8 Jan 2026)." in page
    assert "osqueue pipeline metrics" in page
    assert "Not everything is measured" not in reported.page(since=hour(24 * 3), queues=("emails",))
    reported.measure()
    # A job that came after its day was measured; all other days and queues are now.
    reported.archive.write(40, "00-late", [done(7, at(33), lease(1, at(33), at(34)))])
    compact.run(reported.engine, Compaction(str(reported.archive.store), str(reported.archive.tables)))
    assert "is measured: </b><bdi>emails</bdi> (6 Jan 2026)." in reported.page()


def test_long_lists_of_days_and_queues_are_cut(engine: Engine, archive: Archive) -> None:
    for day in range(0, 12, 2):
        for queue in "abcdefg":
            begin = at(24 * day + 9)
            archive.write(
                24 * day + 10, "00-a", [done(day, begin, lease(1, begin + 5, begin + 10))], f"q-{queue}"
            )
    compact.run(engine, Compaction(str(archive.store), str(archive.tables)))
    told = Reported(engine, archive)
    told.measure(since=hour(24 * 10))
    page = told.page()
    assert "<bdi>q-a</bdi> (5 Jan 2026, 7 Jan 2026, 9 Jan 2026 and 2 more days)" in page
    assert "<bdi>q-e</bdi>" in page
    assert "9 Jan 2026 and 2 more days) and 2 more queues." in page


def test_the_most_frequent_error_is_that_of_all_queues_together(engine: Engine, archive: Archive) -> None:
    def failing(kind: str, *numbers: int) -> list[object]:
        return [
            done(each, at(9), lease(1, at(9), at(9) + 5, "failed", error=kind, error_type=kind))
            for each in numbers
        ]

    for queue, records in (
        ("a", failing("TimeoutError", 1, 2)),
        ("b", failing("TimeoutError", 3, 4)),
        ("c", failing("KeyError", 5, 6, 7)),
    ):
        archive.write(10, "00-a", records, queue)  # type: ignore[arg-type]
    compact.run(engine, Compaction(str(archive.store), str(archive.tables)))
    told = Reported(engine, archive)
    told.measure()
    assert "the most frequent error is <bdi>TimeoutError</bdi>, 4 times." in told.page()
