"""``osqueue queue …``: what an operator does with whole queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from ..core.state import CANCELLED, COMPLETED, STATES
from ..errors import OsqueueError
from ..model.job import Job
from ..model.job_filter import headers_of
from ..model.settings import KIND_SETTINGS, SETTINGS
from ..queue.blocking import Queue
from ..stores.address import is_remote
from .cancel import cancel
from .consumers import consumers
from .dump import dump
from .exits import exit_code
from .options import (
    StoreCommand,
    duration,
    existing_queue,
    moment,
    no_folder,
    open_at,
    open_queue,
    options_of,
    queues_at,
    queues_of,
    store_arguments,
)
from .output import Output, error_fields
from .remove import rm
from .workers import workers

LS_COLUMNS = ("queue", "paused", "queued", "processing", "scheduled", "failing", "failed", "oldest_seconds")
JOB_COLUMNS = (
    "job_id",
    "id",
    "state",
    "kind",
    "attempt",
    "enqueued_at",
    "due_at",
    "started_at",
    "worker",
    "error",
)
OVER_NOTE = (
    "no jobs found. Jobs that are over are listed for as long as they are in a head:"
    " 'osqueue job show' finds the others by id, 'osqueue archive cat' by time"
)

EPILOG = """\b
Examples:
  osqueue queue ls s3://bucket/prefix
  osqueue queue ls https://abc.execute-api.eu-west-1.amazonaws.com
  osqueue queue stats s3://bucket/prefix emails
  osqueue queue jobs s3://bucket/prefix emails --state failed --limit 20
  osqueue queue workers s3://bucket/prefix emails
  osqueue queue pause s3://bucket/prefix emails
  osqueue queue consumers s3://bucket/prefix emails
  osqueue queue rm s3://bucket/prefix emails
"""


@click.group("queue", epilog=EPILOG)
def queue() -> None:
    """Look at queues, pause and resume them, change settings, delete them."""


def _row_or_error(name: str, row: dict[str, Any] | OsqueueError) -> dict[str, Any]:
    return {"queue": name, "error": error_fields(row)} if isinstance(row, OsqueueError) else row


def each_queue(
    output: Output, found: Iterator[tuple[str, dict[str, Any] | OsqueueError]], columns: Sequence[str]
) -> None:
    """Print one row for each queue; those that gave an error do not keep the others from being shown."""
    worst = 0
    failures: list[tuple[str, OsqueueError]] = []

    def rows() -> Iterator[dict[str, Any]]:
        for name, row in found:
            if isinstance(row, OsqueueError):
                failures.append((name, row))
            yield _row_or_error(name, row)

    output.rows(rows(), columns, none="no queues at this address")
    for name, error in failures:
        worst = max(worst, exit_code(error))
        output.error(error.code, f"queue {name}: {error.message}", queue=name)
    if worst:
        raise click.exceptions.Exit(worst)


@queue.command("ls", cls=StoreCommand)
@store_arguments(queue=False)
@click.option("--names", is_flag=True, help="Only the names: reads no queue.")
@click.pass_obj
def ls(output: Output, address: str, names: bool, timeout: float) -> None:
    """List the queues at an address with their numbers."""
    found: Iterable[str]
    why = ""
    numbers: Iterator[tuple[str, dict[str, Any] | OsqueueError]]
    if is_remote(address):
        from ..client.transports.address import open_transport

        rows = queues_of(open_transport(address), timeout)
        found, numbers = [row["queue"] for row in rows], map(told, rows)
    else:
        store = open_at(address)
        found = queues_at(store)
        numbers = (numbers_of(Queue(store, name, timeout=timeout)) for name in found)
        why = no_folder(store)
    if not found:
        output.note(f"no queues at this address{why}")
    elif names:
        output.rows(({"queue": name} for name in found), ("queue",))
    else:
        each_queue(output, numbers, LS_COLUMNS)


def numbers_of(queue: Queue[Any]) -> tuple[str, dict[str, Any] | OsqueueError]:
    """A queue's statistics, or why there are none."""
    try:
        return queue.name, queue.stats()
    except OsqueueError as error:
        return queue.name, error


