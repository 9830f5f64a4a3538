"""``osqueue cron …``: schedules, looked at and steered."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

import click
from msgspec.structs import asdict

from ..clock import MACHINE
from ..crontab import zone_of
from ..errors import NotFound
from ..model.explain import distance_text
from ..model.fields import moment
from ..model.job_options import OPTIONS
from ..model.schedule import JOB_OPTIONS, MISSED, OVERLAP, Schedule
from .options import StoreCommand, duration, existing_queue, json, open_queue, options_of, store_arguments
from .output import Output, is_terminal

COLUMNS = ("schedule", "when", "next_at", "living", "paused", "missed", "overlap")
NEXT_COLUMNS = ("schedule", "at", "local", "in")
NEXT_MAX = 10

EPILOG = """\b
Examples:
  osqueue cron add s3://bucket/prefix emails digest '{"to": "all"}' --cron '0 3 * * *' --tz Europe/Berlin
  osqueue cron add s3://bucket/prefix emails poll --every 15m --overlap skip --kind poll
  osqueue cron ls s3://bucket/prefix emails
  osqueue cron next s3://bucket/prefix emails digest
  osqueue cron run s3://bucket/prefix emails digest
  osqueue cron pause s3://bucket/prefix emails digest
"""


@click.group("cron", epilog=EPILOG)
def cron() -> None:
    """Schedules, by which jobs are made at their times: list, add, run, pause, remove."""


_name = click.argument("name")


def _fields(schedule: Schedule) -> dict[str, Any]:
    found = asdict(schedule)
    return {"schedule": found.pop("name"), "when": schedule.words, **found}


@cron.command("ls", cls=StoreCommand)
@store_arguments()
@click.pass_obj
def ls(output: Output, address: str, queue: str, timeout: float) -> None:
    """List the schedules of a queue."""
    with open_queue(address, queue, timeout) as q:
        found = existing_queue(q).schedules()
    output.rows(map(_fields, found), COLUMNS, none=f"queue {queue} has no schedules")


@cron.command("add", cls=StoreCommand)
@store_arguments()
@_name
@click.argument("payload", required=False)
@click.option("--cron", "line", help="Minute, hour, day of the month, month, day of the week: '0 3 * * *'.")
@click.option("--every", type=duration, help="Instead of a line: 15m, 2h, 1d.")
@click.option(
    "--tz", default="UTC", show_default=True, help="The time zone of the line, such as Europe/Berlin."
)
@click.option(
    "--missed",
    type=click.Choice(MISSED),
    default=MISSED[0],
    show_default=True,
    help="Of ticks while nobody used the queue: one job, one each, or none.",
)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAP),
    default=OVERLAP[0],
    show_default=True,
    help="While a job of it waits or runs: another one, none, or one when that has ended.",
)
@options_of(OPTIONS[name] for name in JOB_OPTIONS)
@click.pass_obj
def add(
    output: Output,
    /,
    address: str,
    queue: str,
    name: str,
    payload: str | None,
    line: str | None,
    every: float | None,
    tz: str,
    missed: Any,
    overlap: Any,
    timeout: float,
    **options: Any,
) -> None:
    """Add a schedule, or change the one of this name; prints it. PAYLOAD is JSON, null if left out."""
    given: Any = {each: value for each, value in options.items() if value is not None}
    with open_queue(address, queue, timeout) as q:
        made = q.schedule(
            name,
            line,
            json("null" if payload is None else payload),
            tz=tz,
            every=every,
            missed=missed,
            overlap=overlap,
            **given,
        )
    output.record(_fields(made))


@cron.command("rm", cls=StoreCommand)
@store_arguments()
@_name
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.pass_obj
def rm(output: Output, address: str, queue: str, name: str, yes: bool, timeout: float) -> None:
    """Remove a schedule. Its jobs stay."""
    with open_queue(address, queue, timeout) as q:
        there = _one(existing_queue(q).schedules(), name)
        if not yes:
            if not is_terminal(sys.stdin):
                raise click.UsageError(f"schedule {name} would be removed: add --yes to do it.")
            click.confirm(f"Remove schedule {name} ({there.words})?", abort=True, err=True)
        q.unschedule(name)
    output.record({"schedule": name, "removed": True})


@cron.command("run", cls=StoreCommand)
@store_arguments()
@_name
@click.pass_obj
def run(output: Output, address: str, queue: str, name: str, timeout: float) -> None:
    """Make a job of a schedule now, beside its ticks; prints its id."""
    with open_queue(address, queue, timeout) as q:
        done = existing_queue(q).run_schedule(name)
    output.record({"schedule": name, "job_id": done.job_id, "state": done.state})


@cron.command("pause", cls=StoreCommand)
@store_arguments()
@_name
@click.pass_obj
def pause(output: Output, address: str, queue: str, name: str, timeout: float) -> None:
    """Let a schedule rest. Ticks of its pause are not made up for."""
    with open_queue(address, queue, timeout) as q:
        output.record(_fields(existing_queue(q).pause_schedule(name)))


@cron.command("resume", cls=StoreCommand)
@store_arguments()
@_name
@click.pass_obj
def resume(output: Output, address: str, queue: str, name: str, timeout: float) -> None:
    """Let a schedule go on, from its next tick."""
    with open_queue(address, queue, timeout) as q:
        output.record(_fields(existing_queue(q).resume_schedule(name)))


@cron.command("next", cls=StoreCommand)
@store_arguments()
@click.argument("name", required=False)
@click.pass_obj
def coming(output: Output, address: str, queue: str, name: str | None, timeout: float) -> None:
    """The coming ten ticks of a schedule, or of all that are not paused."""
    with open_queue(address, queue, timeout) as q:
        found = existing_queue(q).schedules()
    now = moment(MACHINE.now_ms())
    if name is None:
        found = [each for each in found if not each.paused]
    else:
        found = [_one(found, name)]
        if found[0].paused:
            output.note(f"schedule {name} is paused: none of these makes a job before it is resumed")
        elif output.tables:
            output.note(found[0].words)
    ticks = merge(*([(at, each.name, each) for at in each.coming(NEXT_MAX, now)] for each in found))
    rows = [_tick(at, each, now) for at, _, each in islice(ticks, NEXT_MAX)]
    output.rows(_each(rows), NEXT_COLUMNS, none=f"queue {queue} has no schedules that tick")


def _each(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from rows


def _tick(at: datetime, schedule: Schedule, now: datetime) -> dict[str, Any]:
    local = at.astimezone(zone_of(schedule.tz))
    return {
        "schedule": schedule.name,
        "at": at,
        "local": f"{local:%a %Y-%m-%d %H:%M} {schedule.tz}",
        "in": distance_text(at, now),
    }


def _one(found: list[Schedule], name: str) -> Schedule:
    for each in found:
        if each.name == name:
            return each
    raise NotFound(f"schedule {name}: there is none of this name. 'osqueue cron ls' lists those there are.")
