"""What surrounds a plot: its heading, its legend, and the table with the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from .markup import Child, Markup, joined, tag


class Key(Struct, frozen=True):
    """One entry of a legend: a colour's class and what it stands for."""

    class_: str
    text: str


def legend(keys: Iterable[Key]) -> Markup:
    """Which colour is what."""
    return tag(
        "ul",
        [tag("li", tag("span", class_=f"swatch {key.class_}", aria_hidden="true"), key.text) for key in keys],
        class_="legend",
    )


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Child]], caption: str, class_: str = "data"
) -> Markup:
    """A table whose first column names its rows. It scrolls by itself when the screen is narrower."""
    head = tag("tr", [tag("th", column, scope="col") for column in columns])
    body = [tag("tr", tag("th", row[0]), [tag("td", cell) for cell in row[1:]]) for row in rows]
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_=class_)
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def numbers(columns: Sequence[str], rows: Iterable[Sequence[Child]], caption: str) -> Markup:
    """The table behind a plot, folded away."""
    return tag("details", tag("summary", "Show the numbers"), table(columns, rows, caption))


def figure(heading: str, remark: Child, keys: Sequence[Key], *content: Child, class_: str = "") -> Markup:
    """A plot with its heading, a remark that says what to see, and its legend."""
    head = [
        tag("h4", heading),
        tag("p", remark, class_="remark") if remark else None,
        legend(keys) if keys else None,
    ]
    return tag("figure", tag("figcaption", head), joined(content), class_=class_ or None)


def nothing(heading: str, remark: str) -> Markup:
    """A plot's place when there is nothing to plot."""
    return tag("figure", tag("figcaption", tag("h4", heading)), tag("p", remark, class_="nothing"))


READOUT = tag("p", class_="readout", aria_hidden="true")  # where the page's script repeats what is pointed at
