"""Tags that cannot be broken out of: text is escaped unless a tag made it.

>>> str(tag("b", "1 < 2", class_="it's"))
'<b class="it&#x27;s">1 &lt; 2</b>'

What comes out is HTML and well-formed XML at once, so that a strict parser can check it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = frozenset({"meta", "br", "col", "link"})
_SHAPES = frozenset({"path", "rect", "line", "circle"})  # closed at once when they hold nothing

# Not allowed in XML, invisible, or able to turn the text around it.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]  # str: escaped, unless it is Markup


def visible(text: str) -> str:
    """A text with what cannot be seen or shown written out: ``\\u202e``."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escaped(text: str) -> Markup:
    """A text that stays text; markup as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(visible(text)))


def number(value: float) -> str:
    """A coordinate: two decimals are a fiftieth of a pixel."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def joined(*children: Child) -> Markup:
    """Children one after the other."""
    return Markup("".join(_written(children)))


def _written(child: Child) -> Iterable[str]:
    if child is None:
        return
    if isinstance(child, str):
        yield escaped(child)
    elif isinstance(child, int):
        yield str(child)
    else:
        for each in child:
            yield from _written(each)


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """An element. ``class_`` is class, ``stroke_width`` is stroke-width; None leaves an attribute out."""
    head = [name]
    for key, value in attributes.items():
        if value is None:
            continue
        text = number(value) if isinstance(value, int | float) else html.escape(visible(value))
        head.append(f'{key.strip("_").replace("_", "-")}="{text}"')
    opening = " ".join(head)
    body = joined(*children)
    if name in _VOID or (name in _SHAPES and not body):
        return Markup(f"<{opening} />" if name in _VOID else f"<{opening}/>")
    return Markup(f"<{opening}>{body}</{name}>")
