"""``osqueue doctor``: what is wrong with a store or a queue, and putting it right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from .. import limits
from ..clock import MACHINE
from ..core.encoding import decode_head
from ..errors import Damaged, NewerFormat, NotFound, OsqueueError, Rejected, Timeout
from ..maintenance import doctor as checks
from ..maintenance import orphan_ids, strays
from ..maintenance.head_restore import Restorer, RestoreReport, hourly_backups, live_count
from ..maintenance.store_probes import TROUBLE, WARNING, Finding, StoreProbes
from ..model import validation
from ..model.fields import moment
from ..objects.layout import registered
from ..queue.blocking import Queue
from ..stores.base import Found, Get
from .options import (
    StoreCommand,
    complete_address,
    complete_queue,
    duration,
    is_known,
    json_option,
    no_such_queue,
    open_at,
)
from .output import Output
from .store import Diagnosis, TimedDriver, everything, promises

BACKUP_COLUMNS = ("queue", "shard", "backup", "at", "jobs", "commits", "message")
NEWEST = "newest"
SHOWN = (
    "queue",
    "shard",
    "backup",
    "backup_at",
    "kept",
)  # of a restore, to a person; sentences tell the rest
EPILOG = """\b
Examples:
  osqueue doctor s3://bucket/prefix                     (the store and every queue)
  osqueue doctor s3://bucket/prefix emails --deep
  osqueue doctor s3://bucket/prefix emails --backups
  osqueue doctor s3://bucket/prefix emails --restore
