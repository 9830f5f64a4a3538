"""The plots along the period: arrivals and completions, depth, waits, and what went wrong; one time axis for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from . import svg, words
from .figures import READOUT, Key, figure, nothing, numbers
from .markup import Child, Markup
from .model import Point, Quantiles, ReviewPage, steps_of

FRAME = svg.Frame(170)


def flow(points: Sequence[Point], report: ReviewPage, name: str) -> Markup:
    """Arrivals as an area, completions as a line over it: the gap is what the backlog grew by."""
    heading = "Arrivals and completions"
    if not any(point.enqueued or point.completed for point in points):
        return nothing(heading, "No job arrived or was completed in this period.")
    peak = max(points, key=lambda point: point.enqueued)
    per = f"per {words.step(report.step_ms)}"
    scale = svg.counts(max(max(point.enqueued, point.completed) for point in points))
    return _figure(
        _Along(points, report, name, heading),
        remark=f"Jobs {per}. Most arrivals: {words.whole(peak.enqueued)}, {_when(peak, report)}.",
        keys=(Key("arrived-fill", "arrived"), Key("completed-stroke", "completed")),
        scale=scale,
        ticks=svg.count_ticks(scale, per),
        shapes=(
            svg.steps_area(FRAME, [scale.at(point.enqueued) for point in points], "arrived-area"),
            svg.steps_line(FRAME, [scale.at(point.completed) for point in points], "completed-line"),
        ),
        columns=("arrived", "completed"),
        row=lambda point: (words.whole(point.enqueued), words.whole(point.completed)),
        shown=lambda point: bool(point.enqueued or point.completed),
    )


def depth(points: Sequence[Point], report: ReviewPage, name: str) -> Markup:
    """How many jobs waited, at worst, in each step."""
    heading = "Depth"
    peak = max(points, key=lambda point: point.depth, default=None)
    if peak is None or not peak.depth:
        return nothing(heading, "No job had to wait in this period.")
    scale = svg.counts(peak.depth)
    heights = [scale.at(point.depth) for point in points]
    return _figure(
        _Along(points, report, name, heading),
        remark=f"Jobs waiting, the most in each step. Deepest: {words.whole(peak.depth)}, {_when(peak, report)}.",
        scale=scale,
        ticks=svg.count_ticks(scale, "waiting"),
        shapes=(svg.steps_area(FRAME, heights, "depth-area"), svg.steps_line(FRAME, heights, "depth-line")),
        columns=("most waiting",),
        row=lambda point: (words.whole(point.depth),),
        shown=lambda point: bool(point.depth),
    )


def waits(points: Sequence[Point], report: ReviewPage, name: str) -> Markup:
    """The waits of the jobs that started in each step, with the target across."""
    heading = "Wait before the start"
    known = [point.wait for point in points if point.wait]
    if not known:
        return nothing(heading, "No job started in this period.")
    late, worst = sum(point.late for point in points), max(points, key=lambda point: point.late)
    target = words.span(report.target_ms)
    scale = svg.spans([*(ms for wait in known for ms in (wait.p50_ms, wait.p99_ms)), report.target_ms])
    columns: dict[str, Callable[[Quantiles], float]] = {
        "p50": lambda wait: wait.p50_ms,
        "p95": lambda wait: wait.p95_ms,
        "p99": lambda wait: wait.p99_ms,
        "longest": lambda wait: wait.max_ms,
    }
    return _figure(
        _Along(points, report, name, heading),
        remark=(
            f"{words.count(late, 'job')} waited longer than {target}, the most {_when(worst, report)}."
            if late
            else f"Every job started within {target}."
        ),
        keys=(Key("p50-stroke", "half"), Key("p95-stroke", "95 %"), Key("p99-stroke", "99 % start within")),
        scale=scale,
        ticks=svg.span_ticks(scale),
        shapes=[
            svg.trace(
                FRAME,
                [scale.at(columns[p](point.wait)) if point.wait else None for point in points],
                f"{p}-line",
            )
            for p in ("p99", "p95", "p50")
        ],
        over=svg.level(FRAME, scale, report.target_ms, f"target {target}"),
        columns=(*columns, "started", "late"),
        row=lambda point: (
            *(words.span(of(point.wait)) for of in columns.values() if point.wait),
            words.whole(point.started),
            words.whole(point.late),
        ),
        shown=lambda point: point.wait is not None,
    )


def troubles(points: Sequence[Point], report: ReviewPage, name: str) -> Markup:
    """Attempts made again, leases that ran out, and jobs given up, one on the other."""
    heading = "Retries, stalls and failed jobs"
    failed, stalled, retried = (sum(_trouble(point)[kind] for point in points) for kind in range(3))
    if not failed + stalled + retried:
        return nothing(heading, "Nothing failed, nothing stalled.")
    worst = max(points, key=lambda point: sum(_trouble(point)))
    scale = svg.counts(sum(_trouble(worst)))
    floors = [[scale.at(sum(_trouble(point)[:kind])) for point in points] for kind in range(4)]
    return _figure(
        _Along(points, report, name, heading),
        remark=f"{words.count(retried, 'attempt')} retried, {words.count(stalled, 'lease')} stalled, "
        f"{words.count(failed, 'job')} failed. Worst: {_when(worst, report)}.",
        keys=(
            Key("retried-fill", "attempts retried"),
            Key("stalled-fill", "leases stalled"),
            Key("failed-fill", "jobs failed"),
        ),
        scale=scale,
        ticks=svg.count_ticks(scale, f"per {words.step(report.step_ms)}"),
        shapes=[
            svg.steps_area(FRAME, top, class_, floor)
            for class_, floor, top in zip(
                ("failed-area", "stalled-area", "retried-area"), floors, floors[1:], strict=False
            )
            if top != floor
        ],
        columns=("retried", "stalled", "failed"),
        row=lambda point: (words.whole(point.retried), words.whole(point.stalled), words.whole(point.failed)),
        shown=lambda point: any(_trouble(point)),
    )


def _trouble(point: Point) -> tuple[int, int, int]:
    """From the floor up: the gravest is drawn first."""
    return point.failed, point.stalled, point.retried


def spark(heights: Sequence[float], class_: str, name: str, title: str) -> Markup:
    """A small picture of a series for a table's cell, as high as its highest value."""
    frame, high = svg.Frame(26, head=2, foot=1), max(heights, default=0)
    parts = [height / (high or 1) for height in heights]
    shapes = (svg.steps_area(frame, parts, f"{class_}-area"), svg.steps_line(frame, parts, f"{class_}-line"))
    return svg.picture(frame, name, title, f"At most {words.whole(high)}.", svg.stretched(frame, *shapes))


