"""The pipeline over the archive of a replay, in a process of its own, and whether what it makes fits the accounts.

DuckDB or Spark is known to that process only, the analyst.
"""

from __future__ import annotations

import html
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from demo.books import COMPLETED, FAILED, BookedJob
from demo.crew import PATIENCE_S, ROOT, Crashed, environment
from demo.measure import Percentiles
from demo.plan import ReplayPlan
from demo.stock import ReplayResult, read_archive
from osqueue.pipeline.report import words

TARGET_MS = (
    500  # the longest wait on target. Three months of arrivals take 20 s here, so a minute would say nothing
)
TITLE = "Three months of 1993, replayed"
STEPS = ("start", "compaction", "metrics", "report", "check")


class AnalysisStep(Struct, frozen=True, tag=True):
    """What the analyst is at."""

    name: str  # one of STEPS
    done: int = 0
    total: int = 0  # 0: it does not count


class TableTotals(Struct, frozen=True, tag=True):
    """What the tables say."""

    states: dict[str, int]  # rows of jobs
    outcomes: dict[str, int]  # rows of attempts
    jobs: int  # different ones
    attempts: int  # different ones
    wait: Percentiles  # from enqueue to the first claim
    run: Percentiles  # from the last claim to the end
    sums: dict[str, dict[str, int]]  # of each table of metrics: of its columns, and its rows


class PipelineCheck(Struct, frozen=True):
    """What the pipeline made, and whether it agrees."""

    report: str  # path
    told: TableTotals
    bytes: dict[str, int]  # of each table, on disk
    seconds: dict[str, float]  # that each step took
    problems: list[str]  # each a sentence for people


def write_history(
    plan: ReplayPlan, result: ReplayResult, out: Path, engine: str, watch: Callable[[AnalysisStep], None]
) -> PipelineCheck:
    """Run the pipeline over the archive of a replay on an engine, and compare. Raises Crashed."""
    tables = Path(plan.folder) / "tables"
    shutil.rmtree(tables, ignore_errors=True)  # of an earlier count, of what the archive may have no more
    seconds = dict.fromkeys(STEPS, 0.0)
    told: TableTotals | None = None
    at, since = STEPS[0], time.monotonic()
    with _analyst(plan, tables, out, engine) as lines:
        for line in lines:
            said = msgspec.json.decode(line, type=AnalysisStep | TableTotals)
            if isinstance(said, TableTotals):
                told = said
                continue
            watch(said)
            seconds[at] += time.monotonic() - since
            at, since = said.name, time.monotonic()
    seconds[at] += time.monotonic() - since
    if told is None:
        raise Crashed("the analyst ended without a word.")
    records = [*dict.fromkeys(read_archive(plan.store)[0])]
    return PipelineCheck(
        str(out),
        told,
        {name: _bytes(tables / name) for name in ("jobs", "attempts", *told.sums)},
        seconds,
        disagreements(result, records, told, headline(out.read_text())),
    )


