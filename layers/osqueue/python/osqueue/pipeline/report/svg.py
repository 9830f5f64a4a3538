"""Drawing: scales, axes, areas, lines and bars as inline SVG that fits any width without scaling its text.

Across, everything is in percent of the width; down, in pixels. Paths cannot be written in percent, so they live in an
inner picture (``stretched``) that is stretched across while its strokes keep their width. Colours are classes: the page
has them for light and for dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ...model.fields import moment
from . import words
from .markup import Child, Markup, joined, number, tag
from .model import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

WIDE = 1000.0  # the width of a stretched picture, in its own units
HEAD = 18.0  # room above a plot for its topmost label
ROOM = 4  # labels that fit below a plot on a narrow screen
FOOT = 22.0  # room below it for the labels of its axis


class Scale(Struct, frozen=True):
    """From values to shares of the way from one end of an axis to the other."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """0 at the low end, 1 at the high one; what lies outside is drawn at the end."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        if high <= low:
            return 0.0
        return min(1.0, max(0.0, (value - low) / (high - low)))


class Tick(Struct, frozen=True):
    """A labelled place on an axis."""

    value: float
    label: str


class Frame(Struct, frozen=True):
    """How high a plot is, and where in it the data goes."""

    height: float = 170.0
    head: float = HEAD
    foot: float = FOOT

    @property
    def floor(self) -> float:
        """Where zero is, in pixels from the top."""
        return self.height - self.foot

    def y(self, part: float) -> float:
        """Pixels from the top, of a share of the way up."""
        return self.floor - part * (self.floor - self.head)


# ── Scales and their ticks ───────────────────────────────────────────────────


def counts(high: float) -> Scale:
    """From zero to a round number that is at least ``high``."""
    if high <= 0:
        return Scale(0, 1)
    stride = _stride(high)
    return Scale(0, stride * math.ceil(high / stride - 1e-9))


def _stride(high: float) -> float:
    """The round number that ``high`` holds two to five times."""
    size = 10.0 ** math.floor(math.log10(high / 2))
    return next(size * times for times in (1, 2, 2.5, 5, 10) if high / (size * times) <= 4)


def count_ticks(scale: Scale, unit: str = "") -> list[Tick]:
    """Round numbers up to the scale's end; only the last one has the unit. Whole things have no fractions of ticks."""
    stride = _stride(scale.high)
    number_of = round(scale.high / stride)
    values = [stride * (n + 1) for n in range(number_of)]
    if scale.high >= 1:
        values = [value for value in values if value >= 1 and (value >= 10 or value == int(value))] or [
            scale.high
        ]
    return [
        Tick(value, words.short(value) + (f" {unit}" if unit and value == values[-1] else ""))
        for value in values
    ]


_SPANS = (
    *(1, 10, 100),
    *(SECOND_MS * n for n in (1, 10)),
    *(MINUTE_MS * n for n in (1, 10)),
    *(HOUR_MS * n for n in (1, 10)),
    *(DAY_MS * n for n in (1, 10, 100, 1000)),
)


def spans(values: Iterable[float], ratio: float = 30.0) -> Scale:
    """A logarithmic scale of milliseconds around these values, not so narrow that it makes noise look large."""
    known = [max(value, 1.0) for value in values]
    low, high = min(known, default=1.0), max(known, default=1000.0)
    if high < low * ratio:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(ratio), middle * math.sqrt(ratio)
    return Scale(max(0.5, low * 0.8), high * 1.15, log=True)


