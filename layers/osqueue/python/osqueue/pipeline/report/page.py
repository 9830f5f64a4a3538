"""The page: the answer first, then all queues side by side, then each queue from what was promised to who did it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from . import patterns, timeline, words
from .figures import figure, table
from .markup import Child, Markup, joined, tag
from .model import HOUR_MS, Point, Quantiles, QueueSection, ReviewPage, Totals, filled, share, steps_of
from .style import SCRIPT, STYLE

NAMED_MAX = 5  # queues that are named where metrics are missing, or jobs are left out
HEADLINE_GOOD = 0.99  # of jobs in time: what the first sentence calls kept


def page(report: ReviewPage) -> str:
    """The whole file. It loads nothing, and its policy forbids that anything in it does."""
    script = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )
    when = words.period(report.begins_ms, report.ends_ms)
    steps = steps_of(report)
    points = [filled(queue.points, steps) for queue in report.queues]
    several = len(report.queues) > 1
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{report.title}, {when}"),
        tag("style", Markup(STYLE)),
    )
    body = tag(
        "body",
        tag(
            "header",
            tag("p", f"{when}, UTC", class_="when"),
            tag("h1", report.title),
            answer(report, points),
            unmeasured(report),
            suspect(report),
            tiles(report.totals, report),
        ),
        tag(
            "main",
            overview(report, points) if several else None,
            [
                section(queue, each, report, index)
                for index, (queue, each) in enumerate(zip(report.queues, points, strict=True))
            ],
            tag(
                "p",
                f"{words.count(len(report.others), 'queue')} with less trouble: in the table of all queues alone. "
                "A page of some queues has a section for each: --queue NAME.",
                class_="nothing",
            )
            if report.others
            else None,
        ),
        tag("footer", tag("p", _method(report))),
        tag("script", Markup(SCRIPT)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


# ── The answer ───────────────────────────────────────────────────────────────


def answer(report: ReviewPage, points: Sequence[Sequence[Point]]) -> Markup:
    """Three sentences: was the promise kept, did the workers keep up, what failed."""
    totals = report.totals
    if not totals.enqueued + totals.started + totals.ended:
        return tag("p", "No jobs arrived, started or ended in this period.", class_="answer")
    sentences = [_promise(totals, report), _pace(report, points), _failures(report)]
    return tag("p", [joined(sentence, " ") for sentence in sentences if sentence], class_="answer")


def _promise(totals: Totals, report: ReviewPage) -> Markup | None:
    in_time = share(totals.in_time, totals.started)
    if in_time is None or totals.wait is None:
        return None
    return joined(
        tag("b", words.percent(in_time), class_="good" if in_time >= HEADLINE_GOOD else "bad"),
        f" of {words.count(totals.started, 'job')} started within {words.span(report.target_ms)}; "
        f"95 % within {words.span(totals.wait.p95_ms)}.",
    )


def _pace(report: ReviewPage, points: Sequence[Sequence[Point]]) -> Markup | None:
    if not points:
        return None
    deepest = max(
        (
            (point.depth, -point.at_ms, queue.name)
            for queue, each in zip(report.queues, points, strict=True)
            for point in each
        )
    )
    depth, at_ms, name = deepest
    if not depth:
        return joined("No job had to wait in line.")
    where = joined(" in ", tag("bdi", name)) if len(report.queues) > 1 else None
    return joined(
        "The backlog was deepest",
        where,
        ": ",
        tag("b", words.whole(depth)),
        f" jobs, {words.when(-at_ms, report)}; {words.whole(sum(each[-1].depth for each in points))} in the "
        f"last {words.step(report.step_ms)}.",
    )


def _failures(report: ReviewPage) -> Markup:
    totals = report.totals
    given_up = joined(tag("b", "No job failed for good", class_="good"))
    if totals.failed:
        number, jobs = words.count(totals.failed, "job").split(" ")
        of_ended = words.percent(share(totals.failed, totals.ended))
        given_up = joined(
            tag("b", number, class_="bad"), f" {jobs} failed for good ({of_ended} of those that ended)"
        )
    first = report.error
    if first is None:
        return joined(given_up, ".")
    kind = tag("bdi", patterns.clipped(first.kind) or "one without a type")
    return joined(given_up, "; the most frequent error is ", kind, f", {words.count(first.count, 'time')}.")


def unmeasured(report: ReviewPage) -> Markup | None:
    """A word of warning where the numbers of metrics and those of jobs do not belong together."""
    if not report.unmeasured:
        return None
    days: dict[str, list[int]] = {}
    for queue, at_ms in report.unmeasured:
        days.setdefault(queue, []).append(at_ms)
    named = [
        joined(", " if at else "", tag("bdi", queue), f" ({words.days(days[queue])})")
        for at, queue in enumerate(list(days)[:NAMED_MAX])
    ]
    more = len(days) - len(named)
    return tag(
        "p",
        tag("b", "Not everything is measured: ", class_="bad"),
        *named,
        f" and {words.count(more, 'more queue')}" if more else "",
        ". Counts, depths, errors and workers are not those of these days' jobs. Run osqueue pipeline metrics over "
        "them, and then this report again.",
        class_="remark",
    )


def suspect(report: ReviewPage) -> Markup | None:
    """What is left out, because a clock was wrong that it was written by."""
    if not report.suspect:
        return None
    named = [
        joined(
            "; " if at else "",
            tag("bdi", each.queue),
            f" ({words.whole(each.jobs)}, such as {each.job_id}: {each.moments})",
        )
        for at, each in enumerate(report.suspect[:NAMED_MAX])
    ]
    more = len(report.suspect) - len(named)
    jobs = words.count(sum(each.jobs for each in report.suspect), "job")
    return tag(
        "p",
        tag("b", f"{jobs} with a wrong clock left out: ", class_="bad"),
        *named,
        f" and {words.count(more, 'more queue')}" if more else "",
        ". The store's clock does not allow some of their moments. The table jobs has them: WHERE clock_suspect IS "
        "NOT NULL.",
        class_="remark",
    )


def tiles(totals: Totals, report: ReviewPage) -> Markup:
    """The headline numbers."""
    span_ms = report.ends_ms - report.begins_ms
    attempts = f"{words.whole(totals.retried)} retried, {words.whole(totals.stalled)} stalled"
    facts = (
        ("arrived", words.whole(totals.enqueued), words.rate(totals.enqueued, span_ms)),
        ("completed", words.whole(totals.completed), words.rate(totals.completed, span_ms)),
        (
            "failed",
            words.whole(totals.failed),
            (
                f"{words.percent(share(totals.failed, totals.ended))} of those that ended"
                if totals.ended
                else ""
            )
            + (f"; {words.whole(totals.cancelled)} cancelled" if totals.cancelled else ""),
        ),
        (
            f"started within {words.span(report.target_ms)}",
            words.percent(share(totals.in_time, totals.started)),
            f"{words.whole(totals.started - totals.in_time)} late",
        ),
        ("p95 wait", *_middle(totals.wait)),
        ("p95 run", *_middle(totals.run)),
        ("p95 end to end", *_middle(totals.whole)),
        ("attempts", words.whole(totals.attempts), attempts),
    )
    return tag(
        "dl",
        [
            tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", remark) if remark else None))
            for name, value, remark in facts
        ],
        class_="tiles",
    )


def _middle(quantiles: Quantiles | None) -> tuple[str, str]:
    """The 95th percentile, and those beside it."""
    if quantiles is None:
        return words.DASH, ""
    return (
        words.span(quantiles.p95_ms),
        f"p50 {words.span(quantiles.p50_ms)}, p99 {words.span(quantiles.p99_ms)}",
    )


# ── Queues ───────────────────────────────────────────────────────────────────


def overview(report: ReviewPage, points: Sequence[Sequence[Point]]) -> Markup:
    """All queues in one table: those with most late and failed jobs first, with their depth over the period."""
    rows = []
    for index, (queue, each) in enumerate(zip(report.queues, points, strict=True)):
        depths = [point.depth for point in each]
        rows.append(
            (
                tag("a", tag("bdi", queue.name), href=f"#q{index}"),
                *_in_short(queue.totals),
                timeline.spark(depths, "depth", f"o{index}", f"Depth of {queue.name}"),
                words.whole(max(depths, default=0)),
            )
        )
    rows += [(tag("bdi", name), *_in_short(totals), words.DASH, words.DASH) for name, totals in report.others]
    columns = ("queue", "arrived", "completed", "failed", "in time", "p95 wait", "depth", "deepest")
    return tag(
        "section",
        tag("h2", "All queues"),
        table(columns, rows, "All queues", class_="data queues"),
        id="queues",
    )


def _in_short(totals: Totals) -> tuple[str, ...]:
    return (
        words.whole(totals.enqueued),
        words.whole(totals.completed),
        words.whole(totals.failed),
        words.percent(share(totals.in_time, totals.started)),
        words.span(totals.wait.p95_ms if totals.wait else None),
    )


def section(queue: QueueSection, points: Sequence[Point], report: ReviewPage, index: int) -> Markup:
    """One queue."""
    name = f"q{index}"
    several = len(report.queues) > 1
    long_enough = report.ends_ms - report.begins_ms >= 24 * HOUR_MS
    return tag(
        "section",
        tag("h2", tag("bdi", queue.name)),
        tiles(queue.totals, report) if several else None,
        _part("Was it in time, did it keep up?"),
        timeline.flow(points, report, f"{name}-flow"),
        timeline.depth(points, report, f"{name}-depth"),
        timeline.waits(points, report, f"{name}-waits"),
        _pair(
            patterns.spread(
                "Waits", queue.waits, queue.totals.wait, f"{name}-wait", "jobs", report.target_ms
            ),
            patterns.spread("Run times", queue.runs, queue.totals.run, f"{name}-run", "attempts"),
        ),
        _part("What went wrong?"),
        timeline.troubles(points, report, f"{name}-troubles"),
        patterns.errors(queue, report),
        _part("When and who?"),
        worst_steps(points, report),
        _pair(
            patterns.busy_hours(queue.week, f"{name}-busy"),
            patterns.late_hours(queue.week, report, f"{name}-late"),
        )
        if long_enough
        else None,
        patterns.workers(queue, report, f"{name}-worker"),
        id=name,
        class_="queue",
    )


def worst_steps(points: Sequence[Point], report: ReviewPage, most: int = 5) -> Markup | None:
    """The steps to ask about: those in which most jobs were late or failed."""
    worst = sorted(points, key=lambda point: (-(point.late + point.failed), point.at_ms))[:most]
    rows = [
        (
            words.when(point.at_ms, report),
            words.whole(point.late),
            words.whole(point.failed),
            words.whole(point.enqueued),
            words.whole(point.depth),
            words.span(point.wait.p95_ms if point.wait else None),
        )
        for point in worst
        if point.late + point.failed
    ]
    if not rows:
        return None
    columns = ("from", "late", "failed", "arrived", "deepest", "p95 wait")
    heading = (
        f"Worst {words.step(report.step_ms)}s" if " " not in words.step(report.step_ms) else "Worst steps"
    )
    return figure(heading, "Most jobs late or failed.", (), table(columns, rows, heading))


def _part(question: str) -> Markup:
    return tag("h3", question)


def _pair(*figures: Child) -> Markup:
    return tag("div", figures, class_="pair")


def _method(report: ReviewPage) -> str:
    """How to read the numbers."""
    step = words.step(report.step_ms)
    return (
        f"All times are UTC. One step of the time lines is {step if ' ' in step else f'one {step}'}. "
        "A job waits from when it may be claimed to its first claim, and is in time within "
        f"{words.span(report.target_ms)}. Run times are of attempts that completed, from claim to end; end to end is "
        "from claimable to completed. Counted are jobs that have reached the archive."
    )
