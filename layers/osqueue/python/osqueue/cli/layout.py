"""How a table fits a terminal: one thing a line, nothing that has to be copied or compared is ever cut.

Free text is cut with an ellipsis, narration is folded, and what a narrow terminal has no room for is left out by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CUT = frozenset(
    {"error", "payload", "message", "worker", "kinds"}
)  # free text: an ellipsis tells that there is more
FOLDED = frozenset({"what"})  # narration: all of it, over several lines
SPARE = (
    "host",
    "version",
    "oldest_start",
    "enqueued_at",
    "worker",
    "kind",
    "attempts",
    "started_at",
    "due_at",
    "id",
)  # what a table can do without, the first one first
CUT_CELLS_MIN = 8
FOLDED_CELLS_MIN = 20
GAP_CELLS = 2


class Column(NamedTuple):
    """A column as it is to be shown."""

    name: str
    at: int  # its place in the rows
    width: int
    head: str


class Layout(NamedTuple):
    """The columns to show, and the names of those for which there is no room."""

    columns: tuple[Column, ...]
    left_out: tuple[str, ...]


def width_of(text: str) -> int:
    """How many cells of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def layout(names: Sequence[str], rows: Sequence[Sequence[str]], nothing: str, room: int) -> Layout:
    """Fit the columns that say something into ``room`` cells, as far as they can be made to."""
    shown = [at for at in range(len(names)) if not rows or any(row[at] != nothing for row in rows)]
    cells = {at: max((width_of(row[at]) for row in rows), default=0) for at in shown}
    left_out: list[str] = []
    narrow = sum(_least(names[at], cells[at]) for at in shown)
    for spare in SPARE:
        if narrow + GAP_CELLS * (len(shown) - 1) <= room:
            break
        for at in [at for at in shown if names[at] == spare]:
            shown.remove(at)
            left_out.append(spare)
            narrow -= _least(spare, cells[at])
    free = room - narrow - GAP_CELLS * (len(shown) - 1)
    columns = []
    for at in shown:
        name, width = names[at], _least(names[at], cells[at])
        wanted = max(cells[at], width_of(name))
        extra = max(0, min(wanted - width, free))
        free -= extra
        width += extra
        head = name.replace("_", " ")
        columns.append(Column(name, at, width, head if width >= width_of(head) else head.replace(" ", "\n")))
    return Layout(tuple(columns), tuple(left_out))


def _least(name: str, cells: int) -> int:
    """The fewest cells a column can do with."""
    head = max(map(width_of, name.split("_")))
    if name in CUT:
        return max(head, min(cells, CUT_CELLS_MIN))
    if name in FOLDED:
        return max(head, min(cells, FOLDED_CELLS_MIN))
    return max(head, cells)
