"""The report's figures beside those of the period before it: what each is now, and by how much it has changed."""

from __future__ import annotations

from collections.abc import Callable

from . import remarks, words
from .figures import table
from .markup import Child, Markup, joined, tag
from .model import HOUR_MS, PeriodBefore, Quantiles, ReviewPage, Totals, share

NOTABLE = 0.1  # of what it was: a figure that changed by so much stands out
HEADING = "Against the period before"
COLUMNS = ("queue", "jobs", "failed", "late", "p95 wait", "p95 run")


def compared(report: ReviewPage) -> Markup | None:
    """The section; None where nobody has looked at the period before."""
    before = report.before
    if before is None:
        return None
    missing = remarks.unmeasured("Not everything before is measured", before.unmeasured)
    content: list[Child] = []
    if before.first_ms is not None:
        content = [
            tag("p", _remark(before), class_="remark"),
            table(COLUMNS, _rows(report, before), HEADING, class_="data stacked"),
        ]
    elif missing is None:
        told = f"No data before: the tables have nothing of {_period(before)}."
        content = [tag("p", told, class_="nothing")]
    return tag("section", tag("h2", HEADING), missing, content, id="before", class_="before")


def _period(before: PeriodBefore) -> str:
    return words.period(before.begins_ms, before.ends_ms)


def _remark(before: PeriodBefore) -> str:
    """Which period it is; and where the tables do not reach back to its beginning, that they do not."""
    told = f"{_period(before)}, of the same length. Below each figure: what has changed since then."
    first_ms = before.first_ms or before.begins_ms
    if first_ms - before.begins_ms < (before.ends_ms - before.begins_ms) * NOTABLE:
        return told
    since = f"{words.day(first_ms)} {words.clock(first_ms, HOUR_MS)}"
    return f"{told} Of that period the tables have nothing before {since}."


def _rows(report: ReviewPage, before: PeriodBefore) -> list[tuple[Child, ...]]:
    """All queues, if there are several, and each: as the page orders them, and then those that had jobs only before."""
    now = {**{queue.name: queue.totals for queue in report.queues}, **dict(report.others)}
    was = dict(before.queues)
    names = list(dict.fromkeys((*now, *was)))
    rows = [_row("All queues", report.totals, before.totals)] if len(names) > 1 else []
    return rows + [_row(tag("bdi", name), now.get(name, Totals()), was.get(name, Totals())) for name in names]


def _row(name: Child, now: Totals, was: Totals) -> tuple[Child, ...]:
    return (
        name,
        _cell(now.enqueued, was.enqueued, words.whole, good_when_less=False),
        _cell(share(now.failed, now.ended), share(was.failed, was.ended), words.percent, words.points),
        _cell(_late(now), _late(was), words.percent, words.points),
        _cell(_p95(now.wait), _p95(was.wait), words.span),
        _cell(_p95(now.run), _p95(was.run), words.span),
    )


def _late(totals: Totals) -> float | None:
    return share(totals.started - totals.in_time, totals.started)


def _p95(spans: Quantiles | None) -> float | None:
    return spans.p95_ms if spans else None


def _cell(
    now: float | None,
    was: float | None,
    told: Callable[[float], str],
    change: Callable[[float, float], str] = words.change,
    good_when_less: bool = True,
) -> Markup:
    """A figure, and below it what has changed. Where there is nothing to reckon with: what it was."""
    if now is None or was is None:
        return _two(words.DASH if now is None else told(now), "" if was is None else f"was {told(was)}")
    stands_out = good_when_less and abs(now - was) >= was * NOTABLE and now != was
    colour = ("bad" if now > was else "good") if stands_out else None
    return _two(told(now), change(now, was) or f"was {told(was)}", colour)


def _two(figure: str, below: str, colour: str | None = None) -> Markup:
    kind = " ".join(filter(None, ("change", colour)))
    return joined(figure, tag("span", below, class_=kind) if below else None)
