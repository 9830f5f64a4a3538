"""The tables at the end, and the verdicts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from demo.history import PipelineCheck
from demo.measure import Percentiles
from demo.plan import ARRIVALS_FASTER, RUNS_FASTER, ReplayPlan
from demo.stock import ReplayResult

if TYPE_CHECKING:
    from rich.console import Console

KB = 1024


class ReportRow(NamedTuple):
    """One line of the table."""

    name: str
    value: str
    note: str = ""


def rows(plan: ReplayPlan, result: ReplayResult) -> Iterator[ReportRow]:
    """The table's lines."""
    account, measures = result.account, result.measures
    requests = measures.requests
    jobs = max(1, account.completed)
    yield ReportRow(
        "jobs in, completed", f"{account.jobs:,}, {account.completed:,}", "by the log, by the archive"
    )
    yield ReportRow(
        "executions",
        f"{account.executions:,}",
        "delivery is at least once: a failed or interrupted job runs again",
    )
    yield ReportRow(
        "retries", f"{measures.failed_attempts:,}", "attempts that failed, as planned, and were made again"
    )
    yield ReportRow("stalls", f"{measures.stalled_attempts:,}", stalls(result))
    yield ReportRow("heartbeats", f"{measures.heartbeats:,}", "leases extended under long jobs")
    ids = measures.ids
    yield ReportRow(
        "ids sent twice",
        f"{ids.ids:,}",
        f"answers to the second call: duplicates {ids.duplicates:,}, cached results {ids.cached:,}",
    )
    waits = measures.waits
    yield ReportRow(
        "waiters",
        f"{waits.answered:,} answered",
        f"{waits.at_once:,} at once, {waits.late:,} too late, the others after {waits.median_s * 1000:,.0f} ms"
        f" (median), {waits.median_after_s * 1000:,.0f} ms after the job's end",
    )
    yield ReportRow(
        "time",
        f"{measures.seconds:.1f} s",
        f"arrivals {ARRIVALS_FASTER:,}× and run times {RUNS_FASTER:,}× as fast as in 1993",
    )
    yield ReportRow(
        "throughput", f"{measures.jobs_per_second:,.0f} jobs/s", "set by the pace of the arrivals"
    )
    yield ReportRow("wait p50, p95, p99", times(measures.wait), "from enqueue to the first claim")
    yield ReportRow("run p50, p95, p99", times(measures.run), "from claim to completion")
    yield ReportRow("commits", f"{measures.commits:,}", f"{measures.commits / jobs:.2f} a job")
    if measures.calls:
        yield ReportRow(
            "API calls",
            f"{sum(measures.calls.values()):,}",
            f"{measures.calls_per_job:.2f} a job: "
            + ", ".join(f"{kind} {count:,}" for kind, count in measures.calls.items() if count),
        )
    yield ReportRow(
        "storage requests",
        f"{sum(requests.values()):,}",
        ", ".join(f"{kind} {count:,}" for kind, count in requests.items()),
    )
    yield ReportRow(
        "… a job",
        f"{measures.requests_per_job:.2f}",
        ", ".join(f"{kind} {count / jobs:.2f}" for kind, count in requests.items()),
    )
    archive = measures.archive
    repeats = f"{account.repeats:,} of them twice, in " if account.repeats else ""
    yield ReportRow(
        "archive",
        f"{archive.records:,} records",
        f"{repeats}{archive.parts:,} parts, {archive.packed_bytes / max(1, archive.records):.0f} bytes a job"
        f" ({archive.plain_bytes / max(1, archive.records):.0f} unpacked); {measures.reaps:,} passes of the reaper",
    )
    yield ReportRow("run time", f"{account.log_s:,} s", f"of 1993; {account.held_s:,.1f} s here")
    yield ReportRow("on disk", size(measures.disk_bytes), "the archive and what the queue still holds")