def told(row: dict[str, Any]) -> tuple[str, dict[str, Any] | OsqueueError]:
    """What an API says of a queue."""
    if "error" not in row:
        return row["queue"], row

    from ..contract.error_codes import error_of
    from ..contract.schemas import Fault

    return row["queue"], error_of(msgspec.convert(row["error"], Fault))


@queue.command("stats", cls=StoreCommand)
@store_arguments()
@click.pass_obj
def stats(output: Output, address: str, queue: str, timeout: float) -> None:
    """Jobs by state, the oldest waiting job's age, how full the heads are, counters and settings."""
    with open_queue(address, queue, timeout) as q:
        found = existing_queue(q).stats()
    if not output.tables:
        output.document(found)
        return
    output.record({name: value for name, value in found.items() if not isinstance(value, dict)})
    shares = {name: f"{share:.0%}" for name, share in found["budgets"].items()}
    for part, fields in (
        ("counters", found["counters"]),
        ("settings", found["settings"]),
        ("budgets", shares),
    ):
        output.record(fields, title=part)


@queue.command("flow", cls=StoreCommand)
@store_arguments()
@click.pass_obj
def flow(output: Output, address: str, queue: str, timeout: float) -> None:
    """All limits of the queue, and what is used of them; over shards, what each has."""
    with open_queue(address, queue, timeout) as q:
        found = msgspec.to_builtins(existing_queue(q).flow())
    if not output.tables:
        output.document(found)
        return
    kinds, shards = found.pop("kinds"), found.pop("shards")
    groups, rate, limiter = found.pop("groups"), found.pop("rate"), found.pop("limiter")
    consumers = found.pop("consumers")
    output.record(found)
    output.record(groups, title="groups")
    if rate is not None:
        output.record(rate, title="rate")
    if limiter is not None:
        output.record(limiter, title="limiter")
    for kind, use in kinds.items():
        own = use.pop("rate") or {}
        output.record({**use, **own}, title=f"kind {kind}" if kind else "jobs without a kind")
    for name, use in consumers.items():
        output.record(use, title=f"consumer {name}")
    for number, share in enumerate(shards):
        output.record(share, title=f"shard {number}")


@queue.command("jobs", cls=StoreCommand)
@store_arguments()
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--kind", "kinds", multiple=True, help="Only this kind; may be repeated.")
@click.option("--id", help="Only the job under this id of its client's.")
@click.option("--group", help="Only jobs of this group.")
@click.option("--batch", help="Only jobs of the batch with this id.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Only jobs with this header; without a value, with any. May be repeated.",
)
@click.option("--worker", help="Only jobs held by a worker whose name contains this.")
@click.option("--older-than", type=duration, help="Only jobs enqueued at least so long ago.")
@click.option("--limit", type=int, default=100, show_default=True, help="Most jobs on the page.")
@click.option("--cursor", help="Where the last page ended.")
@click.pass_obj
def jobs(
    output: Output,
    /,
    address: str,
    queue: str,
    state: str | None,
    kinds: Sequence[str],
    headers: Sequence[str],
    limit: int,
    cursor: str | None,
    timeout: float,
    **which: Any,
) -> None:
    """List jobs, page by page: running ones first, then waiting ones in order.

    As JSON: one document, {"jobs": [...], "cursor": ...}; the cursor is null on the last page.
    """
    with open_queue(address, queue, timeout) as q:
        existing_queue(q)
        found: list[Job] = []
        following: str | None = None
        while True:
            page, following = q.jobs(
                state,
                limit - len(found),
                following or cursor,
                kinds=kinds or None,
                headers=headers_of(headers),
                **which,
            )
            found += page
            if len(found) >= limit or following is None:
                break
    if not output.tables:
        output.document({"jobs": found, "cursor": following})
        return
    none = OVER_NOTE if state in (None, COMPLETED, CANCELLED) else "no jobs found"
    output.rows((msgspec.structs.asdict(each) for each in found), JOB_COLUMNS, none=none)
    if following:
        output.note(f"more: --cursor {following}")


queue.add_command(consumers)
queue.add_command(dump)
queue.add_command(cancel)
queue.add_command(rm)
queue.add_command(workers)


