"""``osqueue worker``: runs the handlers of a queue object that a module of yours defines."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

import click
from msgspec.structs import asdict

from ..errors import NotInstalled, OsqueueError, Unavailable
from ..events import Sink
from ..masking import without_secrets
from ..queue.asynchronous import AsyncQueue
from ..queue.blocking import Queue
from ..worker import Tally
from ..worker.logs import FORMATS, LEVELS, set_up
from ..worker.loop import Worker
from .crew import ProcessCrew, command_of, end_with_parent
from .exits import USAGE
from .options import Command, duration, json_option
from .output import Output
from .telling import events_option

EPILOG = """\b
Example (tasks.py holds: q = Queue.connect("s3://bucket/prefix", "emails") and its @q.handler functions):
  osqueue worker tasks:q --concurrency 8
  osqueue worker tasks:q reports:q --processes 4 --log-format json
"""
PROCESSES_MAX = 256
ARGS = "osqueue.worker.args"


class WorkerCommand(Command):
    """A command that keeps its arguments as they were written, for processes that run the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep them."""
        ctx.meta[ARGS] = list(args)
        return super().parse_args(ctx, args)


@click.command(
    "worker",
    short_help="Run the handlers of a queue object in a module of yours.",
    cls=WorkerCommand,
    epilog=EPILOG,
)
@click.argument("targets", metavar="MODULE:QUEUE...", nargs=-1, required=True)
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), help="Run so many of this.  [default: 1]")
@click.option("--reload", is_flag=True, help="Begin anew when a .py file in this folder changes.")
@click.option(
    "--concurrency", type=int, default=8, show_default=True, help="Jobs of each queue at the same time."
)
@click.option("--name", help="Under which leases are held.  [default: host and process]")
@click.option("--lease", type=duration, default=30, help="A job's lease; kept by heartbeats.  [default: 30s]")
@click.option("--poll", type=duration, default=1, help="Longest pause when there is nothing.  [default: 1s]")
@click.option(
    "--drain", type=duration, default=30, help="How long a stop waits for handlers.  [default: 30s]"
)
@click.option("--until-empty", is_flag=True, help="End when nothing can be claimed and nothing runs.")
@click.option("--traceback", is_flag=True, help="Log the traceback of each attempt that fails.")
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Serve metrics for Prometheus; of several processes the next ports, too.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    help="Where metrics listen. They need no token: beyond this machine, a firewall has to limit who may read.",
)
@click.option("--log-level", type=click.Choice(LEVELS), help="What to log.  [default: info]")
@click.option("--log-format", type=click.Choice(FORMATS), help="Lines of text or of JSON.  [default: text]")
@events_option
@json_option
@click.pass_context
def worker(
    ctx: click.Context,
    /,
    targets: Sequence[str],
    processes: int | None,
    reload: bool,
    metrics_port: int | None,
    metrics_host: str,
    log_level: str | None,
    log_format: str | None,
    sinks: Sequence[Sink],
    **options: Any,
) -> None:
    """Claim jobs and run their handlers until SIGTERM, SIGHUP or Ctrl-C; then print what was done.

    MODULE is imported with the current directory on the path; QUEUE is the name of a Queue or AsyncQueue in it. A
    stop lets running handlers finish for a while, then gives their jobs back without using an attempt. Several queues
    are worked on side by side, each with its own concurrency.
    """
    root = logging.getLogger()
    if processes is not None or reload:
        set_up(root, log_level, log_format)
        _run_processes(ctx, processes or 1, options["name"], os.getcwd() if reload else None)
        return
    end_with_parent()
    queues = [find_queue(target) for target in targets]
    for queue in queues:
        for sink in sinks:
            if sink.name not in queue.deliveries:  # else the module has seen to it
                queue.add_sink(sink)
    if not root.handlers:  # else the module has set up logging itself
        logging.getLogger("osqueue.worker").addFilter(_is_not_the_tally)
    set_up(root, log_level, log_format)

    workers = [Worker(queue, **options) for queue in queues]
    if metrics_port is not None:
        _serve_metrics(workers, metrics_host, metrics_port)
    tallies = asyncio.run(_serve(workers))
    _say(ctx, [{"queue": queue.name, **asdict(tally)} for queue, tally in zip(queues, tallies, strict=True)])


def _serve_metrics(workers: Sequence[Worker], host: str, port: int) -> None:
    """Raises NotInstalled, Unavailable."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from ..worker.metrics import WorkerMetrics
    except ImportError:
        raise NotInstalled(
            "metrics-port: it needs the package prometheus-client: pip install 'osqueue[metrics]'",
            field="metrics-port",
        ) from None
    registry = CollectorRegistry()
    registry.register(WorkerMetrics(workers))
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise Unavailable(
            f"metrics-port: cannot listen on {host}:{port} ({error.strerror or error}). Choose another one.",
            permanent=True,
        ) from None


