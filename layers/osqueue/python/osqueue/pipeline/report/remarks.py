"""What a reader has to know before the numbers: what was not measured, what is left out."""

from __future__ import annotations

from collections.abc import Sequence

from . import words
from .markup import Markup, joined, tag
from .model import ReviewPage

NAMED_MAX = 5  # queues that are named where metrics are missing, or jobs are left out


def unmeasured(lead: str, found: Sequence[tuple[str, int]]) -> Markup | None:
    """A word of warning where the numbers of metrics and those of jobs do not belong together."""
    if not found:
        return None
    days: dict[str, list[int]] = {}
    for queue, at_ms in found:
        days.setdefault(queue, []).append(at_ms)
    named = [
        joined(", " if at else "", tag("bdi", queue), f" ({words.days(days[queue])})")
        for at, queue in enumerate(list(days)[:NAMED_MAX])
    ]
    more = len(days) - len(named)
    return tag(
        "p",
        tag("b", f"{lead}: ", class_="bad"),
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
