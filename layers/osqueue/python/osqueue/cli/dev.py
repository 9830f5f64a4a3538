"""``osqueue dev``: the serverless bundle on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from ..errors import Rejected, Unavailable
from ..masking import printable
from ..signals import ending_signals
from .dashboard import DashboardProcess
from .options import Command, as_text, json_option
from .output import Output
from .signals import ended_by

if TYPE_CHECKING:
    from ..devstack import Stack

LOG = ".osqueue-dev/functions.log"
STORE = "file://.osqueue-dev/store"

EPILOG = """\b
Examples:
  osqueue dev
  osqueue dev --store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000' --processes 8 --logs
  osqueue dev --consumer emails=mailer/handler.py
  osqueue dev --port 0 --json   (a free port, told on the first line)
"""


def _interval(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds; None for the table's own, 0 for no schedule."""
    if value is None:
        return None
    if value == "off":
        return 0
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise click.BadParameter(f"{value!r} is neither a number of seconds nor off.")
    return seconds


@click.command(
    "dev", short_help="The HTTP API and its Lambda functions, on this machine.", cls=Command, epilog=EPILOG
)
@click.option("--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0: a free one.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen. Everybody who reaches it may do everything.",
)
@click.option("--store", default=STORE, show_default=True, help="The address that the functions work on.")
@click.option(
    "--processes", type=int, default=4, show_default=True, help="Of each function, at the same time."
)
@click.option(
    "--schedule-seconds",
    metavar="N|off",
    callback=_interval,
    help="How often the reaper comes.  [default: as deployed, 60]",
)
@click.option(
    "--functions",
    metavar="DIR",
    help="A folder of handlers to run.  [default: the package's own]",
)
@click.option(
    "--consumer",
    "consumers",
    metavar="QUEUE=FILE[:FUNCTION]",
    multiple=True,
    help="A function of your own that is invoked when jobs of the queue wait. May be repeated.",
)
@click.option(
    "--logs", is_flag=True, help="Print what the functions log, instead of writing it to the log file."
)
@click.option("--log-file", default=LOG, show_default=True, help="Where what the functions log is added to.")
@json_option
@click.pass_obj
def dev(
    output: Output,
    port: int,
    host: str,
    store: str,
    processes: int,
    schedule_seconds: float | None,
    functions: str | None,
    consumers: tuple[str, ...],
    logs: bool,
    log_file: str,
) -> None:
    """Serve the HTTP API here, as deployed: the real handlers in real Lambda runtime processes. No AWS, no Docker.

    Prints one line with its address when it is ready, and runs until SIGTERM, SIGHUP or Ctrl-C: then running requests
    finish, and the functions' processes end. A browser finds a dashboard there.
    """
    from ..devstack import Stack
    from ..devstack.stack import DRAIN_S

    with (
        ended_by(*ending_signals()) as ending,
        _log(logs, log_file) as log,
        ExitStack() as ending_with,
    ):
        page = DashboardProcess()
        ending_with.callback(page.end)
        stack = Stack(
            as_text(store, "store"),
            host=host,
            port=port,
            processes=processes,
            schedule_seconds=schedule_seconds,
            functions=functions,
            consumers=consumers,
            log=log,
            page=page.url,
        )
        with stack:
            page.address = stack.url
            _check(stack)
            place = printable(stack.store)
            where = "standard error" if logs else str(Path(log_file).absolute())
            if output.tables:
                output.text(f"osqueue dev: {stack.url} over {place}, logs to {where}. Ctrl-C ends it.")
            else:
                output.document(
                    {"url": stack.url, "store": place, "functions": stack.functions, "log": where}
                )
            ending.wait()
            open_still = stack.requests()
            if open_still:
                few = f"{open_still} request{'' if open_still == 1 else 's'}"
                output.note(f"waiting up to {DRAIN_S:g} s for {few}")


def _check(stack: Stack) -> None:
    """Raises Unavailable when the functions do not run at all, rather than at the first request."""
    from ..devstack.instance import INIT_S_MAX
    from ..devstack.pool import PATIENCE_S

    # For longer than one that never becomes ready is given: then its error is reported.
    patience_s = INIT_S_MAX + PATIENCE_S
    outcome = stack.invoke("queues", {"method": "GET", "path": "/healthz"}, patience_s=patience_s)
    if outcome.failed:
        raise Unavailable(
            f"the functions do not start: {outcome.payload.decode(errors='replace')}", permanent=True
        )


@contextmanager
def _log(to_terminal: bool, path: str) -> Iterator[TextIO]:
    if to_terminal:
        yield sys.stderr
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        raise Rejected(f"log-file: cannot write {path}: {error.strerror}", field="log-file") from None
    with stream:
        yield stream
