"""Claims that find nothing: what they answer is right, and asked again they change nothing.

After every commit somebody claims a job by that head, in thought. Where he is told that nothing waits, nothing does;
where he is told that all groups are closed, of which jobs wait, each of them is. So no job waits that nobody finds.
Such a claim may move on in a backlog, and what time brings comes with it: jobs that are due, late, or covered by a
rule. Where nothing becomes of any job it soon changes nothing any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from osqueue import crontab, limits
from osqueue.commit.block_reader import decode_need
from osqueue.core.audit import spans_of
from osqueue.core.context import ReductionContext
from osqueue.core.drop_rules import matches
from osqueue.core.group_rates import group_allowance
from osqueue.core.groups import HOLD, STOP
from osqueue.core.job_ops import ClaimJobs
from osqueue.core.labels import group_digest
from osqueue.core.ops import Code, Outcome, Request
from osqueue.core.reduce import Reduction, reduce
from osqueue.core.state import FAILED, FAILING, QUEUED, SCHEDULED, State, is_late

from .ledger import Violation
from .places import JobPlace

if TYPE_CHECKING:
    from .invariants import Invariants

WAITED_FOR = (FAILING, SCHEDULED, FAILED)
CLAIM = ClaimJobs(1, "somebody", 1_000)
PASSES_MAX = 10  # in each of which jobs become due, or are cancelled
SILENT_MAX = 2  # in which a claim moves on in a backlog, and nothing becomes of any job


def check(inv: Invariants, state: State, found: Mapping[bytes, JobPlace]) -> None:
    """A head became current."""
    staged: dict[str, bytes] = {}
    answer, after = _claim(inv, state, staged)
    if answer is None or answer.leases:
        return
    reason = answer.runs[-1][0]
    if reason == Code.EMPTY:
        _nothing_waits(state, found)
    if reason == Code.GROUPS_CLOSED:
        _all_are_closed(state, found)
    silent, count = 0, len(list(spans_of(state)))
    for _ in range(PASSES_MAX):
        if not after.changed or reason == Code.UNREADABLE:
            return
        fewer = len(list(spans_of(after.state))) < count  # merged: that comes to an end by itself
        silent = 0 if after.events or fewer else silent + 1
        if silent > SILENT_MAX:
            raise Violation(
                f"invariant 10: a claim that is told {Code(reason).name} changes the head again and again"
            )
        count = len(list(spans_of(after.state)))
        staged.update((item.name, item.body) for item in after.objects)
        answer, after = _claim(inv, after.state, staged)
        if answer is None or answer.leases:
            return


def _claim(inv: Invariants, state: State, staged: Mapping[str, bytes]) -> tuple[Outcome | None, Reduction]:
    """What a claim would be told by this head, at its time, and what would come of it. None: not to be said.

    ``staged``: objects that were written in thought, too.
    """
    alone = replace(state, sessions={}, sessions_bytes=0)  # there is room for whoever asks
    request = Request("probe", 1, 1, state.seq, state.epoch, (CLAIM,))
    blocks: dict[Any, Any] = {}
    unreadable: set[tuple[str, int]] = set()
    while True:
        context = ReductionContext(
            state.now_ms, b"probe" * 3 + b"!", state.seq, blocks, frozenset(unreadable), ticks=crontab.ticks
        )
        made = reduce(alone, [request], context)
        wanted = [each for each in made.missing if each.place not in blocks and each.place not in unreadable]
        if not wanted:
            break
        for need in wanted:
            data = staged.get(need.name) or inv.truth.read(inv.root + need.name)
            if data is None or inv.root + need.name in inv.truth.damaged:
                unreadable.add(need.place)
            else:
                blocks.update(decode_need(need, data[need.start : need.start + need.length]))
    outcomes = made.outcomes.get(request.identity)
    return (None if outcomes is None or unreadable else outcomes[0]), made


def _nothing_waits(state: State, found: Mapping[bytes, JobPlace]) -> None:
    if left := sum(_waits(state, each) for each in found.values()):
        raise Violation(f"invariant 5: a claim is told that nothing waits, and {left} jobs do")


def _all_are_closed(state: State, found: Mapping[bytes, JobPlace]) -> None:
    """Every job that waits is of a group that is full, or held, or owes."""
    running = Counter(lease.job.group for lease in state.leases.values())
    rates = group_allowance(state.settings, state.starts, state.now_ms)
    spent = set() if rates is None else rates.spent()
    waiting = {each.job.group for each in found.values() if _waits(state, each)}
    shut = len(state.holds) >= limits.GROUP_HOLDS_MAX
    for group in waiting:
        most = state.settings.group_running_of(group) or limits.RUNNING_MAX
        digest = group_digest(group)
        owes = digest in spent or (rates is not None and not rates.opens(digest))
        if group and (shut or group in state.holds or running[group] >= most or owes):
            continue
        raise Violation(f"invariant 5: a claim is told that groups are closed, and {group!r} is open")


def _waits(state: State, place: JobPlace) -> bool:
    job = place.job
    covered = any(matches(rule, job) for rule in state.drops.rules)
    return place.state == QUEUED and not is_late(job, state.now_ms) and not covered


def check_holds(state: State, found: Mapping[bytes, JobPlace]) -> None:
    """Check that no group waits for a job that might start, runs or is over, or for which the settings let it go on."""
    settings = state.settings
    for group, row in state.holds.items():
        waits = settings.group_on_dead == STOP if row.why == FAILED else settings.group_on_failure == HOLD
        if row.key and not (waits and settings.group_running_of(group) == 1):
            raise Violation(f"group {group!r} waits, although the settings let it go on")
        place = found.get(row.key) if row.key else None
        if row.key and (place is None or place.state not in WAITED_FOR):
            raise Violation(f"invariant 5: group {group!r} waits for a job that may start, or is over")
        if place is not None and (row.why == FAILED) != (place.state == FAILED):
            raise Violation(f"group {group!r} waits for a job that is {place.state}, as if it were not")