async def _serve(workers: Sequence[Worker]) -> list[Tally]:
    """All of them on one event loop, where each hears every signal. What ends one ends all."""
    try:
        return await asyncio.gather(*[each.serve() for each in workers])
    except BaseException:
        for each in workers:
            each.stop(now=True)
        raise


def _run_processes(ctx: click.Context, count: int, name: str | None, watched: str | None) -> None:
    args: list[str] = ctx.meta[ARGS]
    crew = ProcessCrew([command_of(args, at, name) for at in range(1, count + 1)], watched)
    crew.run()
    if crew.refused:  # a process has said why
        raise click.exceptions.Exit(USAGE)
    total: dict[str, dict[str, Any]] = {}
    for answer in crew.answers:
        row = total.setdefault(
            answer["queue"], {"queue": answer["queue"], **dict.fromkeys(asdict(Tally()), 0)}
        )
        for each in asdict(Tally()):
            row[each] += answer[each]
    _say(ctx, list(total.values()))


def _say(ctx: click.Context, rows: Sequence[dict[str, Any]]) -> None:
    output = ctx.ensure_object(Output)
    if len(rows) == 1:
        output.record(rows[0])
    else:
        output.rows(rows, tuple(rows[0]) if rows else ("queue",))


def _is_not_the_tally(record: logging.LogRecord) -> bool:
    """Whether a line of the log says something that the command's answer does not say anyway."""
    return not str(record.msg).startswith("worker ends")


def find_queue(target: str) -> Any:
    """The queue object that MODULE:QUEUE names; raises UsageError saying which part is wrong."""
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise click.UsageError(f"{target!r} is not MODULE:QUEUE. Write tasks:q for the q in tasks.py.")
    found: Any = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"module {module_name!r} has no {path!r}.{_queues_in(found)}")
        found = getattr(found, name)
    if not isinstance(found, Queue | AsyncQueue):
        raise click.UsageError(f"{target!r} is a {type(found).__name__}, not a Queue or AsyncQueue.")
    return found


def _module(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise _broken(name, error) from None  # something that the module itself imports
        raise click.UsageError(
            f"there is no module {missing!r}. Run the command in the folder that holds it, or install it."
        ) from None
    except OsqueueError:
        raise
    except Exception as error:  # noqa: BLE001 - a module of the user's raises what it likes
        if _own_frames(error) is None and isinstance(error, TypeError | ValueError):
            raise click.UsageError(
                f"{name!r} is not a module's name. Write it with dots: package.tasks."
            ) from None
        raise _broken(name, error) from None


def _broken(name: str, error: Exception) -> click.UsageError:
    """The error for a module that does not import, after its traceback, which shows its author where."""
    frames = traceback.format_exception(type(error), error, _own_frames(error), chain=False)
    click.echo(without_secrets("".join(frames)), err=True, nl=False)
    return click.UsageError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}")


def _own_frames(error: Exception) -> TracebackType | None:
    """The traceback from where the user's module begins, without this command and the import system."""
    at = error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if file not in (__file__, importlib.__file__) and not file.startswith("<frozen importlib"):
            break
        at = at.tb_next
    return at


def _queues_in(module: Any) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Queue | AsyncQueue)]
    return f" Its queues: {', '.join(names)}." if names else " It defines no queue."
