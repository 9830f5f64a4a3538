"""How the report writes numbers, spans and times: short, with units, in UTC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from ...model.fields import moment
from .model import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, ReviewPage

DASH = "–"
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"), (1, "ms"))
_RATES = ((HOUR_MS, "an hour"), (MINUTE_MS, "a minute"), (SECOND_MS, "a second"))
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def whole(number: float) -> str:
    """All digits: ``18,239``."""
    return f"{number:,.0f}"


def count(number: int, one: str) -> str:
    """So many things: ``1 job``, ``2 jobs``."""
    return f"{whole(number)} {one}" + ("" if number == 1 else "s")


def short(number: float) -> str:
    """Three digits at most: ``950``, ``18.2k``, ``1.25M``."""
    for size, letter in _LARGE:
        if abs(number) >= size * 0.9995:
            return _three(number / size) + letter
    return _three(number)


def _three(number: float) -> str:
    """A number below a thousand, to three digits, without idle zeros."""
    if number == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(number)) + 1e-9))
    text = f"{number:.{min(digits, 3)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(part: float | None) -> str:
    """A share. What is not quite all or nothing never reads as 100 % or 0 %."""
    if part is None:
        return DASH
    if 0 < part < 0.0005:
        return "<0.1 %"
    if 0.9995 <= part < 1:
        return ">99.9 %"
    return f"{part * 100:.0f} %" if part in (0, 1) else f"{part * 100:.1f} %"


def change(now: float, was: float) -> str:
    """By how much a figure has changed: ``+12.4 %``, ``× 14``; empty where it was nothing."""
    if now == was:
        return "same"
    if not was:
        return ""
    if now >= was * 10:
        return f"× {short(now / was)}"
    return _signed((now / was - 1) * 100, "%")


def points(now: float, was: float) -> str:
    """The same of shares, in percentage points: ``+0.4 points``."""
    return "same" if now == was else _signed((now - was) * 100, "points")


def _signed(number: float, unit: str) -> str:
    digits = 0 if abs(number) >= 99.95 else 1
    text = f"{abs(number):.{digits}f}"
    sign = "+" if number > 0 else "\N{MINUS SIGN}"
    return f"{sign}{text} {unit}" if float(text) else "about the same"


def span(ms: float | None) -> str:
    """A span of time in its natural unit: ``340 ms``, ``2.5 s``, ``1 h 12 min``."""
    if ms is None:
        return DASH
    for (unit_ms, name), (under_ms, under) in pairwise(_UNITS):
        parts = round(ms / under_ms)  # as it will be written: 59.9 s are a minute
        if parts * under_ms < unit_ms:
            continue
        if unit_ms == SECOND_MS:
            return f"{_three(ms / unit_ms)} {name}"
        large, rest = divmod(parts, unit_ms // under_ms)
        return f"{large} {name} {rest} {under}" if rest else f"{large} {name}"
    return f"{_three(ms)} ms"


def rate(number: float, span_ms: int) -> str:
    """How many in a unit of time, which is no longer than the span that they were counted over: ``51.5 an hour``."""
    unit_ms, unit = next((each for each in _RATES if span_ms >= each[0]), _RATES[-1])
    return f"{short(number * unit_ms / max(span_ms, 1))} {unit}"


def step(ms: int) -> str:
    """One step, after "per": ``hour``, ``6 h``."""
    names = {SECOND_MS: "second", MINUTE_MS: "minute", HOUR_MS: "hour", DAY_MS: "day"}
    return names.get(ms) or span(ms)


def day(ms: int) -> str:
    """``3 Oct 2026``."""
    return f"{moment(ms):%-d %b %Y}"


def clock(ms: int, step_ms: int) -> str:
    """A time of day, as fine as the steps are."""
    if step_ms < SECOND_MS:
        return f"{moment(ms):%H:%M:%S}.{ms % SECOND_MS // 100}"
    return f"{moment(ms):%H:%M:%S}" if step_ms < MINUTE_MS else f"{moment(ms):%H:%M}"


def instant(ms: int, step_ms: int) -> str:
    """``Sat 3 Oct 14:00``; without the time when the steps are days."""
    date = f"{moment(ms):%a %-d %b}"
    return date if step_ms >= DAY_MS else f"{date} {clock(ms, step_ms)}"


def when(at_ms: int, report: ReviewPage, fine_ms: int = DAY_MS) -> str:
    """A moment of the report, as fine as its steps or finer. No date where the whole period has only one."""
    step_ms = min(report.step_ms, fine_ms)
    last_ms = max(report.begins_ms, report.ends_ms - 1)
    if step_ms < DAY_MS and report.begins_ms // DAY_MS == last_ms // DAY_MS:
        return clock(at_ms, step_ms)
    return instant(at_ms, step_ms)


def period(begins_ms: int, ends_ms: int) -> str:
    """From when to when, no longer than it need be."""
    first, last = moment(begins_ms), moment(ends_ms)
    aligned = begins_ms % DAY_MS == 0 and ends_ms % DAY_MS == 0
    if aligned:
        last_day = day(max(begins_ms, ends_ms - DAY_MS))
        return day(begins_ms) if day(begins_ms) == last_day else f"{day(begins_ms)} to {last_day}"
    fine = MINUTE_MS if begins_ms % MINUTE_MS == 0 and ends_ms % MINUTE_MS == 0 else SECOND_MS
    start = f"{day(begins_ms)} {clock(begins_ms, fine)}"
    if first.date() == last.date():
        return f"{start} to {clock(ends_ms, fine)}"
    return f"{start} to {day(ends_ms)} {clock(ends_ms, fine)}"


def days(begins_ms: Sequence[int], most: int = 3) -> str:
    """Some days in order, those that follow one another as one period: ``5 Jan 2026 to 7 Jan 2026, 9 Jan 2026``."""
    spans: list[tuple[int, int]] = []
    for at_ms in begins_ms:
        joins = bool(spans) and spans[-1][1] == at_ms
        begin = spans.pop()[0] if joins else at_ms
        spans.append((begin, at_ms + DAY_MS))
    text = ", ".join(period(*each) for each in spans[:most])
    more = sum(end - begin for begin, end in spans[most:]) // DAY_MS
    return f"{text} and {count(more, 'more day')}" if more else text
