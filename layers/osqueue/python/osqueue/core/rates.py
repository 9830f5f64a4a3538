"""Rates: how many jobs may start in a period, of the queue or of a kind. A start is a lease that is granted.

Each limit is a bucket (see ``gcra``), of which a head keeps the one time that says how full it is, and only while it
is not full. Time is the head's, as for leases.

Over several shards each has its share: the rate divided by their number, and its part of the burst, one at least. So
nobody has to ask another shard, and in any window of length W no more than ``rate·W + max(burst, shards)`` jobs start.
A shard without jobs does not lend its share.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from . import gcra
from .state import NO_STARTS, KindSettings, QueueSettings, Starts

SECOND_MS = 1_000
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


def tats_of(starts: Starts) -> dict[Whose, int]:
    """When each bucket is full again, in microseconds of the head's time."""
    return {None: starts.tat_us, **dict(starts.kinds)}


def starts_of(tats: Mapping[Whose, int], now_us: int) -> Starts:
    """The same as a head keeps it: buckets that are full say nothing."""
    kinds = sorted((kind, tat) for kind, tat in tats.items() if kind is not None and tat > now_us)
    queue = tats.get(None, 0)
    starts = Starts(queue if queue > now_us else 0, tuple(kinds))
    return NO_STARTS if starts == NO_STARTS else starts


def is_owed(starts: Starts, now_ms: int) -> bool:
    """Does a bucket fill up as time goes by?"""
    return starts is not NO_STARTS and max(tats_of(starts).values()) > now_ms * 1000


def reconfigured(starts: Starts, old: QueueSettings, new: QueueSettings, now_ms: int) -> Starts:
    """What buckets hold when the settings change: as many starts are owed as before, a whole burst at most.

    So nobody gains starts by a change, and whoever lowers a rate does not wait for what was allowed before.
    """
    if starts is NO_STARTS:
        return starts
    now_us, before, after = now_ms * 1000, buckets_of(old), buckets_of(new)
    tats = {}
    for whose, tat in tats_of(starts).items():
        if whose in before and whose in after and tat > now_us:
            was, now = before[whose], after[whose]
            owed = (tat - now_us) * now.interval_us
            tats[whose] = now_us + min(-(-owed // was.interval_us), now.burst * now.interval_us)
    return starts_of(tats, now_us)


def spent(settings: QueueSettings, now_ms: int) -> Starts:
    """Empty buckets: for a head that does not know what started before."""
    now_us = now_ms * 1000
    tats = {whose: now_us + each.burst * each.interval_us for whose, each in buckets_of(settings).items()}
    return starts_of(tats, now_us)


def at_another_time(starts: Starts, old_ms: int, new_ms: int) -> Starts:
    """What is owed when the head's time is set anew: as much as before."""
    if starts is NO_STARTS:
        return starts
    shift_us = (new_ms - old_ms) * 1000
    return starts_of({whose: tat + shift_us for whose, tat in tats_of(starts).items() if tat}, new_ms * 1000)


class Allowance:
    """What the rates of a shard let start at one moment, and what has been taken of it."""

    def __init__(self, settings: QueueSettings, starts: Starts, now_ms: int) -> None:
        self._now_us = now_ms * 1000
        self._buckets = buckets_of(settings)
        self._tats = tats_of(starts)
        self.left = {
            whose: gcra.allowed(self._tats.get(whose, 0), self._now_us, each.interval_us, each.burst)
            for whose, each in self._buckets.items()
        }  # how many may start now

    def take(self, whose: Whose, count: int) -> None:
        """So many have started."""
        bucket = self._buckets.get(whose)
        if bucket is not None and count:
            self.left[whose] -= count
            tat = self._tats.get(whose, 0)
            self._tats[whose] = gcra.moved(tat, self._now_us, bucket.interval_us, count)

    def wait_ms(self, whose: Whose) -> int:
        """How long until the next may start, as far as its rate says; 0: it may now."""
        bucket = self._buckets.get(whose)
        if bucket is None:
            return 0
        at = gcra.next_us(self._tats.get(whose, 0), self._now_us, bucket.interval_us, bucket.burst)
        return -(-(at - self._now_us) // 1000)

    def starts(self) -> Starts:
        """What is owed afterwards."""
        return starts_of({whose: self._tats.get(whose, 0) for whose in self._buckets}, self._now_us)
