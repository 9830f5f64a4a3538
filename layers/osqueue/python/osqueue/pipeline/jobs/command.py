"""What the jobs and their command lines share: options, moments, a word of progress, and how a run ends."""

from __future__ import annotations

import sys
import webbrowser
from argparse import ArgumentParser
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import OsqueueError, Rejected
from ...model.printable import as_json, of_few_characters, safe
from ...objects.archive import ROOT
from ..engines import choice
from ..engines.base import Engine
from ..engines.choice import PipelineInput
from ..tables import JOBS

Progress = Callable[[int, int], None]  # what is done, of how much


def parser(doc: str | None) -> ArgumentParser:
    """A parser with what a job's docstring begins with, and with ``--queue``."""
    made = ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--queue", action="append", default=[], help="only this one; may be given again (all)")
    told = "local: DuckDB in this process; spark; auto: by the size of what is read (auto)"
    made.add_argument("--engine", choices=choice.ENGINES, default=choice.AUTO, help=told)
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


def silent(done: int, total: int) -> None:
    """Says nothing."""


def told(what: str) -> Progress:
    """Says on standard error how far a job is."""

    def progress(done: int, total: int) -> None:
        print(f"{done:,} of {total:,} {what}", file=sys.stderr, flush=True)

    return progress


def archive_of(store: str) -> PipelineInput:
    """What a job reads that begins with an archive."""
    return PipelineInput(store, "store", ROOT, "the archive")


def tables_of(tables: str) -> PipelineInput:
    """What one reads that begins with the tables."""
    return PipelineInput(tables, "tables", f"{JOBS.name}/", "the table jobs")


def finish(asked: str, workload: PipelineInput, act: Callable[[Engine], Any]) -> Any:
    """Run a job and print what was done as one line of JSON; answers the same. Raises what the job raises."""
    with choice.chosen(asked, workload) as engine:
        done = act(engine)
    print(as_json(done, of_few_characters(sys.stdout)))
    return done


def show(path: str) -> None:
    """Open a page in a browser. Raises Rejected where it is no file of this machine."""
    if path.startswith("s3://"):
        raise Rejected(f"open: a browser cannot open {path}. Copy it to a file first.", field="open")
    if not webbrowser.open(Path(path).resolve().as_uri()):
        print(f"there is no browser here. The page is {path}", file=sys.stderr)


def script(main: Callable[[], int]) -> int:
    """A job as a program of its own: what went wrong is one line on standard error."""
    try:
        return main()
    except OsqueueError as error:
        print(f"error: {error.code}: {safe(error.message)}", file=sys.stderr)
        return 1
