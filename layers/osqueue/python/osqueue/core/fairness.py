"""Fairness: among groups that may start something, those of which the fewest jobs run go first, and ties take turns.

A group is whatever its producers say: a customer, a tenant. With ``fair`` a claim asks the mixed lane of a priority for
the first job of a group

    of which no more jobs run than of any other group that waits there    max-min fairness, as in *Dominant Resource
                                                                          Fairness* with one resource
    and whose last turn is longest ago                                    round robin, so that one worker alone is fair

Where nothing is found, all who wait have been met on the way. Where all of those of whom the fewest run had a turn,
the one goes whose turn is longest ago. So nothing is closed by it: whoever is alone gets everything. And a claim that
sees some groups only, by its kinds or by what is closed just now, changes nothing for the others.

What runs is counted from the leases. Who had a turn is a row: the digests of the ``GROUPS_SERVED_MAX`` groups that
had one last. Where more take turns than it holds, those that it does not tell of would go by age, the oldest again and
again. So while the row is full chance picks among them (*lottery scheduling*): one in two to the power of ``halvings``
is asked for, fewer while somebody is found.

Jobs without a group take their turn by age: the first of them starts before that of a group if it is older.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from .. import limits
from .labels import GROUP_BYTES, group_digest
from .rows import NO_ROUND, Round

DIGESTS = 1 << 8 * GROUP_BYTES  # so many there are
HALVINGS_MAX = 24
TRIES_EXACT = 8  # for one group each; then for two, for four: labels may tell of many that are gone
MULTIPLIER, INCREMENT = (
    6_364_136_223_846_793_005,
    1_442_695_040_888_963_407,
)  # Knuth's, of a generator modulo 2^64


class FairShare:
    """Whose turn it is, while a claim goes on: what runs of each group, and who had a turn."""

    def __init__(self, running: Iterable[str], round_: Round, chance: int = 1) -> None:
        self.running: dict[bytes, int] = Counter(map(group_digest, running))
        self._served = dict.fromkeys(round_.served)  # in the order of their turns
        self._halvings = round_.halvings
        self._chance = chance % DIGESTS

    @property
    def is_full(self) -> bool:
        """May there be groups that had a turn and are not remembered?"""
        return len(self._served) >= limits.GROUPS_SERVED_MAX

    def is_due(self, group: bytes) -> bool:
        """Had it no turn in this round, and does chance not pass over it?"""
        return group not in self._served and (not self.is_full or self._is_drawn(group))

    def _is_drawn(self, group: bytes) -> bool:
        drawn = int.from_bytes(group, "big") * (self._chance | 1) % DIGESTS
        return drawn < DIGESTS >> self._halvings

    def take(self, group: bytes) -> None:
        """A group has its turn."""
        self.running[group] = self.running.get(group, 0) + 1
        if self.is_full:
            self._chance = (self._chance * MULTIPLIER + INCREMENT) % DIGESTS
            self._halvings = min(HALVINGS_MAX, self._halvings + (self._chance >> 62 == 0))
        self._served.pop(group, None)
        self._served[group] = None
        if len(self._served) > limits.GROUPS_SERVED_MAX:
            del self._served[next(iter(self._served))]

    def skip(self, groups: frozenset[bytes]) -> None:
        """It was the turn of some of whom only labels tell: others come before them next time."""
        for group in [each for each in self._served if each in groups]:
            del self._served[group]
            self._served[group] = None

    def next_of(self, groups: Sequence[bytes], count: int) -> Sequence[bytes]:
        """Those of some groups whose turn it is, where these are all that wait; ``count`` if that is a choice."""
        due = [group for group in groups if group not in self._served]
        if not due:  # least recently served
            waiting = frozenset(groups)
            return list(islice((group for group in self._served if group in waiting), count))
        if not self.is_full:
            return due
        self._halvings = max(0, len(due).bit_length() - 2)
        at = self._chance % len(due)
        return [*due[at:], *due[:at]][:count]

    def round(self) -> Round:
        """Who had a turn, to be kept."""
        found = Round(tuple(self._served), self._halvings if self.is_full else 0)
        return NO_ROUND if found == NO_ROUND else found


class FairSearch:
    """A search for the next job of one lane that is fair: it asks for others until it finds one."""

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._level = 0  # of each group that waits as many run, or more
        self._asked: frozenset[bytes] | None = None  # for these; None: for whoever is due
        self._told = False  # of one of them by a label, at least
        self._passed: dict[bytes, None] = {}  # groups that wait and were not asked for
        self._vain: set[bytes] = set()  # of which labels tell, and there is nothing
        self._tries = 0  # in vain, for this job
        self.step = 0  # counts what was asked for: with each, other groups

    def begin(self) -> None:
        """Look for another job."""
        self._told, self._tries = False, 0
        if self._asked:  # all who wait are known
            self._choose()
        elif self._asked is not None or self._share.is_full:
            self._ask(None)
            self._passed = {}

    def _ask(self, groups: Iterable[bytes] | None) -> None:
        self._asked = None if groups is None else frozenset(groups)
        self._told = False
        self.step += 1

    def opens(self, group: bytes) -> bool:
        """Is the group of which this is the digest asked for?"""
        if group in self._vain:
            return False
        if self._asked is not None:
            found = group in self._asked
        else:
            found = self._share.running.get(group, 0) <= self._level and self._share.is_due(group)
        if found:
            self._told = True
        else:
            self._passed[group] = None
        return found

    def widen(self) -> bool:
        """There is nothing of them: ask for others. False: nobody waits."""
        if self._asked is None and self._told:  # and labels behind that one were not looked at
            self._ask(())  # for nobody: so everyone is met
            return True
        if self._asked:
            self._vain.update(self._asked)
            self._tries += 1
            if self._tries > TRIES_EXACT:
                self._share.skip(self._asked)
        return self._choose()

    def _choose(self) -> bool:
        """Ask for those whose turn it is of all who wait."""
        running = self._share.running
        waiting = {group: running.get(group, 0) for group in self._passed if group not in self._vain}
        if not waiting:
            return False
        self._level = min(waiting.values())
        fewest = [group for group, count in waiting.items() if count == self._level]
        self._ask(self._share.next_of(fewest, 1 << max(0, self._tries - TRIES_EXACT)))
        return True
