"""What a command prints: tables for people on a terminal, JSON for everybody else.

One answer is one JSON document on one line; an answer of many things is JSON lines, one thing a line. Names and
payloads come from strangers: whatever a terminal would act upon or not show is printed as its escape.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

import click

from ..errors import OsqueueError
from ..model.printable import as_json, of_few_characters, safe

if TYPE_CHECKING:
    from rich.table import Table

NOTHING = "-"

OutputRow = Mapping[str, Any]


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None or value in ("", [], {}):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, int):
        return f"{value:,}"
    return safe(value) if isinstance(value, str) else as_json(value)


def short_cell(value: Any) -> str:
    """The same, times without their year and seconds."""
    return value.strftime("%m-%d %H:%MZ") if isinstance(value, datetime) else cell(value)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is at the other end."""
    return stream is not None and stream.isatty()


class OutputFailed(OsqueueError):
    """Standard output does not take the answer, as on a full disk. What the command did stays done."""

    code = "output"
    permanent = True


@contextmanager
def printing_answer() -> Iterator[None]:
    """While an answer is printed. Raises Unwritten; a reader who has had enough is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise OutputFailed(f"standard output takes no answer: {why}. What was done stays done.") from None


@contextmanager
def otherwise_saying(text: str) -> Iterator[None]:
    """What the error is to tell, too, should the answer not be printed."""
    try:
        yield
    except OutputFailed as error:
        error.message += f" {text}"
        raise


class Stdout:
    """Standard output for code that prints to it: click's help, a job of the pipeline. Raises Unwritten."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write it, or some of it into the buffer."""
        with printing_answer():
            return self._stream.write(text)

    def flush(self) -> None:
        """Write what is in the buffer."""
        with printing_answer():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Output:
    """Where a command's answers, notes and errors go. One for each invocation."""

    def __init__(self) -> None:
        self.json = False  # asked for by --json
        self.asked = False  # it is on the command line, for errors that come before options are read
        self.words: tuple[str, ...] = ()  # of the command line

    @property
    def tables(self) -> bool:
        """Whether a person is looking: then tables, else JSON."""
        return not self.json and is_terminal(sys.stdout)

    def document(self, value: Any) -> None:
        """Print one line of JSON."""
        click.echo(as_json(value, ascii_only=of_few_characters(sys.stdout)))

    def text(self, line: str) -> None:
        """Print a line for people."""
        click.echo(safe(line))

    def record(self, row: OutputRow, title: str = "") -> None:
        """Print one thing: its fields one below the other, or one JSON document."""
        if not self.tables:
            self.document(row)
            return
        from rich.text import Text

        table = self._table(title, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in row.items():
            table.add_row(Text(safe(name.replace("_", " "))), Text(cell(value)))
        self._print(table)

    def rows(
        self,
        rows: Iterable[OutputRow],
        columns: Sequence[str],
        title: str = "",
        none: str | Callable[[], str] = "",
    ) -> None:
        """Print many things: a table of ``columns``, one thing a line, or JSON lines of all fields as they come.

        ``none`` is the note that says what is missing where there are no rows, or makes it.
        """
        if not self.tables:
            found = False
            for row in rows:
                found = True
                self.document(row)
            if none and not found:
                self.note(none if isinstance(none, str) else none())
            return
        values: list[list[Any]] = []
        complete = False
        try:
            values.extend([row.get(name) for name in columns] for row in rows)
            complete = True
        finally:  # what is done is shown, even if the rest fails
            if values or not none:
                self._print_rows(values, columns, title)
            elif complete:
                self.note(none if isinstance(none, str) else none())

    def _print_rows(self, values: Sequence[Sequence[Any]], names: Sequence[str], title: str) -> None:
        from textwrap import wrap

        from rich.console import Console
        from rich.text import Text

        from .layout import FOLDED, GAP_CELLS, layout

        room = Console().width
        rows = [[cell(value) for value in each] for each in values]
        columns, left_out = layout(names, rows, NOTHING, room)
        if left_out:  # times that say less may make the room
            rows = [[short_cell(value) for value in each] for each in values]
            columns, left_out = layout(names, rows, NOTHING, room)
        if sum(each.width + GAP_CELLS for each in columns) - GAP_CELLS > room:
            self._print_records(values, names, title)
            return
        table = self._table(title, show_header=True)
        for each in columns:
            folded = each.name in FOLDED
            table.add_column(
                Text(each.head),
                width=each.width,
                no_wrap=not folded,
                overflow="fold" if folded else "ellipsis",
            )
        for row in rows:
            table.add_row(*(Text(row[each.at]) for each in columns))  # Text: nothing in it is markup
        self._print(table)
        if left_out:
            names_out = ", ".join(name.replace("_", " ") for name in left_out)
            for line in wrap(f"no room for: {names_out}. A wider terminal or --json shows all.", room):
                self.note(line)

    def _print_records(self, values: Sequence[Sequence[Any]], names: Sequence[str], title: str) -> None:
        """Rows for which even the narrowest table is too wide: one below the other."""
        for at, row in enumerate(values):
            if at:
                self.text("")
            shown = {name: value for name, value in zip(names, row, strict=True) if cell(value) != NOTHING}
            self.record(shown, "" if at else title)

    def _table(self, title: str, show_header: bool) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        head = safe(title)
        table = Table(
            box=SIMPLE_HEAD,
            show_header=show_header,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            title=Text(head) if head else None,
        )
        table.title_justify = "left"
        return table

    def _print(self, table: Table) -> None:
        from rich.console import Console

        Console(highlight=False, soft_wrap=False).print(table)

    def note(self, text: str) -> None:
        """Tell a person something that is not part of the answer."""
        self._aside(safe(text))

    def error(self, code: str, message: str, **more: Any) -> None:
        """Print an error: one line, or one JSON document where JSON was asked for."""
        if self.json:
            fields = {"code": code, "message": message}
            fields.update((name, value) for name, value in more.items() if value is not None)
            self._aside(as_json({"error": fields}))
        else:
            self._aside(f"error: {code}: {safe(' '.join(message.splitlines()))}")

    def _aside(self, line: str) -> None:
        with suppress(OSError):  # nowhere is left to tell it; the exit code still does
            click.echo(line, err=True)


def error_fields(error: OsqueueError) -> dict[str, Any]:
    """An error as part of an answer."""
    return {"code": error.code, "message": error.message}