# ── What they share ──────────────────────────────────────────────────────────


def _when(point: Point, report: ReviewPage) -> str:
    return words.when(point.at_ms, report)


class _Along(Struct, frozen=True):
    """What is plotted: a queue's points, under a heading."""

    points: Sequence[Point]
    report: ReviewPage
    name: str  # unique on the page
    heading: str


def _figure(
    along: _Along,
    *,
    remark: str,
    scale: svg.Scale,
    ticks: Sequence[svg.Tick],
    shapes: Sequence[Child],
    columns: Sequence[str],
    row: Callable[[Point], Sequence[str]],
    shown: Callable[[Point], bool],
    keys: Sequence[Key] = (),
    over: Child = None,
) -> Markup:
    """A figure over the period. What a column tells when it is pointed at is its row of the table.

    ``shown`` says which points have something to tell.
    """
    steps = steps_of(along.report)
    begins_ms, ends_ms = steps[0], steps[-1] + along.report.step_ms
    rows = [(_when(point, along.report), *row(point)) if shown(point) else None for point in along.points]
    texts = [None if row is None else _told(row, columns) for row in rows]
    drawing = svg.picture(
        FRAME,
        along.name,
        along.heading,
        remark,
        svg.grid(FRAME, scale, ticks, svg.stretched(FRAME, *shapes)),
        svg.baseline(FRAME, svg.Scale(begins_ms, ends_ms), svg.time_ticks(begins_ms, ends_ms)),
        over,
        svg.hits(FRAME, texts),
    )
    table = numbers(("from", *columns), [row for row in rows if row], along.heading)
    return figure(along.heading, remark, keys, drawing, READOUT, table)


def _told(row: Sequence[str], columns: Sequence[str]) -> str:
    """A row of the table as a line of text."""
    return f"{row[0]}: " + ", ".join(f"{name} {cell}" for name, cell in zip(columns, row[1:], strict=True))
