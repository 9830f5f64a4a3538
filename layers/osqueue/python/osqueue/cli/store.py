"""``osqueue store check``: whether a store keeps its promises, and what it takes in time and money."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from msgspec.structs import replace

from ..clock import MACHINE, Machine
from ..commit.driver import BlockingDriver
from ..commit.effects import Effect
from ..errors import Timeout
from ..maintenance.store_measures import latencies, polling
from ..maintenance.store_probes import OK, TROUBLE, WARNING, Finding, StoreProbes, measure, of_settings, worst
from ..maintenance.store_races import races
from ..queue.blocking import Queue
from ..stores.address import archive_of
from ..stores.base import Store
from .exits import REFUSED
from .options import StoreCommand, complete_address, duration, json_option, open_at
from .output import Output

SIGNS = {OK: "ok", WARNING: "warning", TROUBLE: "TROUBLE"}

EPILOG = """\b
Examples:
  osqueue store check s3://bucket/prefix
  osqueue store check file:///var/lib/jobs --json
"""


class TimedDriver(BlockingDriver):
    """Runs flows until its time is up."""

    store: Store

    def __init__(self, store: Store, machine: Machine, seconds: float) -> None:
        super().__init__(store, machine)
        self.until = machine.monotonic() + seconds

    def perform(self, effect: Effect, deadline: float = math.inf) -> Any:
        """Carry out one effect. Raises Timeout when the time is up."""
        if self.machine.monotonic() > self.until:
            raise Timeout("it was not done in time. Everything can be repeated: give it more with --timeout.")
        return super().perform(effect, min(deadline, self.until))

    def queue(self, name: str) -> Queue[Any]:
        """A queue whose flows end when this one's time is up."""
        made = Queue[Any](self.store, name, machine=self.machine)
        made._driver = self
        return made

    def ahead_ms(self) -> int:
        """By how much this machine is ahead of the store's clock."""
        now = self.store.clock_ms()
        return self.run(measure(self.machine)) if now is None else self.machine.now_ms() - now


class Diagnosis:
    """What was found of a store or a queue, printed as it comes."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.found: list[Finding] = []

    def tell(self, findings: Sequence[Finding]) -> None:
        """Print them."""
        self.found += findings
        for each in findings:
            _show(self.output, each)

    def conclude(self) -> None:
        """Count them; where any is in trouble, the command ends with REFUSED."""
        counts = {name: sum(each.level == name for each in self.found) for name in SIGNS}
        self.output.note(", ".join(f"{count} {name}" for name, count in counts.items()))
        if worst(self.found) == TROUBLE:
            raise click.exceptions.Exit(REFUSED)


def _show(output: Output, finding: Finding) -> None:
    if not output.tables:
        output.document(finding)
        return
    place = "" if finding.queue is None else finding.queue
    if finding.shard is not None:
        place = f"{place}/{finding.shard}"
    output.text(f"{SIGNS[finding.level]:<8} {place + ' ' if place else ''}{finding.check}: {finding.found}")
    if finding.remedy:
        output.text(f"         → {finding.remedy}")


# ── What is asked of a store, for the doctor as well ─────────────────────────
def promises(runner: TimedDriver, probe: StoreProbes, address: str) -> Iterator[Sequence[Finding]]:
    """What the store promises, and one for its archive; its clock, and what it says of its settings."""
    yield runner.run(probe.run())
    yield [probe.clock()]
    yield [of_settings(each) for each in runner.store.remarks()]
    with _archive(runner, address) as apart:
        if apart is not None:  # by its clock nobody goes, and its remarks are among those above
            yield _of_archive(apart.run(StoreProbes(apart.machine, None).run()))


def everything(runner: TimedDriver, probe: StoreProbes, address: str) -> Iterator[Sequence[Finding]]:
    """The same, races, and what requests take. A store that breaks a promise is not measured."""
    found: list[Finding] = []
    for findings in promises(runner, probe, address):
        found += findings
        yield findings
    if worst(found) == TROUBLE:
        return
    yield races(address, runner.store, runner.machine)
    yield runner.run(latencies(runner.machine))
    yield polling(address)
    with _archive(runner, address) as apart:
        if apart is not None:
            yield _of_archive(races(archive_of(address) or "", apart.store, apart.machine))
            yield _of_archive(apart.run(latencies(apart.machine)))


@contextmanager
def _archive(runner: TimedDriver, address: str) -> Iterator[TimedDriver | None]:
    """A driver for the store of an address's archive, with what time is left; None: it has none of its own."""
    archive = archive_of(address)
    if archive is None:
        yield None
        return
    store = open_at(archive)
    try:
        yield TimedDriver(store, runner.machine, runner.until - runner.machine.monotonic())
    finally:
        store.close()


def _of_archive(findings: Sequence[Finding]) -> list[Finding]:
    return [replace(each, check=f"archive: {each.check}") for each in findings]


# ── The command ──────────────────────────────────────────────────────────────
@click.group("store", epilog=EPILOG)
def store() -> None:
    """Check a store by itself: what it promises, how quick it is, what it costs."""


@store.command("check", cls=StoreCommand)
@click.argument("address", shell_complete=complete_address)
@click.option("--timeout", type=duration, default=600, help="Stop after this long.  [default: 10m]")
@json_option
@click.pass_obj
def check(output: Output, address: str, timeout: float) -> None:
    """Try a store on objects of its own under doctor/, which are removed: nothing else is read or written.

    Preconditions, versions, listings, races of threads and of processes, the clock, settings, the time that each kind
    of request takes, and what it costs to look for jobs. Ends with code 1 if anything is in trouble.
    """
    runner = TimedDriver(open_at(address), MACHINE, timeout)
    told = Diagnosis(output)
    for findings in everything(runner, StoreProbes(runner.machine, runner.store.clock_ms()), address):
        told.tell(findings)
    told.conclude()
