"""Whether the numbers that a head keeps about itself are true.

A reduction keeps every sum up to date by adding and subtracting; here each is counted anew from what the head
holds. A head that was written by this library always agrees with itself: one that does not was tampered with, or
shows a defect.
"""

from __future__ import annotations

from collections.abc import Iterator

from .event_log import event_weight
from .head_content import jobs_in_memory
from .state import ENDED, EXPIRED_DEAD, KEYSUM_MASK, Backlog, Span, State, keysum, keysums
from .weights import finished_weight, job_weight, lease_weight, session_weight


def spans_of(state: State) -> Iterator[Span]:
    """Every pointer to jobs in segments, as it stands in the head."""
    for lane in state.lanes:
        yield from lane.backlog.spans
    yield from state.delayed.spans
    yield from state.dead.spans


def live_keysum(state: State) -> int:
    """The conservation sum over the jobs that have not left the head for a table, modulo 2^64."""
    total = keysums(job for _, job in jobs_in_memory(state))
    total += sum(span.keysum for span in spans_of(state))
    total -= sum(keysum(key) for key in state.tombstones)  # their rows stand among the finished ones
    total += keysums(row.job for row in state.finished if row.mark in (ENDED, EXPIRED_DEAD))
    return total & KEYSUM_MASK


def imbalances(state: State) -> list[str]:
    """What the head says of itself and is not so; empty for a sound head."""
    wrong = [
        f"{name} is kept as {kept:,} and is {true:,}" for name, kept, true in _sums(state) if kept != true
    ]
    if any(key != lease.job.key for key, lease in state.leases.items()):
        wrong.append("a lease stands under another job's key")
    if (live_keysum(state) + state.counters.keysum_out) & KEYSUM_MASK != state.counters.keysum_in:
        wrong.append("the jobs that came in are not those that are there or have left (conservation sums)")
    keys = [job.key for _, job in jobs_in_memory(state)]
    if len(keys) != len(set(keys)):
        wrong.append("a job stands in two places")
    return wrong


def _sums(state: State) -> Iterator[tuple[str, int, int]]:
    """Name, the number as it is kept, the number as it is."""
    for lane in state.lanes:
        yield from _backlog(f"lane {lane.priority} {lane.kind!r}", lane.backlog)
    yield from _backlog("dead", state.dead)
    yield "leases_bytes", state.leases_bytes, sum(map(lease_weight, state.leases.values()))
    yield "delayed.jobs_bytes", state.delayed.jobs_bytes, sum(map(job_weight, state.delayed.jobs))
    yield "finished_bytes", state.finished_bytes, sum(map(finished_weight, state.finished))
    yield "log.rows_bytes", state.log.rows_bytes, sum(map(event_weight, state.log.rows))
    rows = sum(session_weight(env, row) for env, row in state.sessions.items())
    yield "sessions_bytes", state.sessions_bytes, rows


def _backlog(name: str, backlog: Backlog) -> Iterator[tuple[str, int, int]]:
    yield f"{name}: ready_bytes", backlog.ready_bytes, sum(map(job_weight, backlog.ready))
    yield f"{name}: tail_bytes", backlog.tail_bytes, sum(map(job_weight, backlog.tail))