@queue.command("pause", cls=StoreCommand)
@store_arguments()
@click.option("--kind", help="Only jobs of this kind.")
@click.option("--group", help="Only jobs of this group.")
@click.option("--for", "for_", type=duration, help="Go on by itself after so long. Such as 90, 10m, 2h.")
@click.option("--until", type=moment, help="Go on by itself then. Such as 2030-01-31T08:00:00Z.")
@click.pass_obj
def pause(
    output: Output,
    address: str,
    queue: str,
    kind: str | None,
    group: str | None,
    for_: float | None,
    until: datetime | float | None,
    timeout: float,
) -> None:
    """Stop handing out jobs, or those of one kind or group. Running ones finish, new ones are accepted.

    Without --for and --until it lasts until 'osqueue queue resume'.
    """
    with open_queue(address, queue, timeout) as q:
        existing_queue(q).pause(kind, for_, until, group)
        told = q.stats()
    row = told if kind is None else told["settings"]["kinds"].get(kind, {})
    ends = {} if group is not None else {"paused_until": row.get("paused_until")}
    output.record({"queue": queue, **_whose(kind, group), "paused": True, **ends})


@queue.command("resume", cls=StoreCommand)
@store_arguments()
@click.option("--kind", help="Only jobs of this kind.")
@click.option("--group", help="Only jobs of this group, also of one that was stopped by a dead letter.")
@click.pass_obj
def resume(
    output: Output, address: str, queue: str, kind: str | None, group: str | None, timeout: float
) -> None:
    """Hand out jobs again, or those of one kind or group."""
    with open_queue(address, queue, timeout) as q:
        existing_queue(q).resume(kind, group)
    output.record({"queue": queue, **_whose(kind, group), "paused": False})


def _whose(kind: str | None, group: str | None) -> dict[str, str]:
    """Whose jobs are meant, where not all are."""
    return {name: value for name, value in (("kind", kind), ("group", group)) if value is not None}


@queue.command("configure", cls=StoreCommand)
@store_arguments()
@click.option("--create", is_flag=True, help="Also when no queue of this name was used yet.")
@click.option("--kind", help="Change what holds for jobs of this kind, not for the queue.")
@click.option("--drop-kind", help="From now on jobs of this kind are as the queue says.")
@options_of(SETTINGS[name] for name in SETTINGS if name not in ("kinds", "groups", "consumers"))
@click.option("--no-rate", is_flag=True, help="As many may start as come.")
@click.option("--no-group-rate", is_flag=True, help="As many of each group may start as come.")
@click.option("--no-limiter", is_flag=True, help="No pacer's slots are used up.")
@click.pass_obj
def configure(
    output: Output,
    /,
    address: str,
    queue: str,
    create: bool,
    kind: str | None,
    drop_kind: str | None,
    no_rate: bool,
    no_group_rate: bool,
    no_limiter: bool,
    timeout: float,
    **settings: Any,
) -> None:
    """Change settings; what is not named stays as it is."""
    changes = {name: value for name, value in settings.items() if value is not None}
    for name, lifted in (("rate", no_rate), ("group_rate", no_group_rate), ("limiter", no_limiter)):
        if lifted:
            option = name.replace("_", "-")
            if name in changes:
                raise click.UsageError(f"--no-{option}: --{option} is given, too.")
            changes[name] = None
    kinds: dict[str, Any] = {}
    if kind is not None:
        if not changes:
            raise click.UsageError(
                f"--kind {kind}: nothing to change: name a setting, such as --max-attempts 5."
            )
        if others := sorted(changes.keys() - KIND_SETTINGS.keys()):
            raise click.UsageError(
                f"--kind {kind}: {', '.join(others)} holds for the whole queue. A kind has:"
                f" {', '.join(sorted(KIND_SETTINGS))}."
            )
        kinds[kind], changes = changes, {}
    if drop_kind is not None:
        kinds[drop_kind] = None
    if kinds:
        changes["kinds"] = kinds
    if not changes:
        raise click.UsageError("nothing to change: name a setting. 'osqueue queue stats' shows them.")
    with open_queue(address, queue, timeout) as q:
        if not create:
            existing_queue(q)
        q.configure(**changes)
    output.record({"queue": queue, **changes})
