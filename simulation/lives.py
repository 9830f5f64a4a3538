"""The lives of a shard: heads that no reduction made, because the old one was lost, restored or set to another time.

A restored head is judged by what was ever committed, in whatever life: it may know less, and nothing else. What its
operator is told has to be so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from osqueue.core.archive_record import decode_part, wants_record
from osqueue.core.encoding import encode
from osqueue.core.erase import PURGED
from osqueue.core.restore import RestoredHead
from osqueue.core.state import CANCELLED, COMPLETED, FAILED, FAILING, PROCESSING, QUEUED, State, is_late
from osqueue.core.tables import known_until_ms
from osqueue.maintenance import doctor, head_restore
from osqueue.maintenance.head_restore import live_count
from osqueue.model.keys import key_of
from osqueue.objects.archive import ROOT as ARCHIVE

from . import following, order, schedules
from .ledger import Ledger, Repair, Violation
from .machine import EPOCH_MS
from .places import FINISHED, JobPlace, places
from .shelves import Record, record_of, unwritten

if TYPE_CHECKING:
    from .invariants import Invariants

DAMAGE = b"what is left of a head"
CLOCK_SLACK_MS = 1_500  # whole seconds of the store's clock, and some drift


@contextmanager
def watched_repairs(ledger: Ledger) -> Iterator[None]:
    """Note every head that a repair makes, so that it can be told from what led to it."""
    homes: tuple[tuple[Any, str], ...] = ((head_restore, "restore"), (doctor, "reset_clock"))
    real_restore, real_reclock = real = [getattr(home, name) for home, name in homes]

    def restored(backup: State, *rest: Any) -> RestoredHead:
        made: RestoredHead = real_restore(backup, *rest)
        ledger.repairs[made.state.commit] = Repair("restore", backup, made.state, made.loss)
        return made

    def reclocked(state: State, now_ms: int, commit: bytes) -> State:
        made: State = real_reclock(state, now_ms, commit)
        ledger.repairs[commit] = Repair("reclock", state, made)
        return made

    for (home, name), watched in zip(homes, (restored, reclocked), strict=True):
        setattr(home, name, watched)
    try:
        yield
    finally:
        for (home, name), before in zip(homes, real, strict=True):
            setattr(home, name, before)


def lose(inv: Invariants, *, deleted: bool) -> None:
    """The head cannot be read any more, or is not there."""
    inv.ledger.lost = True
    inv.missing = deleted
    inv.ledger.lives.append(inv.truth.seconds())


def begin(inv: Invariants) -> None:
    """Somebody makes a new head where one was lost, and knows nothing of it."""
    inv.found, inv.leaves, inv.lanes = {}, [], {}


def judge(inv: Invariants, before: State | None, state: State, body: bytes) -> None:
    """A repaired head became current."""
    assert before is not None
    ledger = inv.ledger
    repair = ledger.repairs[state.commit]
    if any(each.state.commit == state.commit for each in ledger.commits):
        raise Violation("a repaired head came back")
    if not body.endswith(encode(repair.state)):
        raise Violation("invariant 1: a repaired head is not what was made under its commit's id")
    inv.leases.repaired(repair.kind)
    found = places(state, inv.library)
    leaves = list(inv.shelves.leaves(state.tables))
    if repair.kind == "restore":
        _restored(inv, repair, state)
        inv.events.restored(state)
    else:
        if repair.base.commit != before.commit:
            raise Violation("invariant 1: a repair was made on another head than the current one")
        if (state.epoch, state.seq) != (before.epoch, before.seq + 1):
            raise Violation("invariant 3: a repair of the clock changed more than that")
        if {key: place.state for key, place in found.items()} != {
            key: place.state for key, place in inv.found.items()
        }:
            raise Violation("a repair of the clock moved jobs")
        inv._sessions(before, state)
        if repair.kind == "reclock":
            _reclocked(inv, before, state)
    inv.stories.repaired = inv.truth.seconds()
    ledger.lives.append(inv.truth.seconds())
    ledger.record(inv.truth.seconds(), state)
    inv._sums(state)
    inv._size(state, body)
    inv._conservation(state, found)
    inv.leaves, inv.found = leaves, found
    inv._references(state, found)
    schedules.check_living(state, found)
    inv.served.clear()  # what had come too early, or after the backup, comes again
    inv.lanes = order.orders(state, inv.library)


# ── Another time ─────────────────────────────────────────────────────────────
def _reclocked(inv: Invariants, before: State, state: State) -> None:
    """No lease ends early because of it, and the time is right."""
    if state.now_ms > inv.truth.clock_ms() + CLOCK_SLACK_MS:
        raise Violation("a head whose clock was repaired is ahead of the store's clock")
    for key, lease in before.leases.items():
        since = inv.truth.seconds()
        for commit in reversed(inv.ledger.commits):
            if commit.state.leases.get(key) != lease:
                break
            since = commit.at
        after = state.leases.get(key)
        granted_ms = EPOCH_MS + since * 1000
        if after is None or after.token != lease.token:
            raise Violation(f"the lease of {key.hex()} was lost when the clock was repaired")
        if after.expires_ms < granted_ms + lease.lease_ms - CLOCK_SLACK_MS:
            raise Violation(f"the lease of {key.hex()} ends early because the clock was repaired")


# ── A new life ───────────────────────────────────────────────────────────────
def _restored(inv: Invariants, repair: Repair, state: State) -> None:
    past = [each.state for each in inv.ledger.commits]
    if state.epoch in {each.epoch for each in past}:
        raise Violation("a restored head speaks for a life that is over")
    if state.seq <= max(each.seq for each in past):
        raise Violation("a restored head counts from a number that was used")
    if state.leases:
        raise Violation("a lease outlived its life")
    if state.tickets:
        raise Violation("a ticket outlived its life")
    found, leaves = places(state, inv.library), list(inv.shelves.leaves(state.tables))
    ended = _ended(inv, repair, state)
    called = following.called(inv, repair.base, found)
    inv.accepted |= called
    inv.ticked |= called
    if strange := found.keys() - inv.accepted:
        raise Violation(f"{len(strange)} jobs of a restored head came from nowhere")
    rows = [*state.finished, *(row for leaf in leaves for row in leaf.rows)]
    if back := inv.erased & (found.keys() | {row.key for row in rows}):
        raise Violation(f"{len(back)} purged jobs came back with a restore")
    if blank := [key for key, place in found.items() if place.job.priority == PURGED]:
        raise Violation(f"{len(blank)} blank jobs came back with a restore")
    archived = _archived(inv)
    over = {key for key, _, how in archived if how in (COMPLETED, CANCELLED)}
    for key, place in found.items():
        runs = {attempt.run for attempt in place.job.history}
        if place.state == FAILED and not any((key, run, FAILED) in ended for run in runs):
            raise Violation(f"{key.hex()} is a dead letter after a restore, and never failed")
        if not place.state.startswith(FINISHED) and key in over - inv.unmarked:
            raise Violation(f"{key.hex()} runs again after a restore; the archive tells that it is over")
    _account(inv, repair, state, found, ended, called)
    inv.flow.order.restored(repair.base, state, places(repair.base, inv.library.past()), found)
    owed = unwritten(leaves) | {record_of(row) for row in state.finished if wants_record(row)}
    claimed = {record_of(row) for leaf in leaves for row in leaf.rows if wants_record(row)}
    if unheard := {each for each in claimed - owed - archived if each[0] not in inv.purged}:
        raise Violation(f"invariant 10: {len(unheard)} records count as archived and are in no part")
    inv.ended = Counter(dict.fromkeys(archived | owed, 1))
    told = {key for key, _, how in archived if how == COMPLETED}
    following.check_restored(inv, repair.base, state, places(repair.base, inv.library.past()), found, told)
    again = {key for key, place in found.items() if not place.state.startswith(FINISHED)}
    over |= {row.key for row in rows if row.state in (COMPLETED, CANCELLED)}
    inv.over = Counter(dict.fromkeys((inv.over.keys() | found.keys() | over) - again, 1))
    inv.adrift |= {key for key, _, _ in inv.finished} - {row.key for row in rows}
    inv.adrift |= {row.key for row in rows if known_until_ms(row) <= state.now_ms}
    inv.lost_jobs |= inv.accepted - found.keys() - inv.over.keys()


def _ended(inv: Invariants, repair: Repair, state: State) -> set[Record]:
    """Return the records of all jobs that ended before the restore or with it; no row may have another record."""
    ended = set(inv.finished) | _late(repair, state)
    for key, lease in repair.base.leases.items():
        ended |= {(key, lease.job.run, how) for how in (FAILED, CANCELLED)}
    rows = [*state.finished, *(row for leaf in inv.shelves.leaves(state.tables) for row in leaf.rows)]
    for row in rows:
        if record_of(row) not in ended:
            raise Violation(f"a restored head tells that {row.key.hex()} {row.state}, which never was")
        inv.finished.setdefault(record_of(row), row)
    return ended


def _late(repair: Repair, state: State) -> set[Record]:
    """Return the records that delayed jobs of the backup have if the restore cancels them for their start deadline."""
    return {
        (job.key, max(job.run, state.seq), CANCELLED)
        for job in repair.base.delayed.jobs
        if job.due_ms <= state.now_ms and is_late(job, state.now_ms)
    }


def _archived(inv: Invariants) -> set[Record]:
    """What the archive tells now."""
    found: set[Record] = set()
    for name in inv.truth.keys(ARCHIVE):
        data = inv.truth.read(name)
        if data is not None and name.rpartition("/")[2].startswith(f"{inv.shard:02d}-"):
            found |= {(key_of(each.job_id), each.run, each.state) for each in decode_part(data, name)}
    return found


def _account(
    inv: Invariants,
    repair: Repair,
    state: State,
    found: Mapping[bytes, JobPlace],
    ended: set[Record],
    called: AbstractSet[bytes],
) -> None:
    """Every job of the backup is accounted for, and the operator was told the truth."""
    loss = repair.loss
    before = {
        key: place
        for key, place in places(repair.base, inv.library.past()).items()
        if not place.state.startswith(FINISHED)
    }
    kept = {key for key in before if key in found and not found[key].state.startswith(FINISHED)}
    dropped = before.keys() - kept
    # A table of a former life may come so late that an earlier restore did not see how its jobs had ended.
    over = inv.over.keys() | {key for key, _, how in inv.finished if how in (COMPLETED, CANCELLED)}
    if unjust := dropped - over - inv.purged - set(found):
        raise Violation(f"{len(unjust)} jobs of the backup that were not over are lost with a restore")
    told = loss.finished + loss.erased + loss.payloads_gone + loss.jobs_gone + loss.cancelled + loss.late
    alive = {key for key, place in found.items() if not place.state.startswith(FINISHED)} - called
    revived = alive & inv.unmarked - before.keys()
    if len(revived) > loss.unmarked:
        raise Violation(f"{len(revived)} cancelled jobs wait again; a restore says at most {loss.unmarked}")
    if not len(dropped) <= told <= len(dropped) + loss.unmarked:
        raise Violation(f"a restore says that it dropped {told} jobs of the backup; it was {len(dropped)}")
    dead = {key for key in kept if found[key].state == FAILED}
    anew = {  # some of them may have been dead before, and redriven since
        key
        for key, run, how in ended
        if key in dead and how == FAILED and run >= before[key].job.run + (before[key].state != PROCESSING)
    }
    fresh = {key for key in dead if before[key].state != FAILED}
    if stale := fresh - anew:
        raise Violation(f"{len(stale)} jobs are dead letters after a restore, and were redriven before it")
    if not len(fresh) <= loss.buried + loss.spent <= len(anew):
        raise Violation(f"a restore says that it buried {loss.buried + loss.spent} jobs; it was {len(fresh)}")
    late = sum(record_of(row) in _late(repair, state) for row in state.finished)
    if loss.late != late:
        raise Violation(
            f"a restore says that the start deadlines of {loss.late} jobs had passed; it was {late}"
        )
    stalled = sum(found[key].state in (QUEUED, FAILING) for key in repair.base.leases.keys() & kept)
    if loss.stalled != stalled:
        raise Violation(f"a restore says that {loss.stalled} jobs stalled; it was {stalled}")
    lives = len(kept) + len(revived) + len(called)
    if live_count(state) != lives:
        raise Violation(f"a restore says that {live_count(state)} jobs live; it is {lives}")
