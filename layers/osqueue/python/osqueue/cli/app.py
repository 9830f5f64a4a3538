"""The root command: what there is, in groups, and how errors end it."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any, TextIO, cast

import click

from .. import __version__
from ..errors import OsqueueError
from .exits import command_failed
from .output import Output, OutputFailed, Stdout

# What the help shows. A command is loaded when it is asked for: each brings what it needs of the library.
SECTIONS: dict[str, dict[str, str]] = {
    "Jobs": {
        "enqueue": "Add one job, or one for each line of JSON lines.",
        "claim": "Lease jobs and print each with its token and payload.",
        "complete": "Finish a leased job, or report that it failed, or give it back.",
        "job": "Show a job, its result; retry, cancel or purge it.",
        "why": "What happened to a job, and why.",
    },
    "Queues": {
        "top": "All queues at a glance, live in a terminal.",
        "events": "What happens in a queue, as it happens.",
        "queue": "Look at queues, pause and resume them, change settings, delete them.",
        "group": "Groups: list those that run or are held, and why; limits of their own.",
        "dlq": "Look at dead letters, redrive or purge them.",
        "archive": "Read, sum up and replay what finished.",
        "batch": "Batches, jobs whose common end makes another one: list, show, seal, cancel.",
        "reap": "Upkeep of one queue or all.",
        "doctor": "Find what is wrong, and put it right.",
    },
    "Stores": {"store": "Check a store by itself: what it promises, how quick it is, what it costs."},
    "Schedules": {"cron": "Schedules, by which jobs are made at their times: list, add, run, pause, remove."},
    "Interval queues": {"pacer": "Interval queues: create, look at, pause, resume, reset, remove."},
    "Workers": {"worker": "Run the handlers of a queue object in a module of yours."},
    "Server": {
        "serve": "The HTTP API from a server of your own.",
        "dashboard": "A page about the queues, on this machine.",
        "token": "Make a token for callers of 'osqueue serve'.",
    },
    "Local stack": {"dev": "The HTTP API and its Lambda functions, on this machine."},
    "History": {"pipeline": "The archive as tables, metrics and a report."},
    "Measure": {"bench": "Measure how fast a queue is at an address."},
    "Shell": {"completion": "Print what a shell completes commands with."},
}
# The modules of those commands that have none of their own name.
MODULES = {"complete": "claim", "queue": "queues"}

FORESEEN = (OsqueueError, click.ClickException, KeyboardInterrupt)


class App(click.Group):
    """A group that shows its commands in sections and prints every foreseen error as one line."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the program, with standard output as an Output takes it."""
        if sys.stdout is None:  # closed
            return super().main(*args, **more)
        with redirect_stdout(cast("TextIO", Stdout(sys.stdout))):
            return super().main(*args, **more)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """A context that carries this invocation's Output."""
        output = extra.setdefault("obj", Output())
        output.words = tuple(args)
        output.asked = "--json" in args[: args.index("--") if "--" in args else None]
        try:
            return super().make_context(info_name, args, parent, **extra)
        except (click.UsageError, OutputFailed) as error:
            if _shows_help(error):
                raise
            output.json = output.asked
            raise command_failed(output, error) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a foreseen error becomes its one line and its exit code."""
        try:
            return super().invoke(ctx)
        except FORESEEN as error:
            if _shows_help(error):
                raise
            output = ctx.find_object(Output) or Output()
            output.json |= output.asked and isinstance(error, click.UsageError)
            raise command_failed(output, error) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, section by section."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([*commands.items()])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return [name for commands in SECTIONS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, loaded; None where there is none of this name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f".{MODULES.get(cmd_name, cmd_name)}", __package__)
        return cast("click.Command", getattr(module, cmd_name))


def _shows_help(error: BaseException) -> bool:
    """Whether click raised it to show the help, because nothing was asked (it has such an error since 8.2)."""
    return type(error).__name__ == "NoArgsIsHelpError"


EPILOG = """\b
Examples:
  export OSQUEUE_ADDRESS=s3://bucket/prefix   (then ADDRESS may be left out)
  osqueue enqueue emails '{"to": "ada@example.com"}'
  osqueue enqueue emails --file jobs.jsonl
  osqueue claim emails --limit 10 --lease 5m
  osqueue queue stats emails

\b
ADDRESS is file:///path, s3://bucket/prefix, or an API's: https://host, http://host:port, lambda://prefix.
On a terminal answers are tables, in a pipe or with --json they are JSON.
Exit codes: 0 done, 1 refused (lease lost, not found, bad data), 2 wrong usage,
3 the store gave no answer, refuses or was busy, 4 the answer could not be printed, 130 interrupted.
"""


@click.group(
    cls=App, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, message="osqueue %(version)s")
def app() -> None:
    """A job queue that lives in your S3 bucket."""
