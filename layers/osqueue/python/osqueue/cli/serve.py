"""``osqueue serve``: the HTTP API from one long-running process or several."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from .. import limits
from ..errors import NotInstalled, Rejected
from ..events import Sink
from ..masking import printable
from ..stores.address import is_remote, open_store
from ..stores.counting import CountingStore
from .crew import ProcessCrew, end_with_parent
from .exits import USAGE
from .options import StoreCommand, as_text, complete_address, duration, json_option
from .output import Output
from .telling import events_option

if TYPE_CHECKING:
    from ..asgi.server import ServeOptions

WORKERS_MAX = 64
DRAIN_S_MAX = 3600.0
LEVELS = ("debug", "info", "warning", "error")
SOCKET = "OSQUEUE_SERVE_SOCKET"  # of a process's environment: the descriptor it accepts connections from
ARGS = "osqueue.serve.args"

EPILOG = """\b
Examples:
  osqueue serve file:///var/lib/osqueue
  osqueue serve s3://bucket/prefix --host 0.0.0.0 --tokens tokens.toml --workers 4
  osqueue serve file:///var/lib/osqueue --host 0.0.0.0 --tokens tokens.toml --certificate tls.pem --key tls.key
"""


class ServeCommand(StoreCommand):
    """A command that keeps its arguments as they were written, for processes that run the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep them."""
        ctx.meta[ARGS] = list(args)
        return super().parse_args(ctx, args)


@click.command("serve", short_help="The HTTP API from a server of your own.", cls=ServeCommand, epilog=EPILOG)
@click.argument("address", metavar="STORE", shell_complete=complete_address)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: a free one.")
@click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    default=1,
    show_default=True,
    help="Processes that serve.",
)
@click.option("--tokens", metavar="FILE", help="Who may call, and what: see 'osqueue token --help'.")
@click.option("--certificate", metavar="FILE", help="Serve TLS with this certificate, in PEM.")
@click.option("--key", metavar="FILE", help="The certificate's key, where it is another file.")
@click.option("--client-ca", metavar="FILE", help="Clients have to show a certificate of this authority.")
@click.option(
    "--drain", type=duration, default=30, help="How long an end waits for running requests.  [default: 30s]"
)
@click.option(
    "--no-upkeep", is_flag=True, help="Leave upkeep to somebody else, such as 'osqueue reap --every 60'."
)
@click.option(
    "--window",
    type=duration,
    default=0,
    help="How long an operation waits for those of other requests, to share a commit.  [default: 0s]",
)
@click.option("--read-only", is_flag=True, help="Refuse everything but reads, whoever asks.")
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What to log."
)
@events_option
@json_option
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    address: str,
    workers: int,
    drain: float,
    no_upkeep: bool,
    log_level: str,
    window: float,
    sinks: Sequence[Sink],
    **more: Any,
) -> None:
    """Serve the API of docs/http.md over a store, for clients of any language, until SIGTERM, SIGHUP or Ctrl-C.

    Prints one line with its address when it listens, and logs a line of JSON for each request to standard error. Any
    number of servers may work on one store. Upkeep is done by one of them: expired leases, due jobs, the archive.
    Beyond this machine it listens only when it knows who may call.
    """
    try:
        from ..asgi.log import configure_logs
        from ..asgi.server import ServeOptions
    except ImportError as error:
        raise NotInstalled(
            f"osqueue serve needs the package {error.name}: pip install 'osqueue[serve]'", field="serve"
        ) from None
    if is_remote(address):
        raise Rejected(
            "address: it serves a store, such as s3://bucket/prefix or file:///path; this is another API.",
            field="address",
        )
    if not 0 < drain <= DRAIN_S_MAX:
        raise click.BadParameter(f"up to {DRAIN_S_MAX:g}s.", param_hint="--drain")
    if not 0 <= window <= limits.WINDOW_MS_MAX / 1000:
        raise click.BadParameter(f"up to {limits.WINDOW_MS_MAX / 1000:g}s.", param_hint="--window")
    if workers > 1 and not open_store(as_text(address, "address")).shared:
        raise Rejected("workers: what is in memory is in one process. Use --workers 1.", field="workers")
    options = ServeOptions(
        as_text(address, "address"), drain_s=drain, upkeep=not no_upkeep, window=window, **more
    )
    configure_logs(log_level)
    inherited = os.environ.pop(SOCKET, "")
    if inherited:
        end_with_parent()
        store = CountingStore(open_store(options.store))
        _serve(options, store, socket.socket(fileno=int(inherited)), sinks)
    else:
        _listen(ctx, options, workers, sinks)


def _listen(ctx: click.Context, options: ServeOptions, workers: int, sinks: Sequence[Sink]) -> None:
    from ..asgi.metrics import counted_together
    from ..asgi.neighbours import serving_together
    from ..asgi.server import Upkeep, check, listen, url_of

    check(options)
    output = ctx.ensure_object(Output)
    with listen(options.host, options.port) as listening:
        url = url_of(options, listening)
        store = CountingStore(open_store(options.store))
        upkeep = Upkeep(store, tuple(sinks)) if options.upkeep else nullcontext()
        if workers == 1:
            _say(output, url, options)
            with upkeep:
                _serve(options, store, listening, sinks)
            return
        os.environ[SOCKET] = str(listening.fileno())
        command = [sys.executable, "-m", "osqueue", "serve", *ctx.meta[ARGS]]
        crew = ProcessCrew([command] * workers, what="server", descriptors=(listening.fileno(),))
        _say(output, url, options)
        with counted_together(), serving_together(workers), upkeep:
            crew.run()
        if crew.refused:  # a process has said why
            raise click.exceptions.Exit(USAGE)


def _serve(
    options: ServeOptions, store: CountingStore, listening: socket.socket, sinks: Sequence[Sink]
) -> None:
    from ..asgi.server import serve as serve_on

    serve_on(options, store, listening, tuple(sinks))


def _say(output: Output, url: str, options: ServeOptions) -> None:
    store = printable(options.store)
    if output.tables:
        output.text(f"osqueue serve: {url} over {store}, a dashboard at /. Ctrl-C ends it.")
    else:
        output.document({"url": url, "store": store, "process": os.getpid()})
