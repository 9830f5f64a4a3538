"""What a benchmark answers: rows of figures, each with its goal, printed as one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

Mark = Literal["met", "missed", ""]


class Figure(Struct, frozen=True):
    """One figure."""

    what: str  # what was measured
    figure: float  # the measured value
    unit: str  # its unit; "x" for a ratio
    goal: str = ""  # what it has to reach, in words; empty for a figure that only informs
    mark: Mark = ""  # whether it did
    note: str = ""  # what explains the figure


class BenchOptions(Struct, frozen=True):
    """How long to measure."""

    seconds: float  # length of one timed round
    rounds: int  # rounds of each side, taken in turn
    scale: float  # 1.0 for the full sizes; smaller ones only try a benchmark out
    parts: tuple[str, ...] = ()  # of a benchmark that has parts, those to run; all of them if empty


Benchmark = Callable[[BenchOptions], Iterable[Figure]]


def at_least(what: str, figure: float, goal: float, unit: str = "x", note: str = "") -> Figure:
    """A figure that has to be this large."""
    return Figure(what, figure, unit, f"≥ {goal:g}", "met" if figure >= goal else "missed", note)


def at_most(what: str, figure: float, goal: float, unit: str = "x", note: str = "") -> Figure:
    """A figure that may be this large and no larger."""
    return Figure(what, figure, unit, f"≤ {goal:g}", "met" if figure <= goal else "missed", note)


def exactly(what: str, figure: float, goal: float, unit: str, note: str = "") -> Figure:
    """A figure that has to be this one."""
    return Figure(what, figure, unit, f"= {goal:g}", "met" if figure == goal else "missed", note)


def ratio(ours: float, theirs: float) -> float:
    """Ours over theirs; infinite where theirs is nothing."""
    return ours / theirs if theirs else float("inf")


def quantity(figure: float, unit: str) -> str:
    """A figure in at most four digits that matter."""
    if unit == "x":
        return f"{figure:.2f} x"
    if figure == int(figure) or abs(figure) >= 1000:
        return f"{figure:,.0f} {unit}"
    return f"{figure:,.{1 if abs(figure) >= 100 else 2}f} {unit}"


def table(rows: Iterable[Figure]) -> str:
    """The rows as aligned columns."""
    cells = [(row.what, quantity(row.figure, row.unit), row.goal, row.mark, row.note) for row in rows]
    widths = [max((len(line[column]) for line in cells), default=0) for column in range(4)]
    lines = []
    for what, figure, goal, mark, note in cells:
        line = (
            f"  {what:<{widths[0]}}  {figure:>{widths[1]}}  {goal:<{widths[2]}}  {mark:<{widths[3]}}  {note}"
        )
        lines.append(line.rstrip())
    return "\n".join(lines)
