"""Rates: how many jobs may start in a period, of the queue or of a kind. A start is a lease that is granted.

Each limit is a bucket (see ``gcra``), of which a head keeps the one time that says how full it is, and only while it
is not full. Time is the head's, as for leases.

A job counts as so many starts as it has *units*, one unless it says more. It starts as soon as one more start is
allowed, on credit (see there), so its units are no matter of order, and none is refused because a burst is smaller.

Over several shards each has its share: the rate divided by their number, and its part of the burst, one at least. So
nobody has to ask another shard, and in any window of length W no more than ``rate·W + max(burst, shards)`` units start,
and ``u − 1`` more of each shard, u being the units of the largest job. A shard without jobs does not lend its share.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from . import gcra
from .labels import group_digest
from .lending import alive, deposited, without_dead
from .rows import Lent
from .settings import GroupSettings, KindSettings, QueueSettings
from .state import NO_STARTS, Starts

SECOND_MS = 1_000
WAIT_MS_MAX = limits.DELAY_MS_MAX  # that is told, where jobs of many units owe more
Whose = str | None  # a kind, or None: the whole queue


def share_of(limit: int, settings: QueueSettings) -> int:
    """The share of this shard in a limit; the first ones have one more where it does not come out even."""
    return limit // settings.shards + (settings.shard < limit % settings.shards)


class Bucket(Struct, frozen=True):
    """A rate, as one shard has it."""

    interval_us: int
    burst: int


def burst_of(rate: tuple[int, int], burst: int) -> int:
    """How many may start at once: unless it is said, as many as the rate allows in a second, one at least."""
    starts, period_ms = rate
    return burst or max(1, starts * SECOND_MS // period_ms)


def wait_ms(at_us: int, now_us: int) -> int:
    """How long it is until a moment, as whoever waits is told it."""
    return min(-(-(at_us - now_us) // 1000), WAIT_MS_MAX)


def bucket_of(row: QueueSettings | KindSettings, settings: QueueSettings) -> Bucket | None:
    """The bucket of the queue or of a kind; None: it has no rate."""
    starts, period_ms = row.rate or (0, 0)
    if not starts or not period_ms:
        return None
    interval = -(-period_ms * 1000 * settings.shards // starts)  # rounded up: never faster
    return Bucket(interval, max(1, share_of(burst_of((starts, period_ms), row.burst or 0), settings)))


def buckets_of(settings: QueueSettings) -> dict[Whose, Bucket]:
    """Every rate that there is."""
    found: dict[Whose, Bucket] = {}
    if (bucket := bucket_of(settings, settings)) is not None:
        found[None] = bucket
    for row in settings.kinds:
        if row.rate is not None and (bucket := bucket_of(row, settings)) is not None:
            found[row.kind] = bucket
    return found


def group_bucket_of(settings: QueueSettings, own: GroupSettings | None = None) -> Bucket | None:
    """The bucket of a group: of its own, else as the queue says. None: it has no rate.

    All jobs of a group are in one shard, so it is not divided by their number.
    """
    starts, period_ms = own.rate if own is not None and own.rate else settings.group_rate
    if not starts or not period_ms:
        return None
    burst = own.burst if own is not None and own.burst is not None else settings.group_burst
    return Bucket(-(-period_ms * 1000 // starts), burst_of((starts, period_ms), burst))


class GroupBuckets:
    """The rates of all groups of a shard."""

    def __init__(self, settings: QueueSettings) -> None:
        self.default = group_bucket_of(settings)
        self._own = {
            group_digest(group): group_bucket_of(settings, own) for group, own in settings.overrides.items()
        }

    def __bool__(self) -> bool:
        return self.default is not None or any(self._own.values())

    def of(self, group: bytes) -> Bucket | None:
        """That of one, by its digest; None: it has none."""
        return self._own.get(group, self.default)

    def all(self) -> list[Bucket]:
        """Every one there is."""
        return [each for each in (self.default, *self._own.values()) if each is not None]


class _Remembered:
    """The rates of groups by the settings that were looked at last: most commits leave them as they are."""

    def __init__(self) -> None:
        self._last: tuple[QueueSettings, GroupBuckets] | None = None

    def of(self, settings: QueueSettings) -> GroupBuckets:
        """Theirs."""
        last = self._last
        if last is None or last[0] is not settings:
            last = self._last = settings, GroupBuckets(settings)
        return last[1]


group_buckets = _Remembered().of


def tats_of(starts: Starts) -> dict[Whose, int]:
    """When each bucket is full again, in microseconds of the head's time."""
    return {None: starts.tat_us, **dict(starts.kinds)}


def starts_of(
    tats: Mapping[Whose, int],
    now_us: int,
    groups: Mapping[bytes, int] | None = None,
    groups_us: int = 0,
    lent: Lent | None = None,
) -> Starts:
    """The same as a head keeps it, those of groups, and slots lent: buckets that are full say nothing."""
    kinds = sorted((kind, tat) for kind, tat in tats.items() if kind is not None and tat > now_us)
    queue, full_us = tats.get(None, 0), max(now_us, groups_us)
    owing = {group: tat for group, tat in groups.items() if tat > full_us} if groups else {}
    starts = Starts(
        queue if queue > now_us else 0, tuple(kinds), owing, groups_us if groups_us > now_us else 0, lent
    )
    return NO_STARTS if starts == NO_STARTS else starts


