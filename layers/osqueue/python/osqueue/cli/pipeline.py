"""``osqueue pipeline``: the jobs over the archive, as on a cluster. The jobs themselves are ``pipeline/jobs``."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import click

from ..errors import NotInstalled
from ..pipeline.needs import missing_locally
from .options import Command

PASSED_ON = {"ignore_unknown_options": True}

EPILOG = """\b
Examples:
  osqueue pipeline run file:///var/lib/jobs file:///var/lib/tables report.html
  osqueue pipeline compact s3://bucket/prefix s3://bucket/tables --at 2026-01-05T10:05:00Z
  osqueue pipeline report file:///var/lib/tables report.html --queue emails --open
  osqueue pipeline sql file:///var/lib/tables "SELECT state, count(*) FROM jobs GROUP BY state"
"""


@click.group("pipeline", short_help="The archive as tables, metrics and a report.", epilog=EPILOG)
def pipeline() -> None:
    """The archive as tables of jobs and attempts, metrics by hour and day, and a report to look at.

    Small archives are gone through in this process, by DuckDB (extra "duckdb"); large ones on Spark (extra "pipeline",
    and Java 17). --engine chooses. "-- --help" after a command lists its arguments.
    """


def _job(name: str, what: str) -> click.Command:
    text = f'{what} "-- --help" lists the arguments.'

    @click.command(name, cls=Command, short_help=what, help=text, context_settings=PASSED_ON)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
    @click.pass_context
    def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
        ctx.exit(_main(name, list(arguments)))

    return command


def _main(name: str, arguments: list[str]) -> int:
    """Run one of the jobs; answers its exit status."""
    if find_spec("pyarrow") is None:
        raise NotInstalled(f"the pipeline cannot run. {missing_locally()}")
    done: int = import_module(f"osqueue.pipeline.jobs.{name}").main(arguments)
    return done


for _name, _what in {
    "compact": "Make tables of jobs and attempts of the archive's parts.",
    "metrics": "Compute metrics by hour and day of these tables.",
    "report": "Draw the metrics as one HTML file.",
    "run": "All three, one after the other.",
    "sql": "Ask the tables in SQL.",
    "ddl": "Print the tables' definitions for Athena or Glue.",
}.items():
    pipeline.add_command(_job(_name, _what))