def span_ticks(scale: Scale, most: int = 5) -> list[Tick]:
    """Spans of time that people think in, within the scale."""
    inside = [value for value in _SPANS if scale.low <= value <= scale.high]
    every = max(1, -(-len(inside) // most))
    return [Tick(value, words.span(value)) for value in inside[::every]]


_TIME_STRIDES_MS = (
    *(100, 200, 500),
    *(SECOND_MS * n for n in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * n for n in (1, 2, 3, 6, 12)),
    *(DAY_MS * n for n in (1, 2, 7, 14)),
)
_MONDAY_MS = 4 * DAY_MS  # the first Monday since the epoch


def time_ticks(begins_ms: int, ends_ms: int, most: int = 8) -> list[Tick]:
    """Round instants: times of day, days, Mondays, or firsts of months, whatever makes few enough."""
    span_ms = ends_ms - begins_ms
    for stride_ms in _TIME_STRIDES_MS:
        if span_ms <= stride_ms * most:
            shift = _MONDAY_MS if stride_ms >= 2 * DAY_MS else 0
            first = -(-(begins_ms - shift) // stride_ms) * stride_ms + shift
            return [Tick(at, _time_label(at, stride_ms)) for at in range(first, ends_ms, stride_ms)]
    return _month_ticks(begins_ms, ends_ms, most)


def _time_label(at_ms: int, stride_ms: int) -> str:
    if at_ms % DAY_MS == 0:
        return f"{moment(at_ms):%-d %b}"
    return words.clock(at_ms, stride_ms)


def _month_ticks(begins_ms: int, ends_ms: int, most: int) -> list[Tick]:
    months = (ends_ms - begins_ms) / (30 * DAY_MS)
    every = next((n for n in (1, 2, 3, 6, 12) if months <= n * most), 12 * math.ceil(months / 12 / most))
    first = moment(begins_ms)
    ticks = []
    for month in range(first.year * 12, 12 * (moment(ends_ms).year + 1), every):
        year, of_year = divmod(month, 12)
        at = first.replace(year=year, month=of_year + 1, day=1, hour=0, minute=0, second=0, microsecond=0)
        at_ms = round(at.timestamp() * 1000)
        if begins_ms <= at_ms < ends_ms:
            ticks.append(Tick(at_ms, f"{at:%Y}" if of_year == 0 else f"{at:%b}"))
    return ticks


# ── Pieces of a picture ──────────────────────────────────────────────────────


def across(part: float) -> str:
    """A place across the picture."""
    return f"{number(100 * part)}%"


def picture(frame: Frame, name: str, title: str, description: str, *children: Child) -> Markup:
    """A drawing with its title and description for those who cannot see it. ``name`` is unique on the page."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-t"),
        tag("desc", description, id=f"{name}-d"),
        *children,
        class_="plot",
        role="img",
        width="100%",
        height=frame.height,
        aria_labelledby=f"{name}-t {name}-d",
    )


def stretched(frame: Frame, *children: Child) -> Markup:
    """An inner picture for paths: WIDE units across, whatever the width is; pixels down."""
    return tag(
        "svg",
        *children,
        width="100%",
        height=frame.height,
        viewBox=f"0 0 {number(WIDE)} {number(frame.height)}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def label(x: float, y: float, text: str, *, class_: str = "tick", anchor: str | None = None) -> Markup:
    """A word at a place; near the right edge it ends there, near the left edge it begins there."""
    if anchor is None:
        anchor = "start" if x < 0.05 else "end" if x > 0.95 else "middle"
    return tag("text", text, x=across(x), y=y, class_=class_, text_anchor=anchor)


def grid(frame: Frame, scale: Scale, ticks: Sequence[Tick], *shapes: Child) -> Markup:
    """Lines across below the shapes; above them their labels, each standing on its line's left end."""
    places = [(round(frame.y(scale.at(tick.value))) + 0.5, tick.label) for tick in ticks]
    lines = [tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid") for y, _ in places]
    labels = [label(0, y - 4, text, anchor="start") for y, text in places if y < frame.floor - 8]
    return joined(lines, shapes, labels)


def baseline(frame: Frame, scale: Scale, ticks: Sequence[Tick]) -> Markup:
    """The axis across, with its ticks. Where they are many, every other label gives way on a narrow screen."""
    y = round(frame.floor) + 0.5
    marks = [
        (
            tag("line", x1=across(x), x2=across(x), y1=y, y2=y + 4, class_="axis"),
            label(x, y + 17, tick.label, class_="tick odd" if index % 2 and len(ticks) > ROOM else "tick"),
        )
        for index, tick in enumerate(ticks)
        for x in (scale.at(tick.value),)
    ]
    return joined(tag("line", x1="0", x2="100%", y1=y, y2=y, class_="axis"), marks)


def steps_line(frame: Frame, parts: Sequence[float], class_: str) -> Markup:
    """A line that stays level through each step. ``parts`` are shares of the way up."""
    return tag("path", d=_staircase(frame, parts), class_=class_, vector_effect="non-scaling-stroke")


def steps_area(frame: Frame, parts: Sequence[float], class_: str, under: Sequence[float] = ()) -> Markup:
    """The area below such a line, down to the floor or to another line."""
    if not any(parts):
        return Markup("")
    low = _staircase(frame, under or [0.0] * len(parts), backwards=True)
    return tag("path", d=f"{_staircase(frame, parts)}L{low[1:]}Z", class_=class_)


def _staircase(frame: Frame, parts: Sequence[float], backwards: bool = False) -> str:
    """A path of level steps; a new corner only where the height changes."""
    width = WIDE / max(1, len(parts))
    corners: list[tuple[float, float]] = []
    for index, part in enumerate(parts):
        y = frame.y(part)
        if corners and corners[-1][1] == y:
            corners[-1] = ((index + 1) * width, y)
        else:
            corners += [(index * width, y), ((index + 1) * width, y)]
    if backwards:
        corners.reverse()
    (x, y), *rest = corners
    path = [f"M{number(x)},{number(y)}"]
    for right, down in rest:  # level or upright: a line has one number
        if right != x:
            path.append(f"H{number(round(right, 1))}")
        if down != y:
            path.append(f"V{number(round(down, 1))}")
        x, y = right, down
    return "".join(path)


def trace(frame: Frame, parts: Sequence[float | None], class_: str) -> Markup:
    """A line through the middles of the steps, broken where there is nothing; what stands alone is level."""
    width = WIDE / max(1, len(parts))
    path, drawing = [], False
    for index, part in enumerate(parts):
        if part is None:
            drawing = False
            continue
        y = number(frame.y(part))
        alone = not drawing and (index + 1 == len(parts) or parts[index + 1] is None)
        if alone:
            path.append(f"M{number(index * width)},{y}h{number(width)}")
        else:
            path.append(f"{'L' if drawing else 'M'}{number((index + 0.5) * width)},{y}")
        drawing = not alone
    if not path:
        return Markup("")
    return tag("path", d="".join(path), class_=class_, vector_effect="non-scaling-stroke")


def hits(frame: Frame, texts: Sequence[str | None]) -> Markup:
    """An invisible column for each step that tells its numbers when it is pointed at; None: nothing to tell.

    One unit across is a step here, and one down is all: the style says so, and a page has thousands of them.
    """
    return tag(
        "svg",
        [tag("rect", tag("title", text), x=index) for index, text in enumerate(texts) if text is not None],
        width="100%",
        height=frame.floor,
        viewBox=f"0 0 {max(1, len(texts))} 1",
        preserveAspectRatio="none",
        class_="hits",
        aria_hidden="true",
    )


def bar(frame: Frame, left: float, right: float, part: float, class_: str, text: str) -> Markup:
    """A bar from the floor up; however little it stands for, it can be seen."""
    top = min(frame.y(part), frame.floor - 1.5)
    return tag(
        "rect",
        tag("title", text),
        x=across(left),
        width=across(right - left),
        y=top,
        height=frame.floor - top,
        class_=class_,
    )


def flag(frame: Frame, x: float, row: int, text: str, class_: str) -> Markup:
    """A line down to the floor from its label; labels of different rows never meet."""
    y = 12 + 14 * row
    left = x > 0.6  # then the label stands to the left of the line
    return joined(
        tag("line", x1=across(x), x2=across(x), y1=y - 9, y2=frame.floor, class_=class_),
        tag(
            "text",
            text,
            x=across(x),
            dx=-5 if left else 5,
            y=y,
            class_="note",
            text_anchor="end" if left else "start",
        ),
    )


def level(frame: Frame, scale: Scale, value: float, text: str) -> Markup:
    """A dashed line across at a value, labelled on its right end."""
    y = round(frame.y(scale.at(value))) + 0.5
    return joined(
        tag("line", x1="0", x2="100%", y1=y, y2=y, class_="target"),
        tag("text", text, x="100%", y=y - 4, class_="note", text_anchor="end"),
    )
