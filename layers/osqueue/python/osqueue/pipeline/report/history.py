"""The tables that a report is made from, the part of them that it is about, and the expressions it adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
from msgspec import Struct

from ...core.state import COMPLETED
from .. import tables
from ..ended import EndedJobs, ended
from ..engines.base import Engine, Relation
from ..figures import RANKS
from .model import HOUR_MS, Quantiles


class ReportTables(Struct, frozen=True):
    """The tables, of the queues asked for."""

    root: str  # where they are
    jobs: Relation
    attempts: Relation
    hours: Relation
    workers: Relation
    errors: Relation
    suspect: Relation  # jobs that are left out: their moments cannot be


class Period(Struct, frozen=True):
    """What of them is reported."""

    begins_ms: int
    ends_ms: int
    step_ms: int
    target_ms: int

    def has(self, moment: str) -> str:
        """Is a moment in the period?"""
        return between(moment, self.begins_ms, self.ends_ms)

    @property
    def hours(self) -> range:
        """The hours that touch the period, which the metrics have whole."""
        return range(self.begins_ms // HOUR_MS * HOUR_MS, self.ends_ms, HOUR_MS)

    @property
    def steps(self) -> range:
        """Where the steps begin."""
        return range(self.begins_ms // self.step_ms * self.step_ms, self.ends_ms, self.step_ms)


def history(
    engine: Engine,
    root: str,
    queues: Sequence[str] = (),
    since: date | None = None,
    until: date | None = None,
    read: EndedJobs | None = None,
) -> ReportTables:
    """The tables below a folder: of all queues or some, from the first day or a later one on.

    Of suspect jobs those that were archived by the last day: when they really happened nobody knows. ``read`` are the
    jobs, if somebody has read them.
    """
    told = read or ended(engine, root, queues, since)
    used = (tables.METRICS_HOURLY, tables.METRICS_WORKERS, tables.METRICS_ERRORS)
    hours, workers, errors = (engine.read(root, table, queues, since) for table in used)
    archived = "" if until is None else f" WHERE date <= cast('{until}' AS date)"
    suspect = engine.sql(f"SELECT * FROM {told.suspect}{archived}")
    return ReportTables(root, told.jobs, told.attempts, hours, workers, errors, suspect)


def since(engine: Engine, told: ReportTables, period: Period) -> ReportTables:
    """Without what was archived before the period, and metrics of other hours. What happens in it is archived later."""
    late = f"date >= cast({instant(period.begins_ms)} AS date)"
    hours = f"{late} AND {between('start', period.hours[0], period.hours[-1] + HOUR_MS)}"
    return _filtered(engine, told, late, hours)


def of_queues(engine: Engine, told: ReportTables, queues: Sequence[str]) -> ReportTables:
    own = f"queue IN (SELECT queue FROM {names(engine, 'queue', queues)})"
    return _filtered(engine, told, own, own)


def names(engine: Engine, column: str, of: Sequence[str]) -> Relation:
    """Names as rows: they may hold anything, so they are not written into a query."""
    return engine.of(pa.table({column: pa.array(of, pa.string())}))


def _filtered(engine: Engine, told: ReportTables, history: str, metrics: str) -> ReportTables:
    """Those rows of the tables of history that hold one condition, and those of the metrics that hold another."""

    def those(relation: Relation, condition: str) -> Relation:
        return engine.sql(f"SELECT * FROM {relation} WHERE {condition}")

    return ReportTables(
        told.root,
        those(told.jobs, history),
        those(told.attempts, history),
        those(told.hours, metrics),
        those(told.workers, metrics),
        those(told.errors, metrics),
        those(told.suspect, history),
    )


def started(told: ReportTables, period: Period) -> str:
    """The jobs whose first lease began in the period."""
    return f"{told.jobs} WHERE {period.has('started_at')} AND wait_ms IS NOT NULL"


def completed_attempts(told: ReportTables, period: Period) -> str:
    return f"{told.attempts} WHERE {period.has('ended_at')} AND outcome = '{COMPLETED}'"


def waiting(period: Period) -> str:
    return f"count(wait_ms) AS started, count(CASE WHEN wait_ms <= {period.target_ms} THEN 1 END) AS in_time"


def instant(ms: int) -> str:
    return f"timestamp_millis({ms})"


def between(moment: str, begins_ms: int, ends_ms: int) -> str:
    return f"{moment} >= {instant(begins_ms)} AND {moment} < {instant(ends_ms)}"


def step_of(moment: str, step_ms: int) -> str:
    """Where the step of a moment begins, in milliseconds."""
    return f"unix_millis({moment}) - unix_millis({moment}) % {step_ms}"


def quantiles(of: str) -> str:
    """The percentiles of a span, exact as those of the metrics are, and the longest."""
    ranks = (f"percentile_cont({rank / 100}) WITHIN GROUP (ORDER BY {of}) AS p{rank}" for rank in RANKS)
    return ", ".join([*ranks, f"max({of}) AS longest"])


def as_quantiles(row: Mapping[str, Any] | None) -> Quantiles | None:
    if row is None or row["longest"] is None:
        return None
    p50, p95, p99 = (float(row[f"p{rank}"]) for rank in RANKS)
    return Quantiles(p50, p95, p99, float(row["longest"]))
