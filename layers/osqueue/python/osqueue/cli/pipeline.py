"""``osqueue pipeline``: the Spark jobs over the archive, as on a cluster. The jobs themselves are ``pipeline/jobs``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

from ..errors import NotInstalled, Rejected
from .options import Command

CHECKOUT = Path(__file__).resolve().parents[5]  # where this file lies in layers/osqueue/python/osqueue/cli
PASSED_ON = {"ignore_unknown_options": True}

EPILOG = """\b
Examples:
  osqueue pipeline run file:///var/lib/jobs file:///var/lib/tables report.html
  osqueue pipeline compact s3://bucket/prefix s3://bucket/tables --at 2026-01-05T10:05:00Z
  osqueue pipeline report file:///var/lib/tables report.html --queue emails
  osqueue pipeline sql file:///var/lib/tables "SELECT state, count(*) FROM jobs GROUP BY state"
"""


@click.group("pipeline", short_help="The archive as tables, metrics and a report, on Spark.", epilog=EPILOG)
def pipeline() -> None:
    """Spark over the archive: tables of jobs and attempts, metrics by hour and day, a report to look at.

    Runs on this machine's cores; needs Java 17 and the extra "pipeline". Arguments are those of the jobs in
    pipeline/jobs, which "-- --help" lists; on a cluster they are given to spark-submit.
    """


def _job(name: str, what: str) -> click.Command:
    text = f'{what} Arguments are those of pipeline/jobs/{name}.py; "-- --help" lists them.'

    @click.command(name, cls=Command, short_help=what, help=text, context_settings=PASSED_ON)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
    @click.pass_context
    def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
        ctx.exit(_main(name, list(arguments)))

    return command


def _main(name: str, arguments: list[str]) -> int:
    """Run one of the jobs; answers its exit status."""
    if not (CHECKOUT / "pipeline/jobs").is_dir():
        raise Rejected(
            "the pipeline is part of the repository, not of the installed package. Run this in a checkout of osqueue.",
            field="pipeline",
        )
    sys.path.insert(0, str(CHECKOUT))
    if (why := import_module("pipeline.needs").missing()) is not None:
        raise NotInstalled(f"the pipeline cannot run. {why}")
    done: int = import_module(f"pipeline.jobs.{name}").main(arguments)
    return done


for _name, _what in {
    "compact": "Make tables of jobs and attempts of the archive's parts.",
    "metrics": "Compute metrics by hour and day of these tables.",
    "report": "Draw the metrics as one HTML file.",
    "run": "All three, one after the other.",
    "sql": "Ask the tables in Spark SQL.",
}.items():
    pipeline.add_command(_job(_name, _what))
