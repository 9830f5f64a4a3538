"""``osqueue bench``: how fast a queue is at an address, as seen from here. Bounded in jobs and in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
from msgspec import Struct

from ..clock import MACHINE
from ..errors import OsqueueError
from ..objects.layout import REGISTER, root_of, unavailable
from ..queue.blocking import Queue
from ..stores.base import Delete, Deleted, List, Listed
from .options import StoreCommand, duration, open_at, store_arguments
from .output import Output
from .progress import progress

JOBS_MAX = 100_000
SECONDS_MAX = 3_600.0
EMPTY_CLAIMS = 20
LEASE_SECONDS = 3_600
COLUMNS = ("what", "calls", "per_second", "p50_ms", "p95_ms", "gets", "puts", "lists")

EPILOG = """\b
Examples:
  osqueue bench file:///var/lib/jobs
  osqueue bench s3://bucket/prefix --jobs 500 --seconds 30
"""


class _Phase(Struct):
    """One kind of call, repeated."""

    what: str
    call: Callable[[], int]  # answers how many jobs it was about; 0 ends the phase
    calls: int


@click.command(
    "bench", short_help="Measure how fast a queue is at an address.", cls=StoreCommand, epilog=EPILOG
)
@store_arguments(queue=False)
@click.option(
    "--jobs", type=click.IntRange(1, JOBS_MAX), default=200, show_default=True, help="Jobs of each kind."
)
@click.option(
    "--group", type=click.IntRange(2, 1000), default=100, show_default=True, help="Jobs in a grouped call."
)
@click.option("--seconds", type=duration, default=20, help="Stop after this long.  [default: 20s]")
@click.option(
    "--payload-bytes", type=click.IntRange(0, 1_000_000), default=100, show_default=True, help="Of each job."
)
@click.pass_obj
def bench(
    output: Output, address: str, jobs: int, group: int, seconds: float, payload_bytes: int, timeout: float
) -> None:
    """Measure enqueue, claim and complete from here: jobs per second, milliseconds, store requests per call.

    Works on a queue of its own at ADDRESS and removes it afterwards. One caller, one call at a time.
    """
    if not 0 < seconds <= SECONDS_MAX:
        raise click.UsageError(f"--seconds: more than 0 and at most {SECONDS_MAX:,.0f}.")
    name = f"osqueue-bench-{MACHINE.bits(64):016x}"
    with Queue[Any](open_at(address, lasting=False), name, timeout=timeout) as q:
        try:
            phases = _phases(q, jobs, group, "x" * payload_bytes)
            with progress("measuring", len(phases)) as advance:
                rows = list(_measure(q, phases, seconds, advance))
        finally:
            try:
                _remove(q)
            except OsqueueError as error:
                output.note(f"the bench's queue {name} could not be removed: {error.message}")
    output.rows(rows, COLUMNS, title=f"{jobs:,} jobs of {payload_bytes:,} bytes, one caller")


def _phases(q: Queue[Any], jobs: int, group: int, payload: str) -> list[_Phase]:
    held: list[Any] = []

    def enqueue() -> int:
        q.enqueue(payload)
        return 1

    def enqueue_group() -> int:
        return len(q.enqueue_many([{"payload": payload}] * group))

    def claim(limit: int) -> int:
        leases = q.claim(limit, lease=LEASE_SECONDS)
        held.extend(leases)
        return len(leases)

    def complete(most: int) -> int:
        now, held[:] = held[:most], held[most:]
        return len(q.complete_many(now)) if now else 0

    def claim_nothing() -> int:
        q.claim(kinds=["osqueue-bench-nothing"])
        return 1

    groups = max(1, jobs // group)
    return [
        _Phase("enqueue", enqueue, jobs),
        _Phase("claim", lambda: claim(1), jobs),
        _Phase("complete", lambda: complete(1), jobs),
        _Phase("empty claim", claim_nothing, EMPTY_CLAIMS),
        _Phase(f"enqueue, {group} a call", enqueue_group, groups),
        _Phase(f"claim, {group} a call", lambda: claim(group), groups),
        _Phase(f"complete, {group} a call", lambda: complete(group), groups),
    ]


def _measure(
    q: Queue[Any], phases: list[_Phase], seconds: float, advance: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    slice_seconds = seconds / len(phases)
    q.jobs(limit=1)  # connections and imports are not what is measured
    for phase in phases:
        before = q.requests
        begun = now = MACHINE.monotonic()
        times: list[float] = []
        jobs = 0
        while len(times) < phase.calls and now - begun < slice_seconds:
            asked = now
            done = phase.call()
            now = MACHINE.monotonic()
            if not done:
                break
            jobs += done
            times.append(now - asked)
        after = q.requests
        advance(1)
        if times:
            yield _row(phase.what, times, jobs, {kind: after[kind] - before[kind] for kind in after})


def _row(what: str, times: list[float], jobs: int, requests: dict[str, int]) -> dict[str, Any]:
    calls = len(times)
    ranked = sorted(times)
    return {
        "what": what,
        "calls": calls,
        "jobs": jobs,
        "seconds": round(sum(times), 4),
        "per_second": round(jobs / max(sum(times), 1e-9), 1),
        "p50_ms": round(ranked[calls // 2] * 1000, 2),
        "p95_ms": round(ranked[min(calls - 1, calls * 95 // 100)] * 1000, 2),
        "gets": round(requests["get"] / calls, 3),
        "puts": round(requests["put"] / calls, 3),
        "lists": round(requests["list"] / calls, 3),
    }


def _remove(q: Queue[Any]) -> None:
    """Delete everything the bench's queue left in the store. Raises what the store refuses with."""
    for prefix in (root_of(q.name, 0), f"archive/queue={q.name}/"):
        more, after = True, ""
        while more:
            listed = q.store.perform(List(prefix, after))
            if not isinstance(listed, Listed):
                raise unavailable(listed, "the list of its objects")
            if listed.keys:
                _delete(q, listed.keys)
                after = listed.keys[-1]
            more = listed.more
    _delete(q, (REGISTER + q.name,))


def _delete(q: Queue[Any], keys: tuple[str, ...]) -> None:
    reply = q.store.perform(Delete(keys))
    if not isinstance(reply, Deleted):
        raise unavailable(reply, "leave to remove its objects")
