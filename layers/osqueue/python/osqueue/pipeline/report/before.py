"""The period of the same length before that of a report, so that its figures can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from ...model.fields import moment
from ..engines.base import Engine, rows
from .collect import totals_of, unmeasured_days
from .history import Period, ReportTables, since, widened
from .model import HOUR_MS, PeriodBefore, ReviewPage


def before(
    engine: Engine,
    told: ReportTables,
    report: ReviewPage,
    queues: Sequence[str] = (),
    first: date | None = None,
) -> PeriodBefore:
    """The totals of the hours before the report's, as many as it has.

    ``first`` is the day from which the tables were read. Without one they were read from their beginning, and the
    report begins with the first thing in them.
    """
    hours = Period(report.begins_ms, report.ends_ms, report.step_ms, report.target_ms).hours
    begins_ms, ends_ms = hours[0] - len(hours) * HOUR_MS, hours[0]
    if first is None:
        return PeriodBefore(begins_ms, ends_ms)
    period = Period(begins_ms, ends_ms, report.step_ms, report.target_ms)
    told = since(engine, widened(engine, told, queues, moment(begins_ms).date(), first), period)
    totals, by_queue = totals_of(engine, told, period)
    (hour,) = rows(engine, engine.sql(f"SELECT unix_millis(min(start)) AS first_ms FROM {told.hours}"))
    return PeriodBefore(
        begins_ms,
        ends_ms,
        hour["first_ms"],
        totals,
        tuple(sorted(by_queue.items())),
        unmeasured_days(engine, told, period),
    )
