"""Rates of groups: how many jobs of each may start in a period. A start is a granted lease, and counts its units.

Each group has a bucket (see ``gcra``), of which the head of its home shard keeps one time, under the group's digest,
and only until it is full again. So a group that has started nothing for a while costs nothing, and a head has rows for
those that did: ``GROUP_DEBTS_MAX`` at most. When there are as many, further groups start nothing until one has gone.
"""

from __future__ import annotations

from .. import limits
from . import gcra
from .rates import group_buckets, starts_of, tats_of, wait_ms
from .settings import QueueSettings
from .state import Starts


class GroupAllowance:
    """What the rates of groups let start at one moment, and what has been taken of it."""

    def __init__(self, settings: QueueSettings, starts: Starts, now_ms: int) -> None:
        self._now_us = now_ms * 1000
        self._buckets = group_buckets(settings)
        self._others_us = max(self._now_us, starts.groups_us)  # when a bucket without a row is full
        self._tats = {group: tat for group, tat in starts.groups.items() if tat > self._others_us}
        self._all_open = self._others_us == self._now_us and not self.is_full

    @property
    def is_full(self) -> bool:
        """Are there so many rows that no other group starts anything?"""
        return len(self._tats) >= limits.GROUP_DEBTS_MAX

    def spent(self) -> set[bytes]:
        """The groups with a row that start nothing now."""
        return {group for group in self._tats if self._opens_us(group) > self._now_us}

    def _opens_us(self, group: bytes) -> int:
        bucket = self._buckets.of(group)
        if bucket is None:
            return self._now_us
        tat = self._tats.get(group, self._others_us)
        return gcra.next_us(tat, self._now_us, bucket.interval_us, bucket.burst)

    def opens(self, group: bytes) -> bool:
        """May a job of a group start that is not among the spent ones?"""
        if self._all_open or group in self._tats or self._buckets.of(group) is None:
            return True
        return not self.is_full and self._opens_us(group) <= self._now_us

    def lacks_row(self, group: bytes) -> bool:
        """Does it start nothing because there are so many rows?"""
        return self.is_full and group not in self._tats and self._buckets.of(group) is not None

    def take(self, group: bytes, units: int = 1) -> bool:
        """One has started that counts as so many starts; may another?"""
        bucket = self._buckets.of(group)
        if bucket is None:
            return True
        tat = self._tats.get(group, self._others_us)
        self._tats[group] = gcra.moved(tat, self._now_us, bucket.interval_us, units)
        self._all_open = self._all_open and not self.is_full
        return self._opens_us(group) <= self._now_us

    def wait_ms(self, group: bytes) -> int:
        """How long until the next of a group may start, as far as its rate says."""
        at = self._opens_us(group)
        if self.lacks_row(group):
            at = max(at, min(self._tats.values()))
        return wait_ms(at, self._now_us)

    def first_wait_ms(self) -> int:
        """How long no group opens that is closed now; 0: none is."""
        waits = [self.wait_ms(group) for group in self.spent()]
        if self._others_us > self._now_us or self.is_full:
            waits.append(max(1, wait_ms(min(self._tats.values(), default=self._others_us), self._now_us)))
        return min(waits, default=0)

    def starts(self, before: Starts) -> Starts:
        """What is owed afterwards, beside what is owed to other rates."""
        return starts_of(tats_of(before), self._now_us, self._tats, before.groups_us, before.lent)


def group_allowance(settings: QueueSettings, starts: Starts, now_ms: int) -> GroupAllowance | None:
    """That of a shard at a moment; None where groups have no rate."""
    if not settings.group_rate[0] and not settings.overrides:
        return None
    return GroupAllowance(settings, starts, now_ms) if group_buckets(settings) else None
