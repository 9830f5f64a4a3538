"""Slots that a limiter lends to shards: one rate for all shards of a queue, and for several queues.

A *limiter* is a pacer. A claim that finds no slot in its shard's head, and jobs that could start, reserves a block of
them in the limiter's head (``pacing``) and deposits it in its shard's, in the commit that claims. A start uses up one
slot whose moment has come and whose life is not over. What is left serves the next claim of the shard, and dies.

**The bound.** A limiter gives slots by GCRA, so n of them with moments from s₁ to sₙ keep
``sₙ − s₁ ≥ (n − burst)·interval``. A start at the head's time h uses a slot of its own with ``s ≤ h < s + life``. So
the slots of all starts in a window of length W lie less than ``W + life`` apart, and of all shards together start

    n  <  (W + life) / interval + burst         with  life = max(burst·interval, 1 s)

**Units.** A job of u units uses u slots. It starts where one is left, and what it lacks its shard *owes*: until that is
paid, by slots whose moment has come, nothing starts there. So each unit has a slot of its own but those that are still
owed, and all shards together start fewer than ``(W + life) / interval + burst + shards·(u − 1)`` units. A debt is paid
by what the shard borrows next, so one that rested pays when it goes on.

A slot is judged by the time of the shard's head, not by the limiter's. Where heads' times differ from one another by up
to ε, as two machines know the clock of S3 to about a second, a window is as much longer: ``(W + life + ε) / interval +
burst``. The limiter's own clock does not matter to this: wrong, it moves all slots, and what a shard finds in the past
is void. A shard whose head is ahead of the limiter's by a life reserves and starts nothing until time has come there.

**What gets lost.** Whoever reserves and does not come to deposit loses a block: a gap, never a double. Reservations and
deposits are requests like all others, so each is applied once; whoever repeats a claim does so without its deposit.
Where a commit takes long the slots are reserved for that much later: they would be over before they are deposited.

**Steering.** The first slot of a block is at most ``AHEAD_US`` ahead, the last one a second more. So two seconds and a
life after the commit that pauses the limiter nothing starts any more; nor by slots from before it was reset: until then
some may, beside those of the new epoch, which void the old ones in each shard that they come to.

**Blocks.** A limiter gives what may start at once, or in a second if that is more, divided by the shards that asked
within ``BORROWED_MS``. A shard asks for twice what it used of its last block, or for as many as it used where it left
some, for what its claim may start at least, and for no more than there are jobs. What the claim may start alone would
be a commit of the limiter for each job where workers claim one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from .rows import Lent, LentRun

AHEAD_US = 1_000_000  # that the first slot of a block is lent before its moment, at most
LIFE_US_MIN = 1_000_000
SECOND_US = 1_000_000
EARLY_US = 1_000_000  # before its last slot a shard borrows more: for so long its workers may sleep
BORROWED_MS = 10_000  # for which a shard that asked counts as one that will ask again
BORROWERS_MAX = 256  # that are counted
RUNS_MAX = 16  # in a head
ENDLESS = 1 << 62


# ── The limiter ──────────────────────────────────────────────────────────────
def life_us(interval_us: int, burst: int) -> int:
    """For how long a slot may be used."""
    return max(burst * interval_us, LIFE_US_MIN)


def borrowers_of(known: Mapping[bytes, int], borrower: bytes, now_ms: int) -> dict[bytes, int]:
    """The shards that asked lately, and this one."""
    others = {each: at for each, at in known.items() if now_ms - BORROWED_MS < at and each != borrower}
    while len(others) >= BORROWERS_MAX:
        del others[min(others, key=others.__getitem__)]
    return {**others, borrower: now_ms}


def share_of_block(interval_us: int, at_once: int, borrowers: int) -> int:
    """How many slots one shard gets together, of so many that may be used at once."""
    return max(1, -(-max(at_once, SECOND_US // interval_us) // borrowers))


def runs_of(start_us: int, base_us: int, interval_us: int, burst: int, count: int) -> tuple[LentRun, ...]:
    """The moments of slots that were reserved: those at once, and those after them."""
    first_us, life = base_us - (burst - 1) * interval_us, life_us(interval_us, burst)
    early = min(count, max(0, (start_us - first_us) // interval_us + 1))
    runs = (
        LentRun(start_us, 0, early, life),
        LentRun(first_us + early * interval_us, interval_us, count - early, life),
    )
    return tuple([run for run in runs if run.count])


# ── A shard ──────────────────────────────────────────────────────────────────
def _after(run: LentRun, count: int) -> LentRun:
    """What is left of a run without its first ones."""
    return replace(run, at_us=run.at_us + count * run.interval_us, count=run.count - count)


def _come(run: LentRun, now_us: int) -> int:
    """Of how many slots of a run the moment has come."""
    if now_us < run.at_us:
        return 0
    return min(run.count, (now_us - run.at_us) // run.interval_us + 1) if run.interval_us else run.count


def alive(runs: Iterable[LentRun], now_us: int) -> tuple[LentRun, ...]:
    """Those slots whose life is not over."""
    left = [_after(run, _come(run, now_us - run.life_us)) for run in runs]
    return tuple([run for run in left if run.count])


def _without(runs: Iterable[LentRun], count: int, now_us: int) -> tuple[tuple[LentRun, ...], int]:
    """What is left when so many are taken of those whose moment has come, and how many it lacks."""
    left = []
    for run in runs:
        taken = min(count, _come(run, now_us))
        count -= taken
        left.append(_after(run, taken))
    return tuple([run for run in left if run.count]), count


def paid(lent: Lent, now_us: int) -> Lent:
    """What a shard has once its slots have paid what it owes, also those that are dead by now; they are gone then."""
    runs, owed = _without(lent.runs, lent.owed, now_us) if lent.owed else (lent.runs, 0)
    return replace(lent, runs=alive(runs, now_us), owed=owed)


def deposited(before: Lent | None, lent: Lent, now_us: int) -> Lent:
    """The slots of a shard, with some more. Those of another epoch, or limiter, are void, and so is what is owed."""
    known: tuple[LentRun, ...] = ()
    owed = 0
    if before is not None and (before.limiter, before.epoch) == (lent.limiter, lent.epoch):
        rest = paid(before, now_us)
        known, owed = rest.runs, rest.owed
    fresh = alive(lent.runs, now_us)
    runs = tuple(sorted((*known, *fresh), key=lambda run: run.at_us)[:RUNS_MAX])
    return paid(replace(lent, runs=runs, lent=sum(run.count for run in lent.runs), used=0, owed=owed), now_us)


def without_dead(lent: Lent | None, now_us: int) -> Lent | None:
    """The same for a head at rest: None where no slot is left, and none owed."""
    if lent is None:
        return None
    left = paid(lent, now_us)
    if not left.runs and not left.owed:
        return None
    return lent if left == lent else left


class LentSlots:
    """The slots of a shard at one moment, and what is taken of them."""

    def __init__(self, limiter: str, lent: Lent | None, now_us: int) -> None:
        self._now_us = now_us
        self._lent = paid(lent, now_us) if lent is not None else None
        self._runs = () if self._lent is None else self._lent.runs
        self._used = 0
        self.owed = 0 if self._lent is None else self._lent.owed  # until it is paid none may be used
        self.limiter = limiter

    @property
    def is_lacking(self) -> bool:
        """Is there none, neither now nor later? Then whoever would start a job has to borrow first."""
        return not self._runs

    @property
    def is_short(self) -> bool:
        """Are there some, but for soon and for no longer? Then it is time to borrow more."""
        if not self._runs or self.left:
            return False
        last = max(run.at_us + (run.count - 1) * run.interval_us for run in self._runs)
        return last < self._now_us + EARLY_US

    @property
    def left(self) -> int:
        """How many may be used now."""
        return sum([_come(run, self._now_us) for run in self._runs])

    @property
    def all_left(self) -> int:
        """How many there are, now and later."""
        return sum([run.count for run in self._runs])

    @property
    def most(self) -> int:
        """How many jobs may start as far as the slots say; none say nothing, since more may be borrowed."""
        return self.left if self._runs else ENDLESS

    def wait_ms(self) -> int:
        """How long until the moment of the next that is not owed, or of the last; 0: it has come, or there is none."""
        at, owed = self._now_us, self.owed
        for run in sorted(self._runs, key=lambda run: run.at_us):
            at = run.at_us + min(owed, run.count - 1) * run.interval_us
            owed -= run.count
            if owed < 0:
                break
        return -(-max(0, at - self._now_us) // 1000)

    def take(self, units: int) -> None:
        """Use some up, those first that die first. What it lacks is owed."""
        self._used += units
        self._runs, lacking = _without(self._runs, units, self._now_us)
        self.owed += lacking

    def wanted(self, limit: int) -> int:
        """How many slots to borrow, for a claim of so many jobs."""
        lent = self._lent
        used = 0 if lent is None else lent.used + self._used
        return max(limit, 2 * used if lent is not None and used >= lent.lent else used)

    def rest(self) -> Lent | None:
        """What is left."""
        lent = self._lent
        return (
            None
            if lent is None
            else replace(lent, runs=self._runs, used=lent.used + self._used, owed=self.owed)
        )
