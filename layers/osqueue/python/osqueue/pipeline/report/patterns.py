"""The plots that are not along the period: distributions, the hours of the week, the workers, the errors."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Sequence

from . import svg, words
from .figures import figure, nothing, numbers
from .markup import Markup, joined, tag
from .model import (
    MINUTE_MS,
    Bin,
    Quantiles,
    QueueSection,
    ReviewPage,
    WeekHour,
    WorkerSection,
    share,
    steps_of,
)

SPREAD = svg.Frame(240, head=66)  # four rows of flags above the bars
WEEK = svg.Frame(7 * 22 + 22, head=0)
HEAT_LEVELS = 8
PEAK_TIMES = 12  # the mean: from where on a heat map's highest value is a peak of its own
EXAMPLE_CHARS = 240
_LABELS = 0.09  # of a week's width, for the names of its days


# ── Distributions ────────────────────────────────────────────────────────────


def spread(
    heading: str,
    bins: Sequence[Bin],
    quantiles: Quantiles | None,
    name: str,
    of: str,
    target_ms: int | None = None,
) -> Markup:
    """How long things took: a histogram over a logarithmic axis. With a target, what lies past it stands out."""
    held = [each for each in bins if each.count]
    if not held or quantiles is None:
        return nothing(heading, "Nothing to measure in this period.")
    total = sum(each.count for each in held)
    remark = (
        f"Half within {words.span(quantiles.p50_ms)}, 95 % within {words.span(quantiles.p95_ms)}, "
        f"the longest {words.span(quantiles.max_ms)}."
    )
    ends = [value for each in held for value in (each.low_ms, each.high_ms)]
    across = svg.spans([*ends, *([target_ms] if target_ms else [])])
    up = svg.counts(max(each.count for each in held) / total * 100)
    bars = [
        svg.bar(
            SPREAD,
            across.at(each.low_ms),
            across.at(each.high_ms),
            up.at(each.count / total * 100),
            "late-bar" if target_ms and each.low_ms >= target_ms else "bar",
            f"{_range(each)}: {words.whole(each.count)} {of}, {words.percent(each.count / total)}",
        )
        for each in held
    ]
    flags = [
        svg.flag(SPREAD, across.at(ms), row, f"{label} {words.span(ms)}", "mark")
        for row, (label, ms) in enumerate(
            (("p50", quantiles.p50_ms), ("p95", quantiles.p95_ms), ("p99", quantiles.p99_ms))
        )
    ]
    if target_ms:
        flags.append(svg.flag(SPREAD, across.at(target_ms), 3, f"target {words.span(target_ms)}", "target"))
    drawing = svg.picture(
        SPREAD,
        name,
        heading,
        f"{remark} {words.whole(total)} {of} in all. The axis is logarithmic.",
        svg.grid(SPREAD, up, [svg.Tick(tick.value, f"{tick.label} %") for tick in svg.count_ticks(up)], bars),
        svg.baseline(SPREAD, across, svg.span_ticks(across, most=7)),
        flags,
    )
    past, rows = 0, []
    for each in held:
        past += each.count
        rows.append((_range(each), words.whole(each.count), words.percent(past / total)))
    return figure(heading, remark, (), drawing, numbers(("span", of, "so far"), rows, heading))


def _range(each: Bin) -> str:
    if each.low_ms < 1:
        return f"under {words.span(each.high_ms)}"
    return f"{words.span(each.low_ms)} to {words.span(each.high_ms)}"


# ── Hours of the week ────────────────────────────────────────────────────────


def busy_hours(week: Sequence[WeekHour], name: str) -> Markup:
    """When jobs arrive."""
    return _week(
        "Busy hours",
        "Jobs that arrive in an hour, on average.",
        {(each.weekday, each.hour): each.enqueued / each.hours for each in week if each.hours},
        name,
        words.short,
        "arrive",
    )


def late_hours(week: Sequence[WeekHour], report: ReviewPage, name: str) -> Markup:
    """When jobs wait longer than they may."""
    return _week(
        "Late hours",
        f"Share of jobs that waited longer than {words.span(report.target_ms)}.",
        {
            (each.weekday, each.hour): (each.started - each.in_time) / each.started
            for each in week
            if each.started
        },
        name,
        words.percent,
        "late",
    )


def _week(
    heading: str,
    remark: str,
    values: dict[tuple[int, int], float],
    name: str,
    written: Callable[[float], str],
    verb: str,
) -> Markup:
    high = max(values.values(), default=0)
    if not high:
        return nothing(heading, "No hour stands out." if values else "Nothing to show in this period.")
    levels = _levels(values.values())
    (day, hour), _ = max(values.items(), key=lambda item: item[1])
    worst = f"Highest: {words.WEEKDAYS[day]} {hour:02}:00 UTC, {written(high)}."
    width = (1 - _LABELS) / 24
    cells = [
        tag(
            "rect",
            tag("title", f"{words.WEEKDAYS[weekday]} {of_day:02}:00: {written(value)} {verb}")
            if value is not None
            else None,
            x=svg.across(_LABELS + of_day * width),
            width=svg.across(width),
            y=22 * weekday,
            height=22,
            class_=f"cell heat-{_level(value, levels)}",
        )
        for weekday in range(7)
        for of_day in range(24)
        for value in (values.get((weekday, of_day)),)
    ]
    labels = [
        svg.label(0, 22 * weekday + 15, text, anchor="start") for weekday, text in enumerate(words.WEEKDAYS)
    ]
    hours = [
        svg.label(
            _LABELS + (of_day + 0.5) * width,
            WEEK.height - 6,
            f"{of_day:02}",
            class_="tick odd" if of_day % 6 else "tick",
            anchor="middle",
        )
        for of_day in range(0, 24, 3)
    ]
    drawing = svg.picture(
        WEEK, name, heading, f"{remark} {worst} Rows are days, columns hours, UTC.", cells, labels, hours
    )
    rows = [
        (words.WEEKDAYS[weekday], *(words.DASH if value is None else written(value) for value in row))
        for weekday in range(7)
        for row in ([values.get((weekday, of_day)) for of_day in range(24)],)
    ]
    columns = ("UTC", *(f"{of_day:02}" for of_day in range(24)))
    return figure(
        heading, f"{remark} {worst}", (), drawing, _ramp(levels, written), numbers(columns, rows, heading)
    )


def _levels(values: Collection[float]) -> list[float]:
    """The highest value of each level of warmth, the coldest first.

    Even steps, unless one hour is so far above the others that they would all look alike: then its square root counts.
    """
    high = max(values)
    power = 1 if high <= PEAK_TIMES * sum(values) / len(values) else 2
    return [high * (level / HEAT_LEVELS) ** power for level in range(HEAT_LEVELS + 1)]


def _level(value: float | None, levels: Sequence[float]) -> str:
    """Which level a value belongs to."""
    return "none" if value is None else str(min(bisect.bisect_left(levels, value * (1 - 1e-9)), HEAT_LEVELS))


def _ramp(levels: Sequence[float], written: Callable[[float], str]) -> Markup:
    """The colours of a heat map and what they stand for."""
    swatches = [
        tag("span", class_=f"heat heat-{level}", title=f"up to {written(high)}")
        for level, high in enumerate(levels)
    ]
    half = len(swatches) // 2 + 1
    middle = tag("span", written(levels[half - 1]), class_="limit")
    return tag(
        "p",
        "0",
        swatches[:half],
        middle,
        swatches[half:],
        written(levels[-1]),
        class_="ramp",
        aria_hidden="true",
    )


# ── Workers and errors ───────────────────────────────────────────────────────


def workers(queue: QueueSection, report: ReviewPage, name: str) -> Markup:
    """Who did the work: a lane for each worker, all to one scale."""
    heading = "Workers"
    if not queue.workers:
        return nothing(heading, "No worker held a job in this period.")
    high = max((load.busy for worker in queue.workers for load in worker.load), default=0.0)
    remark = f"Jobs held at once, the mean per {words.step(report.step_ms)}. Every lane is {words.short(high)} high."
    lanes = [_lane(worker, report, high, f"{name}-{index}") for index, worker in enumerate(queue.workers)]
    if queue.workers_other:
        lanes.append(tag("li", f"and {words.whole(queue.workers_other)} less busy", class_="facts"))
    rows = [
        (
            tag("bdi", worker.name),
            words.percent(worker.used),
            words.short(_held(worker, report)),
            words.span(worker.held_ms),
            words.whole(worker.attempts),
            words.whole(worker.failed),
        )
        for worker in queue.workers
    ]
    columns = ("worker", "in use", "held at once", "lease time", "attempts", "failed or stalled")
    return figure(heading, remark, (), tag("ul", lanes, class_="lanes"), numbers(columns, rows, heading))


def _held(worker: WorkerSection, report: ReviewPage) -> float:
    """Jobs held at once: the mean over the period."""
    return worker.held_ms / max(1, report.ends_ms - report.begins_ms)


def _lane(worker: WorkerSection, report: ReviewPage, high: float, name: str) -> Markup:
    """One worker: its name, what it did, and its load along the period."""
    frame, scale = svg.Frame(34, head=3, foot=1), svg.Scale(0, high or 1)
    known = {load.at_ms: load.busy for load in worker.load}
    heights = [scale.at(known.get(at_ms, 0.0)) for at_ms in steps_of(report)]
    facts = (
        f"in use {words.percent(worker.used)}, {words.short(_held(worker, report))} at once; "
        f"{words.count(worker.attempts, 'attempt')}, {words.percent(share(worker.failed, worker.attempts))} failed"
    )
    area = svg.steps_area(frame, heights, "load-area")
    drawing = svg.picture(frame, name, f"Load of {worker.name}", facts, svg.stretched(frame, area))
    return tag("li", tag("bdi", worker.name, class_="who"), tag("span", facts, class_="facts"), drawing)


def errors(queue: QueueSection, report: ReviewPage) -> Markup:
    """What went wrong, the most frequent first, each with an example."""
    heading = "Top errors"
    if not queue.errors:
        return nothing(heading, "No attempt ended with an error in this period.")
    total = sum(error.count for error in queue.errors) + queue.errors_other
    first = queue.errors[0]
    remark = joined(
        f"{words.percent(first.count / total)} of {words.whole(total)} errors are ",
        tag("bdi", first.kind or "without a type"),
        ".",
    )
    most = first.count
    entries = [
        tag(
            "li",
            tag(
                "p",
                tag("b", words.whole(error.count)),
                tag("span", f" {words.percent(error.count / total)} ", class_="facts"),
                tag("bdi", error.kind or "(no type)", class_="kind"),
                " ",
                tag("code", error.fingerprint),
            ),
            tag("span", class_="weight", style=f"width:{svg.across(error.count / most)}", aria_hidden="true"),
            tag("p", tag("bdi", clipped(error.example) or "(no message)"), class_="example"),
            tag(
                "p",
                f"{words.count(error.deaths, 'job')} failed for good by it; first "
                f"{words.when(error.first_ms, report, MINUTE_MS)}, last {words.when(error.last_ms, report, MINUTE_MS)}",
                class_="facts",
            ),
        )
        for error in queue.errors
    ]
    if queue.errors_other:
        entries.append(tag("li", f"{words.whole(queue.errors_other)} more, of other kinds", class_="facts"))
    return figure(heading, remark, (), tag("ol", entries, class_="errors"))


def clipped(text: str) -> str:
    """A message that stays in its place."""
    return text if len(text) <= EXAMPLE_CHARS else text[: EXAMPLE_CHARS - 1] + "…"
