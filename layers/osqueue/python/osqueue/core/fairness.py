"""Fairness: among groups that may start something, those of which the fewest jobs run go first, and ties take turns.

A group is whatever its producers say: a customer, a tenant. With ``fair`` a claim asks the mixed lane of a priority for
the first job of a group

    of which no more jobs run than of any other group that waits there    max-min fairness, as in *Dominant Resource
                                                                          Fairness* with one resource
    and which had no turn yet in this round                               round robin, so that one worker alone is fair

When there is none, a round begins anew; when there is none even then, groups of which more run are asked for. So
nothing is closed by it: where nobody else waits, the busy one gets everything. Jobs without a group take their turn by
age, as they do without fairness.

What runs is counted from the leases. A round is a row: the digests of the groups that had their turn, of
``GROUPS_SERVED_MAX`` at most. Where there are more, a round goes through all digests in slices: a full row halves the
slice, and one in which few had a turn is followed by one of twice the width. So the row stays small, and every group
has its turn in every round, however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .. import limits
from .labels import GROUP_BYTES, group_digest
from .rows import NO_ROUND, Round

DIGESTS = 1 << 8 * GROUP_BYTES  # so many there are


class FairShare:
    """Whose turn it is, while a claim goes on: what runs of each group, and how far the round is."""

    def __init__(self, running: Iterable[str], round_: Round) -> None:
        self.running: dict[bytes, int] = Counter(map(group_digest, running))
        self._begin = round_.begin
        self._halvings = round_.halvings
        self._served = dict.fromkeys(round_.served)  # in the order of their turns
        self._searched = 0  # digests that were searched in vain since ``begin``
        self._mark = (self._begin, self._halvings, self._served)
        self._bound()

    def _bound(self) -> None:
        end = self._begin + self._width
        self._first = self._begin.to_bytes(GROUP_BYTES, "big")
        self._last = (end - 1).to_bytes(GROUP_BYTES, "big")

    @property
    def _width(self) -> int:
        return DIGESTS >> self._halvings

    def is_due(self, group: bytes) -> bool:
        """Is it of this slice, and had no turn in this round?"""
        return self._first <= group <= self._last and group not in self._served

    def take(self, group: bytes) -> None:
        """A group has its turn."""
        self.running[group] = self.running.get(group, 0) + 1
        self._served = {**self._served, group: None}
        while len(self._served) > limits.GROUPS_SERVED_MAX:
            self._halvings += 1
            self._bound()
            self._served = dict.fromkeys(filter(self._has, self._served))

    def _has(self, group: bytes) -> bool:
        return self._first <= group <= self._last

    def begin(self) -> None:
        """A search begins: what it goes on from here is taken back when it finds nothing."""
        self._mark = (self._begin, self._halvings, self._served)
        self._searched = 0

    def go_on(self) -> bool:
        """Nobody is due: begin the next slice, or the next round. False: nobody waits at all."""
        self._searched += self._width
        if self._searched > DIGESTS or not (self._halvings or self._served):
            self._begin, self._halvings, self._served = self._mark
            self._searched = 0
            self._bound()
            return False
        few = len(self._served) <= limits.GROUPS_SERVED_MAX // 4
        self._begin = (self._begin + self._width) % DIGESTS
        if few and self._halvings and not self._begin % (2 * self._width):
            self._halvings -= 1
        self._served = {}
        self._bound()
        return True

    def above(self, level: int) -> int | None:
        """The next number of running jobs that some group has; None: no group has more."""
        return min((count for count in self.running.values() if count > level), default=None)

    def round(self) -> Round:
        """How far it is, to be kept."""
        found = Round(self._begin, self._halvings, tuple(self._served))
        return NO_ROUND if found == NO_ROUND else found


class FairSearch:
    """A search for the next job of one lane that is fair: it asks for more and more groups until it finds one."""

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._level = 0  # of groups that have more running, none is asked for
        self.step = 0  # counts what was asked for: with each, other groups

    def begin(self) -> None:
        """Look for another job. Nobody waits of whom fewer run than of the last one."""
        self._share.begin()

    def opens(self, group: bytes) -> bool:
        """Is the group of which this is the digest asked for?"""
        return self._share.is_due(group) and self._share.running.get(group, 0) <= self._level

    def widen(self) -> bool:
        """There is none of them: ask for others. False: all have been asked for."""
        self.step += 1
        if self._share.go_on():
            return True
        above = self._share.above(self._level)
        if above is None:
            return False
        self._level = above
        return True
