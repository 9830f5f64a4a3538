"""A question in Spark SQL over the tables, answered as a table on a terminal and as JSON lines anywhere else.

    osqueue pipeline sql file:///var/lib/tables "SELECT queue, sum(failed) AS dead FROM metrics_daily GROUP BY queue"

Every table of ``pipeline/tables.py`` is a view of its name, with all its columns. Moments are UTC.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from osqueue.errors import Rejected
from osqueue.model.printable import of_few_characters, safe, safe_json
from pipeline import tables
from pipeline.jobs import command
from pipeline.jobs.command import in_utc
from pipeline.places import place
from pipeline.session import session

SHOWN = 200  # rows on a terminal


def ask(spark: SparkSession, root: str, query: str) -> DataFrame:
    """The answer to a question. Raises Rejected where Spark does not understand it, or is not in UTC."""
    in_utc(spark)
    tables.views(spark, place(root, "tables"))
    try:
        return spark.sql(query)
    except PySparkException as error:
        raise _refused(error) from error


def _refused(error: PySparkException | Py4JJavaError) -> Rejected:
    """What Spark says of its own error, without the frames of Java."""
    said = str(error).strip()
    found = re.search(r"\[[A-Z0-9_.]+\] [^\n]*", said)
    told = (found[0] if found else said.partition("\n")[0]).partition(" SQLSTATE:")[0].rstrip()
    return Rejected(f"query: {told} Mend it; pipeline/tables.py lists the tables.", field="query")


def text(answer: DataFrame, most: int = SHOWN) -> Iterator[str]:
    """The rows of an answer as lines of a table, numbers to the right."""
    named = answer.toDF(*(f"c{place}" for place in range(len(answer.columns))))
    told = named.select(*(F.col(name).cast("string") for name in named.columns)).take(most + 1)
    rows = [["" if value is None else safe(value) for value in row] for row in told[:most]]
    right = [isinstance(field.dataType, NumericType) for field in answer.schema]
    widths = [max(map(len, column)) for column in zip(answer.columns, *rows, strict=True)]
    for row in (answer.columns, ["-" * width for width in widths], *rows):
        cells = zip(row, widths, right, strict=True)
        yield "  ".join(
            cell.rjust(width) if end else cell.ljust(width) for cell, width, end in cells
        ).rstrip()
    if len(told) > most:
        yield f"… the first {most} rows. Add LIMIT, or write to a pipe for all of them."


def lines(answer: DataFrame) -> Iterator[str]:
    """Every row of an answer as an object of JSON, with nulls."""
    row = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    ascii_only = of_few_characters(sys.stdout)
    return (safe_json(each[0], ascii_only) for each in answer.select(row).toLocalIterator())


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point of ``osqueue pipeline sql``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tables", help="address of the folder of the tables")
    parser.add_argument("query", help="the question; - reads it from standard input")
    parser.add_argument("--json", action="store_true", help="JSON lines on a terminal, too")
    given = parser.parse_args(arguments)
    query = sys.stdin.read() if given.query == "-" else given.query
    try:
        answer = ask(session("osqueue sql"), given.tables, query)
        for line in text(answer) if sys.stdout.isatty() and not given.json else lines(answer):
            print(line)
    except (PySparkException, Py4JJavaError) as error:
        raise _refused(error) from error  # as of a division by zero
    return 0


if __name__ == "__main__":
    sys.exit(command.script(main))
