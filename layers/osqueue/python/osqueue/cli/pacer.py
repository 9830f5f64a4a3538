"""``osqueue pacer …``: interval queues, made, looked at and steered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from ..clock import MACHINE
from ..commit.driver import BlockingDriver
from ..errors import NotFound
from ..model.pacer import PacerStatus
from ..operations.pacer_access import IF_EXISTS, IfExists, pacers
from ..pacer import Pacer
from ..stores.address import is_remote
from .options import StoreCommand, duration, json_option, no_folder, open_at, store_arguments, timeout_option
from .output import Output, is_terminal

F = TypeVar("F", bound=Callable[..., Any])
COLUMNS = ("pacer", "interval", "burst", "next_in", "ahead", "number", "paused_at")

EPILOG = """\b
Examples:
  osqueue pacer create s3://bucket/prefix stripe --interval 250ms
  osqueue pacer show s3://bucket/prefix stripe
  osqueue pacer pause s3://bucket/prefix stripe
  osqueue pacer reset s3://bucket/prefix stripe --interval 1s
"""


@click.group("pacer", epilog=EPILOG)
def pacer() -> None:
    """Interval queues: create, look at, pause, resume, reset, remove."""


def _arguments(function: F) -> F:
    """ADDRESS NAME, and the options of every command."""
    function = timeout_option(json_option(function))
    function = click.argument("name")(function)
    return click.argument("address")(function)


def _open(address: str, name: str, timeout: float) -> Pacer:
    if is_remote(address):
        return Pacer.connect(address, name, timeout=timeout)
    return Pacer(open_at(address), name, timeout=timeout)


def _pacers_of_api(address: str, timeout: float) -> list[PacerStatus]:
    from ..client.pacing import PacerLister  # here: most commands need no API
    from ..client.transports.address import open_transport

    return BlockingDriver(open_transport(address), MACHINE).run(PacerLister(MACHINE, timeout).pacers())


def _fields(status: PacerStatus) -> dict[str, Any]:
    fields = {each: getattr(status, each) for each in COLUMNS[1:]}
    return {"pacer": status.name, **fields}


_interval = click.option("--interval", type=duration, help="Between two slots: 250ms, 1.5s, 5m.")
_burst = click.option("--burst", type=int, help="Slots at once after a rest.")


@pacer.command("create", cls=StoreCommand)
@_arguments
@click.option("--interval", type=duration, required=True, help="Between two slots: 250ms, 1.5s, 5m.")
@click.option("--burst", type=int, default=1, show_default=True, help="Slots at once after a rest.")
@click.option(
    "--if-exists",
    type=click.Choice(IF_EXISTS),
    default="keep",
    show_default=True,
    help="What to do with one of this name.",
)
@click.pass_obj
def create(
    output: Output,
    address: str,
    name: str,
    interval: float,
    burst: int,
    if_exists: IfExists,
    timeout: float,
) -> None:
    """Make a pacer; prints the settings that hold."""
    with _open(address, name, timeout) as opened:
        output.record(_fields(opened.create(interval, burst, if_exists)))


@pacer.command("show", cls=StoreCommand)
@_arguments
@click.pass_obj
def show(output: Output, address: str, name: str, timeout: float) -> None:
    """Its settings, when the next slot is, and how many are taken until then."""
    with _open(address, name, timeout) as opened:
        status = opened.status()
    if not output.tables:
        output.document(_fields(status))
        return
    output.record(_fields(status))
    paused = f"; paused since {status.paused_at:%Y-%m-%d %H:%M:%SZ}" if status.paused_at else ""
    output.text(f"next slot in {status.next_in:,.1f} s; {status.ahead:,} reserved until then{paused}")


@pacer.command("ls", cls=StoreCommand)
@store_arguments(queue=False)
@click.pass_obj
def ls(output: Output, address: str, timeout: float) -> None:
    """List the pacers at an address."""
    none = "no pacers at this address"
    if is_remote(address):
        output.rows(map(_fields, _pacers_of_api(address, timeout)), COLUMNS, none=none)
        return
    store = open_at(address)
    found = Pacer(store, "any")._run(pacers())

    def rows() -> Iterator[dict[str, Any]]:
        for name in found:
            try:
                yield _fields(Pacer(store, name, timeout=timeout).status())
            except NotFound:  # removed, and its name is remembered
                continue

    output.rows(rows(), COLUMNS, none=none + no_folder(store))


@pacer.command("pause", cls=StoreCommand)
@_arguments
@click.pass_obj
def pause(output: Output, address: str, name: str, timeout: float) -> None:
    """Let nobody act until it is resumed. Slots keep their order and distances."""
    with _open(address, name, timeout) as opened:
        output.record(_fields(opened.pause()))


@pacer.command("resume", cls=StoreCommand)
@_arguments
@click.pass_obj
def resume(output: Output, address: str, name: str, timeout: float) -> None:
    """Go on in two seconds; sooner on a folder and on Valkey if no caller reserves over an API."""
    with _open(address, name, timeout) as opened:
        output.record(_fields(opened.resume()))


@pacer.command("reset", cls=StoreCommand)
@_arguments
@_interval
@_burst
@click.pass_obj
def reset(
    output: Output, address: str, name: str, interval: float | None, burst: int | None, timeout: float
) -> None:
    """Begin again, with other settings where they are given: every reservation is void."""
    with _open(address, name, timeout) as opened:
        held = opened.status()
        output.record(
            _fields(
                opened.create(
                    held.interval if interval is None else interval,
                    held.burst if burst is None else burst,
                    "reset",
                )
            )
        )


@pacer.command("rm", cls=StoreCommand)
@_arguments
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.pass_obj
def rm(output: Output, address: str, name: str, yes: bool, timeout: float) -> None:
    """Remove a pacer: whoever waits for a slot gets an error."""
    with _open(address, name, timeout) as opened:
        status = opened.status()
        if not yes:
            if not is_terminal(sys.stdin):
                raise click.UsageError(f"pacer {name} would be removed: add --yes to do it.")
            click.confirm(f"Remove pacer {name}, with {status.ahead:,} slots reserved?", abort=True, err=True)
        opened.remove()
    output.record({"pacer": name, "removed": True})
