"""A question in SQL over the tables, answered as a table on a terminal and as JSON lines anywhere else.

    osqueue pipeline sql file:///var/lib/tables "SELECT queue, sum(failed) AS dead FROM metrics_daily GROUP BY queue"

Every table is a view of its name, with all its columns. Moments are UTC. The SQL is Spark's, or that of DuckDB with
``--engine local``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from ...model.printable import of_few_characters, safe, safe_json
from ..engines import choice
from ..engines.base import Answer

SHOWN = 200  # rows on a terminal


def text(answer: Answer, most: int = SHOWN) -> Iterator[str]:
    """The rows of an answer as lines of a table, numbers to the right."""
    told = answer.texts(most + 1)
    rows = [["" if value is None else safe(value) for value in row] for row in told[:most]]
    widths = [max(map(len, column)) for column in zip(answer.names, *rows, strict=True)]
    for row in (answer.names, ["-" * width for width in widths], *rows):
        cells = zip(row, widths, answer.numbers, strict=True)
        yield "  ".join(
            cell.rjust(width) if end else cell.ljust(width) for cell, width, end in cells
        ).rstrip()
    if len(told) > most:
        yield f"… the first {most} rows. Add LIMIT, or write to a pipe for all of them."


def lines(answer: Answer) -> Iterator[str]:
    """Every row of an answer as an object of JSON, with nulls."""
    ascii_only = of_few_characters(sys.stdout)
    return (safe_json(each, ascii_only) for each in answer.objects())


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point of ``osqueue pipeline sql``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tables", help="address of the folder of the tables")
    parser.add_argument("query", help="the question; - reads it from standard input")
    parser.add_argument("--json", action="store_true", help="JSON lines on a terminal, too")
    parser.add_argument(
        "--engine", choices=(choice.SPARK, choice.LOCAL), default=choice.SPARK, help="whose SQL it is (spark)"
    )
    given = parser.parse_args(arguments)
    query = sys.stdin.read() if given.query == "-" else given.query
    with choice.engine(given.engine) as engine:
        answer = engine.ask(given.tables, query)
        for line in text(answer) if sys.stdout.isatty() and not given.json else lines(answer):
            print(line)
    return 0