def with_lent(starts: Starts, lent: Lent | None) -> Starts:
    """The same with other slots of the limiter."""
    found = replace(starts, lent=lent)
    return NO_STARTS if found == NO_STARTS else found


def borrowed(starts: Starts, lent: Lent, now_ms: int) -> Starts:
    """The same with more slots of the limiter."""
    return replace(starts, lent=deposited(starts.lent, lent, now_ms * 1000))


def without_full(starts: Starts, now_ms: int) -> Starts:
    """What is still owed at a time; the same rows where that is all of it."""
    if starts is NO_STARTS:
        return starts
    lent = without_dead(starts.lent, now_ms * 1000)
    left = starts_of(tats_of(starts), now_ms * 1000, starts.groups, starts.groups_us, lent)
    return starts if left == starts else left


def is_owed(starts: Starts, now_ms: int) -> bool:
    """Does a bucket fill up as time goes by, or the moment of a slot come?"""
    if starts is NO_STARTS:
        return False
    if starts.lent is not None and alive(starts.lent.runs, now_ms * 1000):
        return True
    return max(*tats_of(starts).values(), starts.groups_us, *starts.groups.values()) > now_ms * 1000


def _as_before(tat_us: int, was: Bucket | None, bucket: Bucket | None, now_us: int) -> int:
    """When a bucket is full that takes the place of another one; 0: it is."""
    if was is None or bucket is None or tat_us <= now_us:
        return 0

    def as_now(owed_us: int) -> int:
        return -(-owed_us * bucket.interval_us // was.interval_us)

    debt_us = max(0, tat_us - now_us - was.burst * was.interval_us)
    within = min(as_now(tat_us - now_us - debt_us), bucket.burst * bucket.interval_us)
    return now_us + within + as_now(debt_us)


def reconfigured(starts: Starts, old: QueueSettings, new: QueueSettings, now_ms: int) -> Starts:
    """What buckets hold when the settings change: as many starts are owed as before, a whole burst at most.

    So nobody gains starts by a change, and whoever lowers a rate does not wait for what was allowed before. What a job
    of many units owes beyond a burst stays owed.
    """
    if starts is NO_STARTS:
        return starts
    now_us, before, after = now_ms * 1000, buckets_of(old), buckets_of(new)
    tats = {
        whose: _as_before(tat, before.get(whose), after.get(whose), now_us)
        for whose, tat in tats_of(starts).items()
    }
    was, will = GroupBuckets(old), GroupBuckets(new)
    groups = {
        group: _as_before(tat, was.of(group), will.of(group), now_us) for group, tat in starts.groups.items()
    }
    others_us = starts.groups_us if will else 0  # of a new life: it ends soon
    lent = starts.lent if starts.lent is not None and starts.lent.limiter == new.limiter else None
    return starts_of(tats, now_us, groups, others_us, lent)


def spent(settings: QueueSettings, now_ms: int) -> Starts:
    """Empty buckets: for a head that does not know what started before. What units owe beyond a burst is forgotten."""
    now_us = now_ms * 1000
    tats = {whose: now_us + each.burst * each.interval_us for whose, each in buckets_of(settings).items()}
    of_groups = [each.burst * each.interval_us for each in GroupBuckets(settings).all()]
    return starts_of(tats, now_us, groups_us=now_us + max(of_groups) if of_groups else 0)


def at_another_time(starts: Starts, old_ms: int, new_ms: int) -> Starts:
    """What is owed when the head's time is set anew: as much as before. Slots that were lent are void."""
    if starts is NO_STARTS:
        return starts
    shift_us = (new_ms - old_ms) * 1000
    tats = {whose: tat + shift_us for whose, tat in tats_of(starts).items() if tat}
    groups = {group: tat + shift_us for group, tat in starts.groups.items()}
    return starts_of(tats, new_ms * 1000, groups, starts.groups_us and starts.groups_us + shift_us)


class Allowance:
    """What the rates of a shard let start at one moment, and what has been taken of it."""

    def __init__(self, settings: QueueSettings, starts: Starts, now_ms: int) -> None:
        self._now_us = now_ms * 1000
        self._buckets = buckets_of(settings)
        self._tats = tats_of(starts)
        self._before = starts
        self.left = {
            whose: gcra.allowed(self._tats.get(whose, 0), self._now_us, each.interval_us, each.burst)
            for whose, each in self._buckets.items()
        }  # how many units may start now; a job of more starts as long as there is one

    def take(self, whose: Whose, units: int) -> None:
        """Jobs of so many units have started."""
        bucket = self._buckets.get(whose)
        if bucket is not None and units:
            self.left[whose] -= units
            tat = self._tats.get(whose, 0)
            self._tats[whose] = gcra.moved(tat, self._now_us, bucket.interval_us, units)

    def wait_ms(self, whose: Whose) -> int:
        """How long until the next may start, as far as its rate says; 0: it may now."""
        bucket = self._buckets.get(whose)
        if bucket is None:
            return 0
        at = gcra.next_us(self._tats.get(whose, 0), self._now_us, bucket.interval_us, bucket.burst)
        return wait_ms(at, self._now_us)

    def starts(self) -> Starts:
        """What is owed afterwards."""
        tats = {whose: self._tats.get(whose, 0) for whose in self._buckets}
        return starts_of(tats, self._now_us, self._before.groups, self._before.groups_us, self._before.lent)
