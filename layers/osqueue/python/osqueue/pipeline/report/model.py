"""What a report tells, as plain data. Whoever fills these in decides what is true; drawing only draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

TITLE = "Operations review"
POINTS_MAX = 200  # of one plot: about as many as a small screen has columns to show them in

# How long a plot's points may be. All divide a day, so that points begin at round times.
STEPS_MS = (
    *(100, 200, 500),
    *(SECOND_MS * n for n in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * n for n in (1, 2, 3, 6, 12)),
    DAY_MS,
)


class Quantiles(Struct, frozen=True):
    """Spans of many jobs, in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class Totals(Struct, frozen=True):
    """A queue's period in numbers."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0  # jobs that used up their attempts
    cancelled: int = 0
    attempts: int = 0  # leases that ended
    retried: int = 0  # attempts that failed and were made again
    stalled: int = 0  # leases that ran out without a word
    started: int = 0  # jobs whose first attempt began in the period
    in_time: int = 0  # those of them that waited no longer than the target
    wait: Quantiles | None = None  # from claimable to the first claim; None: nothing started
    run: Quantiles | None = None  # of attempts that completed, from claim to end; None: none did
    whole: Quantiles | None = None  # of jobs that completed, from claimable to end; None: none did

    @property
    def trouble(self) -> int:
        """Jobs that started too late or failed."""
        return self.started - self.in_time + self.failed

    @property
    def ended(self) -> int:
        """Jobs that ended, however they did."""
        return self.completed + self.failed + self.cancelled


class Point(Struct, frozen=True):
    """One step of a queue's time line."""

    at_ms: int  # where the step begins
    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    stalled: int = 0
    started: int = 0
    in_time: int = 0
    depth: int = 0  # the most jobs that waited at once
    wait: Quantiles | None = None  # of those that started

    @property
    def late(self) -> int:
        """Jobs that started later than the target allows."""
        return self.started - self.in_time


class Bin(Struct, frozen=True):
    """One bar of a distribution: ``low_ms <= span < high_ms``."""

    low_ms: float
    high_ms: float
    count: int


class Error(Struct, frozen=True):
    """One error, as its fingerprint tells them apart."""

    fingerprint: str
    kind: str  # the exception's name
    example: str
    count: int  # attempts that ended in it
    deaths: int  # jobs that failed for good by it
    first_ms: int
    last_ms: int


class WorkerLoad(Struct, frozen=True):
    """A worker's load in one step: the jobs it had in hand, on average."""

    at_ms: int
    busy: float


class WorkerSection(Struct, frozen=True):
    """What one worker did."""

    name: str
    attempts: int  # leases that ended
    failed: int  # those that failed or stalled
    held_ms: int  # lease time, summed over its leases
    used: float  # share of the period in which it held at least one, 0 to 1
    load: tuple[WorkerLoad, ...] = ()


class WeekHour(Struct, frozen=True):
    """One hour of the week, over all weeks of the period."""

    weekday: int  # 0: Monday
    hour: int  # UTC
    hours: int  # how many such hours the period has
    enqueued: int
    started: int
    in_time: int


class QueueSection(Struct, frozen=True):
    """One queue's section."""

    name: str
    totals: Totals = Totals()
    points: tuple[Point, ...] = ()  # those in which something happened are enough
    waits: tuple[Bin, ...] = ()
    runs: tuple[Bin, ...] = ()
    errors: tuple[Error, ...] = ()  # the most frequent first
    errors_other: int = 0  # occurrences of those not listed
    workers: tuple[WorkerSection, ...] = ()  # the busiest first
    workers_other: int = 0  # how many are not listed
    week: tuple[WeekHour, ...] = ()


class SuspectJobs(Struct, frozen=True):
    """Jobs of a queue that are left out, because some of their moments cannot be."""

    queue: str
    jobs: int
    job_id: str  # one of them
    moments: str  # those of it that cannot be, as columns of the table


class ReviewPage(Struct, frozen=True):
    """Everything on the page."""

    begins_ms: int
    ends_ms: int
    step_ms: int
    target_ms: int  # how long a job may wait for its start
    totals: Totals = Totals()  # of all queues
    queues: tuple[QueueSection, ...] = ()  # those with most late and failed jobs first
    others: tuple[tuple[str, Totals], ...] = ()  # queues without a section
    title: str = TITLE
    error: Error | None = None  # the most frequent one, over all queues
    unmeasured: tuple[tuple[str, int], ...] = ()  # queues and days whose metrics are not those of their jobs
    suspect: tuple[SuspectJobs, ...] = ()  # what is left out, by queue


def step_for(span_ms: int) -> int:
    """The shortest step that cuts a period into no more than POINTS_MAX points.

    >>> step_for(7 * DAY_MS) == HOUR_MS
    True
    """
    for step_ms in STEPS_MS:
        if span_ms <= step_ms * POINTS_MAX:
            return step_ms
    return DAY_MS * -(-span_ms // (DAY_MS * POINTS_MAX))


def steps_of(report: ReviewPage) -> range:
    """Where the report's steps begin."""
    first = report.begins_ms // report.step_ms * report.step_ms
    return range(first, max(report.ends_ms, first + 1), report.step_ms)


def filled(points: Iterable[Point], steps: Sequence[int]) -> list[Point]:
    """A point for every step; where none is known, nothing happened and nothing waited."""
    known = {point.at_ms: point for point in points}
    return [known.get(at_ms) or Point(at_ms) for at_ms in steps]


def share(part: float, whole: float) -> float | None:
    """A part of a whole, None when there is no whole."""
    return part / whole if whole else None