def stalls(result: ReplayResult) -> str:
    """Where the stalls came from."""
    if result.kill is None:
        return "leases that ended without a word"
    kill = result.kill
    spoken = kill.held - result.came_back  # applied by the others after its death
    late = ""
    if spoken:
        late = f", {spoken} it had just reported" if spoken > 0 else f", {-spoken} granted as it died"
    return f"{kill.worker} died holding {kill.held}: {result.came_back} came back{late}"


def times(percentiles: Percentiles) -> str:
    """Three times in one unit."""
    values = (percentiles.p50_s, percentiles.p95_s, percentiles.p99_s)
    return ", ".join(f"{value * 1000:,.0f}" for value in values) + " ms"


def size(count: int) -> str:
    """Bytes, for people."""
    return f"{count / KB:,.0f} KB" if count < KB * KB else f"{count / KB / KB:,.1f} MB"


def verdict(result: ReplayResult) -> str:
    """One line: does every account agree?"""
    account = result.account
    if account.problems:
        return f"The accounts do not agree: {len(account.problems)} problem(s)."
    return (
        f"{account.jobs:,} in, {account.completed:,} completed and archived exactly once. None lost, none doubled"
        f" ({account.executions:,} executions)."
    )


def show(plan: ReplayPlan, result: ReplayResult, console: Console | None) -> None:
    """Print the table and the verdict."""
    _table(rows(plan, result), console)
    _verdict(verdict(result), result.account.problems, console)


def rows_of_history(history: PipelineCheck) -> Iterator[ReportRow]:
    """The lines on what the pipeline made."""
    told, taken = history.told, history.seconds

    def told_as(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))

    yield ReportRow(
        "jobs",
        f"{sum(told.states.values()):,} rows",
        f"{size(history.bytes['jobs'])}: {told_as(told.states)}",
    )
    yield ReportRow(
        "attempts",
        f"{sum(told.outcomes.values()):,} rows",
        f"{size(history.bytes['attempts'])}: {told_as(told.outcomes)}",
    )
    metrics = {name.removeprefix("metrics_"): sums["rows"] for name, sums in told.sums.items()}
    weight = sum(count for name, count in history.bytes.items() if name.startswith("metrics_"))
    yield ReportRow("metrics", f"{sum(metrics.values()):,} rows", f"{size(weight)}: {told_as(metrics)}")
    yield ReportRow(
        "pipeline",
        f"{sum(taken.values()):.1f} s",
        ", ".join(f"{name} {seconds:.1f}" for name, seconds in taken.items()),
    )


def verdict_on_history(history: PipelineCheck) -> str:
    """One line: does what the pipeline made agree with the accounts?"""
    if history.problems:
        return f"The pipeline does not agree with the accounts: {len(history.problems)} problem(s)."
    return "Tables, metrics and report agree with the accounts."


def show_history(history: PipelineCheck, console: Console | None) -> None:
    """Print what the pipeline made, whether it agrees, and last where the report is."""
    _table(rows_of_history(history), console)
    _verdict(verdict_on_history(history), history.problems, console)
    if console is None:
        print(f"report  {history.report}", flush=True)
        return
    from rich.text import Text

    link = f"link {Path(history.report).as_uri()}"
    console.print(Text.assemble("report  ", (history.report, link)), soft_wrap=True)


def _table(rows: Iterable[ReportRow], console: Console | None) -> None:
    if console is None:
        lines = list(rows)
        widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
        print()
        for name, value, note in lines:
            print(f"{name:<{widths[0]}}  {value:>{widths[1]}}  {note}".rstrip())
        print()
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True, style="cyan")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _verdict(text: str, problems: Sequence[str], console: Console | None) -> None:
    if console is None:
        print(text)
        for problem in problems:
            print(f"  {problem}")
        sys.stdout.flush()
        return
    from rich.text import Text

    sign, colour = ("✗", "red") if problems else ("✓", "green")
    console.print(Text(f"{sign} {text}", style=f"bold {colour}"))
    for problem in problems:
        console.print(Text(f"  {problem}", style="red"))