"""


@click.command("doctor", short_help="Find what is wrong, and put it right.", cls=StoreCommand, epilog=EPILOG)
@click.argument("address", shell_complete=complete_address)
@click.argument("queue", required=False, shell_complete=complete_queue)
@click.option("--deep", is_flag=True, help="Read every object to its end, not only whether it is there.")
@click.option("--backups", is_flag=True, help="List the hourly copies of the heads.")
@click.option(
    "--restore",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[NAME]",
    help="Put back a missing or damaged head from its newest backup, or from this one.",
)
@click.option("--shard", type=click.IntRange(0, limits.SHARDS_MAX - 1), help="Repair only this shard.")
@click.option("--fix-clock", is_flag=True, help="Set heads that are far ahead back to the store's clock.")
@click.option("--fix-ids", is_flag=True, help="Write unreadable entries of ids again.")
@click.option("--yes", is_flag=True, help="With --restore: replace even a head that can be read.")
@click.option("--timeout", type=duration, default=600, help="Stop after this long.  [default: 10m]")
@json_option
@click.pass_obj
def doctor(
    output: Output,
    /,
    address: str,
    queue: str | None,
    timeout: float,
    **how: Any,
) -> None:
    """Check the store, the clocks and every queue (or one), and say what to do; repair a head.

    Ends with code 1 if anything is in trouble. The checks change nothing but probe objects of their own.
    """
    repairs = [name for name in ("backups", "restore", "fix_clock", "fix_ids") if how[name]]
    if len(repairs) > 1:
        raise click.UsageError("one thing at a time: --backups, --restore, --fix-clock or --fix-ids.")
    if repairs and queue is None:
        raise click.UsageError("which queue? Name it after the address.")
    if how["yes"] and not how["restore"]:
        raise click.UsageError("--yes goes with --restore.")
    if how["shard"] is not None and not repairs:
        raise click.UsageError("--shard goes with --backups, --restore or --fix-clock.")
    if how["shard"] is not None and how["fix_ids"]:
        raise click.UsageError("--fix-ids is for all shards: an id belongs to none.")
    runner = TimedDriver(open_at(address), MACHINE, timeout)
    if queue is None:
        _examine(output, runner, address, None, how["deep"])
        return
    validation.queue_name(queue)
    if how["backups"]:
        found = _backups(runner, queue, _shards(runner, queue, how["shard"]))
        output.rows(found, BACKUP_COLUMNS, none="no backups yet: a reap makes one an hour")
    elif how["restore"]:
        _restore(output, runner, queue, how["restore"], how["shard"], how["yes"])
    elif how["fix_clock"]:
        _fix_clock(output, runner, queue, how["shard"])
    elif how["fix_ids"]:
        fixed = runner.queue(queue)._run(orphan_ids.fix(queue, _shards(runner, queue, None)))
        output.record({"queue": queue, **msgspec.structs.asdict(fixed)})
    else:
        _examine(output, runner, address, queue, how["deep"])


# ── Looking ──────────────────────────────────────────────────────────────────
def _examine(output: Output, runner: TimedDriver, address: str, queue: str | None, deep: bool) -> None:
    told = Diagnosis(output)
    tell = told.tell
    probe = StoreProbes(runner.machine, runner.store.clock_ms())
    for findings in (
        promises(runner, probe, address) if queue is not None else everything(runner, probe, address)
    ):
        tell(findings)
    now_ms = runner.machine.now_ms() - (probe.apart_ms or 0)
    try:
        if queue is not None:
            _shards(runner, queue, None)
        tell(runner.run(strays.examine_register()))
        names = [queue] if queue is not None else runner.run(registered())
        if not names:
            tell(
                [
                    Finding(
                        WARNING, "queues", "there is none here yet", "If there should be, check the address."
                    )
                ]
            )
        for name in names:
            tell(runner.run(checks.examine(name, now_ms, deep)))
    except (NotFound, Timeout):
        raise
    except OsqueueError as error:
        tell([Finding(TROUBLE, "queues", error.message, "See the checks of the store.")])
    told.conclude()


def _shards(runner: TimedDriver, queue: str, shard: int | None) -> list[int]:
    """The shards to look at. Raises NotFound when nothing was ever kept under that name."""
    if shard is not None:
        return [shard]
    looks = runner.run(checks.look_at_all(queue))
    q = Queue[Any](runner.store, queue)
    nothing = all(look.state is None and look.error is None for look in looks)
    if nothing and not is_known(q) and not runner.run(hourly_backups(queue, 0)):
        no_such_queue(q)
    return [look.shard for look in looks]


def _backups(runner: TimedDriver, queue: str, shards: list[int]) -> Iterator[dict[str, Any]]:
    for shard in shards:
        for name in runner.run(hourly_backups(queue, shard)):
            row: dict[str, Any] = {"queue": queue, "shard": shard, "backup": name.rpartition("/")[2]}
            reply = runner.store.perform(Get(name))
            if isinstance(reply, Found):
                try:
                    state = decode_head(reply.body)
                    row |= {"at": moment(state.now_ms), "jobs": live_count(state), "commits": state.seq}
                except (Damaged, NewerFormat) as error:
                    row["message"] = error.message
            yield row


# ── Repairing ────────────────────────────────────────────────────────────────
def _restore(
    output: Output, runner: TimedDriver, queue: str, name: str, shard: int | None, force: bool
) -> None:
    wished = "" if name == NEWEST else name
    looks = runner.run(checks.look_at_all(queue))
    shards = [shard] if shard is not None else [look.shard for look in looks if look.state is None]
    if not shards:
        shards = [look.shard for look in looks]
        if force and len(shards) > 1:
            raise Rejected(
                "shard: every head can be read. Say which one to replace: --shard N.", field="shard"
            )
    for each in shards:
        restorer = Restorer(queue, each, runner.machine, runner.machine.now_ms() - runner.ahead_ms())
        done = runner.run(restorer.run(wished, force=force))
        row = _record(done)
        output.record({name: row[name] for name in SHOWN} if output.tables else row)
        for line in account(done):
            output.note(line)


def account(done: RestoreReport) -> list[str]:
    """What a restore did and could not do, in sentences."""
    loss = done.loss
    gone = f"in {loss.segments_gone:,} objects that are gone"
    lines = (
        (
            "jobs that wait or are dead letters; any may have run since the backup, and may run again",
            done.live,
        ),
        ("jobs of the backup that have finished since and do not run again", loss.finished),
        ("jobs of the backup that have failed for good since: dead letters", loss.buried),
        ("jobs that were running: they wait again, and perhaps still running at this moment", loss.stalled),
        ("jobs that were running in their last attempt: dead letters, for you to redrive or not", loss.spent),
        ("jobs that were running with their cancellation requested: cancelled", loss.cancelled),
        ("delayed jobs whose start deadline has passed: cancelled", loss.late),
        ("jobs finished since the backup that only tables tell of: the archive gets them", done.recovered),
        (f"jobs {gone}: taken since the backup, or lost", loss.jobs_gone),
        ("cancelled jobs whose deletion vector is lost; so many of them may run, at most", loss.unmarked),
        ("jobs dropped because their payload is gone: finished since, or lost", loss.payloads_gone),
        ("jobs purged since the backup: they stay so", loss.erased),
        ("tables of finished jobs that are gone: only the archive has their jobs", loss.tables_gone),
        ("schedules whose payload is gone: they make no more jobs", loss.schedules_gone),
        ("groups that waited for a job that has ended since, or is lost: they go on", loss.holds_gone),
        ("results that are gone: those jobs are known as expired", done.results_gone),
        ("segments younger than the backup, of whose jobs nothing is known", done.strays),
        (
            "jobs enqueued since the backup; those that have not finished are lost",
            done.enqueued_since or 0,
        ),
    )
    said = [f"{what}: {count:,}" for what, count in lines if count]
    if done.enqueued_since is None:
        said.append("jobs enqueued since the backup that have not finished are lost; nothing tells how many")
    return said


def _record(done: RestoreReport) -> dict[str, Any]:
    row = msgspec.structs.asdict(done)
    loss = msgspec.structs.asdict(row.pop("loss"))
    row["backup_at"] = moment(row.pop("backup_ms"))
    return {**row, **loss}


def _fix_clock(output: Output, runner: TimedDriver, queue: str, shard: int | None) -> None:
    ahead = runner.ahead_ms()
    for each in _shards(runner, queue, shard):
        moved = runner.run(
            checks.fix_clock(queue, each, runner.machine, lambda: runner.machine.now_ms() - ahead)
        )
        output.record({"queue": queue, "shard": each, "set_back_seconds": (moved or 0) / 1000})