@contextmanager
def _analyst(plan: ReplayPlan, tables: Path, out: Path, engine: str) -> Iterator[Iterable[bytes]]:
    """What the analyst says, line by line. Afterwards neither it nor its Java is there any more."""
    log = plan.output("analyst")
    with log.open("wb") as complaints:
        analyst = subprocess.Popen(
            [sys.executable, "-m", "demo.analyst", engine, plan.store_address, str(tables), str(out)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # the terminal's Ctrl-C is for the parent to act on
        )
    assert analyst.stdout is not None
    try:
        yield analyst.stdout  # Java holds it, too: it ends with the last of them
    except BaseException:
        _end(analyst)
        raise
    if status := analyst.wait():
        said = log.read_text(errors="replace").strip()
        raise Crashed(f"the analyst ended with status {status}.\n{said[-2000:]}")


def _end(analyst: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, and wait until none of them holds its output any more."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(analyst.pid, how)
        with suppress(subprocess.TimeoutExpired):
            analyst.communicate(timeout=PATIENCE_S)
            return


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


# ── The comparison ───────────────────────────────────────────────────────────
def disagreements(
    result: ReplayResult, records: Sequence[BookedJob], told: TableTotals, page: Mapping[str, str]
) -> list[str]:
    """What the tables, the metrics and the report say otherwise than the accounts of the replay."""
    known, found = dict(_by_accounts(result, records)), dict(_by_tables(told))
    problems = [
        f"{name}: {found.get(name, 0):,} by the pipeline, {known.get(name, 0):,} by the accounts"
        for name in dict.fromkeys([*known, *found])
        if found.get(name, 0) != known.get(name, 0)
    ]
    return problems + [
        f'the report says of "{name}": {page.get(name, "nothing")}; by the accounts it is {text}'
        for name, text in _headline_by_accounts(records).items()
        if page.get(name) != text
    ]


def _by_accounts(result: ReplayResult, records: Sequence[BookedJob]) -> Iterator[tuple[str, float]]:
    """What the tables have to say."""
    states = Counter(record.state for record in records)
    outcomes = Counter(attempt.outcome for record in records for attempt in record.attempts)
    yield from ((f"jobs {state}", count) for state, count in states.items())
    yield from ((f"attempts {outcome}", count) for outcome, count in outcomes.items())
    yield "different jobs", len({record.job_id for record in records})
    yield "different attempts", result.measures.leases
    yield from _times("wait", result.measures.wait)
    yield from _times("run", result.measures.run)
    for table in ("metrics_hourly", "metrics_daily"):
        yield f"{table}, enqueued", len({record.job_id for record in records})
        yield f"{table}, claimed", result.measures.leases
        yield from ((f"{table}, {state}", states[state]) for state in (COMPLETED, FAILED, "cancelled"))
        yield f"{table}, retried", _retried(records)
        yield f"{table}, stalled", outcomes["stalled"]
    yield "metrics_workers, claimed", result.measures.leases
    yield from ((f"metrics_workers, {each}", outcomes[each]) for each in (COMPLETED, FAILED, "stalled"))
    yield "metrics_errors, attempts", outcomes[FAILED] + outcomes["stalled"]


def _by_tables(told: TableTotals) -> Iterator[tuple[str, float]]:
    """What they say."""
    yield from ((f"jobs {state}", count) for state, count in told.states.items())
    yield from ((f"attempts {outcome}", count) for outcome, count in told.outcomes.items())
    yield "different jobs", told.jobs
    yield "different attempts", told.attempts
    yield from _times("wait", told.wait)
    yield from _times("run", told.run)
    for table, sums in told.sums.items():
        yield from ((f"{table}, {name}", value) for name, value in sums.items() if name != "rows")


def _times(name: str, of: Percentiles) -> Iterator[tuple[str, float]]:
    yield from (
        (f"{name} p{p} in s", value)
        for p, value in zip((50, 95, 99), (of.p50_s, of.p95_s, of.p99_s), strict=True)
    )


def _retried(records: Sequence[BookedJob]) -> int:
    """Attempts that failed and were not the last."""
    return sum(
        attempt.outcome == FAILED and not (record.state == FAILED and attempt is record.attempts[-1])
        for record in records
        for attempt in record.attempts
    )


# ── What the report says ─────────────────────────────────────────────────────
def headline(page: str) -> dict[str, str]:
    """The numbers at the top of a report and the remarks on them, as its readers see them."""
    tiles = re.findall(r"<dt>([^<]*)</dt><dd><b>([^<]*)</b>(?:<span>([^<]*)</span>)?", page)
    return {
        name: html.unescape(text)
        for tile, number, remark in tiles
        for name, text in ((tile, number), (f"{tile} …", remark))
    }


def _headline_by_accounts(records: Sequence[BookedJob]) -> dict[str, str]:
    """Those of them that are no rates."""
    states = Counter(record.state for record in records)
    leases = [attempt for record in records for attempt in record.attempts]
    outcomes = Counter(lease.outcome for lease in leases)
    waits = [each.attempts[0].started_ms - each.enqueued_ms for each in records if each.attempts]
    runs = [lease.ended_ms - lease.started_ms for lease in leases if lease.outcome == COMPLETED]
    wholes = [each.finished_ms - each.enqueued_ms for each in records if each.state == COMPLETED]
    on_target = f"started within {words.span(TARGET_MS)}"
    known = {
        "arrived": f"{len({record.job_id for record in records}):,}",
        "completed": f"{states[COMPLETED]:,}",
        "failed": f"{states[FAILED]:,}",
        on_target: words.percent(sum(wait <= TARGET_MS for wait in waits) / max(1, len(waits))),
        f"{on_target} …": f"{sum(wait > TARGET_MS for wait in waits):,} late",
        "attempts": f"{len(leases):,}",
        "attempts …": f"{_retried(records):,} retried, {outcomes['stalled']:,} stalled",
    }
    for name, times in (("wait", waits), ("run", runs), ("end to end", wholes)):
        if times:
            p50, p95, p99 = (words.span(between_ranks(times, share)) for share in (0.50, 0.95, 0.99))
            known |= {f"p95 {name}": p95, f"p95 {name} …": f"p50 {p50}, p99 {p99}"}
    return known


def between_ranks(times_ms: Sequence[int], share: float) -> float:
    """A percentile as the metrics define it: on the line between the two nearest ranks, not one of the times itself."""
    ordered = sorted(times_ms)
    rest, below = math.modf((len(ordered) - 1) * share)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low * (1 - rest) + high * rest
