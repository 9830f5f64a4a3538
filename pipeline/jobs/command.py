"""What the jobs and their command lines share: options, moments, a word of progress, and how a run ends."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from osqueue.errors import OsqueueError, Rejected
from osqueue.model.printable import as_json, of_few_characters, safe
from pipeline.session import session

ZONE = "spark.sql.session.timeZone"
Progress = Callable[[int, int], None]  # what is done, of how much


def parser(doc: str | None) -> ArgumentParser:
    """A parser with what a job's docstring begins with, and with ``--queue``."""
    made = ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--queue", action="append", default=[], help="only this one; may be given again (all)")
    return made


def moment(text: str) -> datetime:
    """A moment in ISO 8601; where it names no time zone, in UTC. Raises ValueError."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def milliseconds(at: datetime, field: str) -> int:
    """A moment of a configuration, in milliseconds since 1970. Raises Rejected where it names no time zone."""
    if at.tzinfo is None:
        raise Rejected(
            f"{field}: the moment has no time zone. Write one, such as 2026-01-05T10:00Z.", field=field
        )
    return round(at.timestamp() * 1000)


def in_utc(spark: SparkSession) -> None:
    """Refuse a session in another time zone: it would count what happened on other days and in other hours."""
    zone = spark.conf.get(ZONE)
    if zone not in ("UTC", "Etc/UTC", "GMT"):
        raise Rejected(
            f'spark: its {ZONE} is {zone}, and hours and days are UTC. Call spark.conf.set("{ZONE}", "UTC").',
            field="spark",
        )


def silent(done: int, total: int) -> None:
    """Says nothing."""


def told(what: str) -> Progress:
    """Says on standard error how far a job is."""

    def progress(done: int, total: int) -> None:
        print(f"{done:,} of {total:,} {what}", file=sys.stderr, flush=True)

    return progress


def finish(name: str, act: Callable[[SparkSession], Any]) -> int:
    """Run a job and print what was done as one line of JSON; answers the exit status. Raises what the job raises."""
    print(as_json(act(session(f"osqueue {name}")), of_few_characters(sys.stdout)))
    return 0


def script(main: Callable[[], int]) -> int:
    """A job as a program of its own: what went wrong is one line on standard error."""
    try:
        return main()
    except OsqueueError as error:
        print(f"error: {error.code}: {safe(error.message)}", file=sys.stderr)
        return 1
