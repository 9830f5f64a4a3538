"""Pages to draw, made up: a queue that was busy in one hour and late in the next."""

from __future__ import annotations

from osqueue.pipeline.report.model import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Bin,
    Error,
    PeriodBefore,
    Point,
    Quantiles,
    QueueSection,
    ReviewPage,
    Totals,
    WeekHour,
    WorkerLoad,
    WorkerSection,
)

OCTOBER_MS = 1_790_812_800_000  # Thursday, 1 October 2026, midnight
HOSTILE = "\"'></title></svg></style><script>alert(1)</script><img src=x onerror=alert(2)>&lt;\x00\x1b[31m\u202eevil"

WAIT = Quantiles(800, 4_500, 90_000, 100_000)
RUN = Quantiles(3_000, 21_600, 51_000, 339_000)


def a_queue(name: str = "emails", error: str = "connection reset", worker: str = "worker-1") -> QueueSection:
    """Two hours of a queue that was busy in the first and late in the second."""
    return QueueSection(
        name,
        Totals(1_236, 1_101, 7, 3, 1_160, 41, 11, 1_200, 1_150, WAIT, RUN, RUN),
        points=(
            Point(OCTOBER_MS, 1_000, 600, 2, 30, 1, 700, 700, 407, WAIT),
            Point(OCTOBER_MS + HOUR_MS, 236, 501, 5, 11, 10, 500, 450, 512, WAIT),
        ),
        waits=(Bin(0, 1, 10), Bin(10, 14.7, 1_140), Bin(68_000, 100_000, 50)),
        runs=(Bin(1_000, 1_470, 1_000), Bin(215_000, 316_000, 101)),
        errors=(
            Error("0badc0de", "ConnectionError", error, 40, 6, OCTOBER_MS, OCTOBER_MS + HOUR_MS),
            Error("feedbeef", "stalled", "no word", 11, 1, OCTOBER_MS, OCTOBER_MS + HOUR_MS),
        ),
        errors_other=8,
        workers=(
            WorkerSection(
                worker,
                1_160,
                59,
                2 * HOUR_MS,
                0.75,
                (WorkerLoad(OCTOBER_MS, 1.5), WorkerLoad(OCTOBER_MS + HOUR_MS, 0.5)),
            ),
        ),
        workers_other=2,
        week=(WeekHour(3, 0, 1, 1_000, 700, 700), WeekHour(3, 1, 1, 236, 500, 450)),
    )


def a_report(
    *queues: QueueSection, span_ms: int = DAY_MS, step_ms: int = HOUR_MS, title: str = "Operations review"
) -> ReviewPage:
    totals = queues[0].totals if queues else Totals()
    error = queues[0].errors[0] if queues and queues[0].errors else None
    return ReviewPage(
        OCTOBER_MS, OCTOBER_MS + span_ms, step_ms, MINUTE_MS, totals, queues, title=title, error=error
    )


def a_week_before(*names: str) -> PeriodBefore:
    """In which some queues had less to do, and were later."""
    totals = Totals(1_100, 1_000, 9, 0, 1_050, 40, 1, 1_000, 900, Quantiles(700, 9_000, 80_000, 90_000), RUN)
    queues = tuple((name, totals) for name in names)
    return PeriodBefore(OCTOBER_MS - 7 * DAY_MS, OCTOBER_MS, OCTOBER_MS - 7 * DAY_MS, totals, queues)
