"""``osqueue worker``: runs the handlers of a queue object that a module of yours defines."""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import Any

import click
import msgspec

from ..async_queue import AsyncQueue
from ..queue import Queue
from .options import Command, duration, json_option
from .output import Output

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
@click.option(
    "--lease", type=duration, default=30, show_default="30s", help="A job's lease; kept by heartbeats."
)
@click.option(
    "--poll", type=duration, default=1, show_default="1s", help="Longest pause when there is nothing."
)
@click.option(
    "--drain", type=duration, default=30, show_default="30s", help="How long a stop waits for handlers."
)
@click.option("--until-empty", is_flag=True, help="End when nothing can be claimed and nothing runs.")
@json_option
@click.pass_obj
def worker(output: Output, /, target: str, **options: Any) -> None:
    """Claim jobs and run their handlers until SIGTERM or Ctrl-C; then say what was done.

    MODULE is imported with the current directory on the path; QUEUE is the name of a Queue or AsyncQueue in it. A
    stop lets running handlers finish for a while, then gives their jobs back without using an attempt.
    """
    queue = find_queue(target)
    # After the import: a module that sets up logging itself is left alone.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    from ..worker import run_worker

    tally = run_worker(queue, **options)
    output.record({"queue": queue.name, **msgspec.structs.asdict(tally)})


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
            raise  # something that the module itself imports: its traceback tells the author where
        raise click.UsageError(
            f"there is no module {missing!r}. Run the command in the folder that holds it, or install it."
        ) from None
    except (TypeError, ValueError):
        raise click.UsageError(
            f"{name!r} is not a module's name. Write it with dots: package.tasks."
        ) from None


def _queues_in(module: Any) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Queue | AsyncQueue)]
    return f" Its queues: {', '.join(names)}." if names else " It defines no queue."
