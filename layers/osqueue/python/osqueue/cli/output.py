"""What a command prints: tables for people on a terminal, JSON for everybody else.

One answer is one JSON document on one line; an answer of many things is JSON lines, one thing a line. Names and
payloads come from strangers: whatever a terminal would act upon or not show is printed as its escape.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

import click
import msgspec

from ..errors import OsqueueError

NOTHING = "-"

Row = Mapping[str, Any]


def safe(text: str) -> str:
    """The text with everything unprintable (controls, escapes, direction marks, broken Unicode) escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def as_json(value: Any, ascii_only: bool = False) -> str:
    """One line of JSON with the same things escaped, so that it is safe to look at and still means the same."""
    try:
        text = msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:  # broken Unicode, from an argument that was not UTF-8
        text = json.dumps(msgspec.to_builtins(value, enc_hook=str))
    if text.isprintable() and not (ascii_only and not text.isascii()):
        return text
    return "".join(
        c if c.isprintable() and (c.isascii() or not ascii_only) else json.dumps(c)[1:-1] for c in text
    )


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None or value == "":
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


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is at the other end."""
    return stream is not None and stream.isatty()


class Output:
    """Where a command's answers, notes and errors go. One for each invocation."""

    def __init__(self) -> None:
        self.json = False  # asked for by --json

    @property
    def tables(self) -> bool:
        """Whether a person is looking: then tables, else JSON."""
        return not self.json and is_terminal(sys.stdout)

    def document(self, value: Any) -> None:
        """Print one line of JSON."""
        encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
        click.echo(as_json(value, ascii_only=encoding != "utf8"))

    def record(self, row: Row, title: str = "") -> None:
        """Print one thing: its fields one below the other, or one JSON document."""
        if not self.tables:
            self.document(row)
            return
        self._print([(safe(name.replace("_", " ")), cell(value)) for name, value in row.items()], None, title)

    def rows(
        self, rows: Iterable[Row], columns: Sequence[str], title: str = "", whole: Sequence[str] = ()
    ) -> None:
        """Print many things: a table of ``columns``, or JSON lines of all fields as they come.

        The columns named in ``whole`` are never cut or broken, so that they can be copied.
        """
        if not self.tables:
            for row in rows:
                self.document(row)
            return
        cells: list[list[str]] = []
        try:
            cells.extend([cell(row.get(name)) for name in columns] for row in rows)
        finally:  # what is done is shown, even if the rest fails
            self._print(cells, columns, title, whole)

    def _print(
        self,
        cells: Sequence[Sequence[str]],
        columns: Sequence[str] | None,
        title: str,
        whole: Sequence[str] = (),
    ) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        head = safe(title)
        table = Table(box=SIMPLE_HEAD, show_header=columns is not None, title=Text(head) if head else None)
        table.title_justify = "left"
        for name in columns or ("field", "value"):
            fixed = name in whole or name == "field"
            table.add_column(name.replace("_", " "), no_wrap=fixed, overflow="fold")
        for row in cells:
            table.add_row(*(Text(each) for each in row))  # Text: nothing in it is markup
        Console(highlight=False, soft_wrap=False).print(table)

    def note(self, text: str) -> None:
        """Tell a person something that is not part of the answer."""
        click.echo(safe(text), err=True)

    def error(self, code: str, message: str, **more: Any) -> None:
        """Print an error: one line, or one JSON document where JSON was asked for."""
        if self.json:
            fields = {"code": code, "message": message}
            fields.update((name, value) for name, value in more.items() if value is not None)
            click.echo(as_json({"error": fields}), err=True)
        else:
            click.echo(f"error: {code}: {safe(' '.join(message.splitlines()))}", err=True)


def error_fields(error: OsqueueError) -> dict[str, Any]:
    """An error as part of an answer."""
    return {"code": error.code, "message": error.message}
