"""The demo's comparison of the pipeline with its accounts: it agrees where all is well, and notices what is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from demo import report as screen
from demo.accounting import check
from demo.analyst import read
from demo.books import Books
from demo.history import TARGET_MS, PipelineCheck, TableTotals, between_ranks, disagreements, headline
from demo.measure import measure
from demo.stock import ReplayResult, read_archive
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import compact, metrics, report
from tests.pipeline.past import Archive, at, done, lease

LOCKS = shutil.ignore_patterns(".osqueue")  # of a folder: a copy has no use for them

HOUR = 9


@pytest.fixture(scope="module")
def made(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of two hours, and what the pipeline made of it."""
    folder = tmp_path_factory.mktemp("demo")
    archive = Archive(folder)
    start = at(HOUR)
    plain = [
        done(n, start + 10 * n, lease(1, start + 40 * n, start + 90 * n + 300, worker=f"w{n % 3}"))
        for n in range(1, 30)
    ]
    late = start + 3_599_000
    others = [
        done(
            40,
            late,
            lease(1, late + 700, late + 800, "failed", error="no", error_type="Planned"),
            lease(2, late + 900, late + 1_500),
        ),
        done(41, late, lease(1, late + 20, late + 3_000, "stalled"), lease(2, late + 3_100, late + 3_400)),
        done(42, late, lease(1, late + 20, late + 50, "failed", error="no", error_type="Planned")),
    ]
    archive.write(HOUR, "00-plain", plain)
    archive.write(HOUR + 1, "00-others", others)
    tables = str(archive.tables)
    compact.run(engine, compact.Compaction(f"file://{archive.store}", tables))
    metrics.run(engine, metrics.Metrics(tables, target_ms=TARGET_MS))
    report.run(engine, report.Review(tables, str(folder / "report.html")))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(made, tmp_path / "copy", ignore=LOCKS))


@pytest.fixture(scope="module")
def told(engine: Engine, made: Path) -> TableTotals:
    return read(engine, f"file://{made / 'tables'}")


def problems(told: TableTotals, folder: Path) -> list[str]:
    records, archive = read_archive(folder / "store")
    books = Books(log={}, callers={}, sent=[], waits=[], archive=records, lines=records, live=[], workers={})
    result = ReplayResult(check(books), measure(books, {}, 0, archive, folder / "store"), None, 0)
    return disagreements(result, records, told, headline((folder / "report.html").read_text()))


def test_the_headline_is_what_readers_of_the_page_see() -> None:
    page = "<dt>failed</dt><dd><b>1</b><span>&lt;0.1 % of R&amp;D</span></dd>"
    assert headline(page) == {"failed": "1", "failed …": "<0.1 % of R&D"}


def test_what_the_pipeline_makes_agrees_with_the_accounts(told: TableTotals, made: Path) -> None:
    assert problems(told, made) == []


# ── Tampered with ────────────────────────────────────────────────────────────
def files(folder: Path, table: str) -> list[Path]:
    """Those of a table, hour 10 before hour 9."""
    return sorted((folder / "tables" / table).rglob("*.parquet"))


def lose_jobs(folder: Path) -> None:
    files(folder, "jobs")[0].unlink()


def double_attempts(folder: Path) -> None:
    file = files(folder, "attempts")[0]
    rows = pq.read_table(file, partitioning=None)
    pq.write_table(pa.concat_tables([rows, rows]), file)


def add_to(table: str, column: str) -> Callable[[Path], None]:
    """One more in each row of a column."""

    def spoil(folder: Path) -> None:
        for file in files(folder, table):
            rows = pq.read_table(file, partitioning=None)
            place = rows.schema.get_field_index(column)
            rows = rows.set_column(place, rows.schema.field(place), pc.add(rows[column], 1))
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            pq.write_table(rows, file)

    return spoil


def lose_a_day(folder: Path) -> None:
    shutil.rmtree(folder / "tables/metrics_daily")


def change_the_page(before: str, after: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        page = folder / "report.html"
        text = page.read_text()
        assert before in text
        page.write_text(text.replace(before, after, 1))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lose_jobs, "jobs completed: 0 by the pipeline, 31 by the accounts"),
        (double_attempts, "attempts stalled: 2 by the pipeline, 1 by the accounts"),
        (add_to("jobs", "wait_ms"), "wait p50 in s: 0.421 by the pipeline, 0.42 by the accounts"),
        (add_to("attempts", "run_ms"), "run p50 in s: 0.951 by the pipeline, 0.95 by the accounts"),
        (add_to("metrics_hourly", "enqueued"), "metrics_hourly, enqueued: 34 by the pipeline, 32 by the"),
        (
            add_to("metrics_hourly", "retried"),
            "metrics_hourly, retried: 3 by the pipeline, 1 by the accounts",
        ),
        (add_to("metrics_errors", "attempts"), "metrics_errors, attempts: "),
        (add_to("metrics_workers", "stalled"), "metrics_workers, stalled: "),
        (lose_a_day, "metrics_daily, claimed: 0 by the pipeline, 34 by the accounts"),
    ],
)
def test_a_table_that_is_changed_afterwards_is_noticed(
    engine: Engine, folder: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    spoil(folder)
    found = problems(read(engine, f"file://{folder / 'tables'}"), folder)
    assert any(each.startswith(complaint) for each in found), found


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (change_the_page("<b>32</b>", "<b>33</b>"), 'the report says of "arrived": 33; by the accounts'),
        (change_the_page("1 retried", "2 retried"), 'the report says of "attempts …": 2 retried, 1 stalled;'),
        (change_the_page("<dt>p95 wait</dt>", "<dt>wait</dt>"), 'the report says of "p95 wait": nothing;'),
    ],
)
def test_a_report_that_is_changed_afterwards_is_noticed(
    told: TableTotals, folder: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    spoil(folder)
    found = problems(told, folder)
    assert any(each.startswith(complaint) for each in found), found


# ── Its parts ────────────────────────────────────────────────────────────────
def test_a_percentile_of_the_metrics_lies_between_two_ranks() -> None:
    assert between_ranks([30, 10, 20, 50], 0.5) == 25
    assert between_ranks([7], 0.95) == 7


def test_the_last_line_is_the_path_of_the_report(
    told: TableTotals, capsys: pytest.CaptureFixture[str]
) -> None:
    history = PipelineCheck(
        "/somewhere/report.html", told, {"jobs": 2048, "attempts": 1024}, {"report": 1.25}, []
    )
    screen.show_history(history, None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "Tables, metrics and report agree with the accounts.",
        "report  /somewhere/report.html",
    ]
    screen.show_history(replace(history, problems=["jobs completed: 1 by …"]), None)
    lines = capsys.readouterr().out.splitlines()
    assert "  jobs completed: 1 by …" in lines
    assert lines[-1] == "report  /somewhere/report.html"
