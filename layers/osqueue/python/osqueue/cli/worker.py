"""``osqueue worker``: runs the handlers of a queue object that a module of yours defines."""

from __future__ import annotations

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
import msgspec

from ..errors import OsqueueError
from ..events import Sink
from ..queue.asynchronous import AsyncQueue
from ..queue.blocking import Queue
from .options import Command, duration, json_option
from .output import Output
from .telling import events_option

EPILOG = """\b
Example (tasks.py holds: q = Queue.connect("s3://bucket/prefix", "emails") and its @q.handler functions):
  osqueue worker tasks:q --concurrency 8
"""


@click.command(
    "worker",
    short_help="Run the handlers of a queue object in a module of yours.",
    cls=Command,
    epilog=EPILOG,
)
@click.argument("target", metavar="MODULE:QUEUE")
@click.option("--concurrency", type=int, default=8, show_default=True, help="Jobs at the same time.")
@click.option("--name", help="Under which leases are held.  [default: host and process]")
@click.option("--lease", type=duration, default=30, help="A job's lease; kept by heartbeats.  [default: 30s]")
@click.option("--poll", type=duration, default=1, help="Longest pause when there is nothing.  [default: 1s]")
@click.option(
    "--drain", type=duration, default=30, help="How long a stop waits for handlers.  [default: 30s]"
)
@click.option("--until-empty", is_flag=True, help="End when nothing can be claimed and nothing runs.")
@events_option
@json_option
@click.pass_obj
def worker(output: Output, /, target: str, sinks: Sequence[Sink], **options: Any) -> None:
    """Claim jobs and run their handlers until SIGTERM or Ctrl-C; then say what was done.

    MODULE is imported with the current directory on the path; QUEUE is the name of a Queue or AsyncQueue in it. A
    stop lets running handlers finish for a while, then gives their jobs back without using an attempt.
    """
    queue = find_queue(target)
    for sink in sinks:
        if sink.name not in queue.deliveries:  # else the module has seen to it
            queue.add_sink(sink)
    if not logging.getLogger().handlers:  # else the module has set up logging itself and is left alone
        logging.getLogger("osqueue.worker").addFilter(_is_not_the_tally)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    from ..worker import run_worker

    tally = run_worker(queue, **options)
    output.record({"queue": queue.name, **msgspec.structs.asdict(tally)})


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
    traceback.print_exception(type(error), error, _own_frames(error), chain=False)
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
