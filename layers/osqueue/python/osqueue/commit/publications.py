"""Publications: the requests that few writers put where each of them looks, and what one writer knows of them.

How they are used, and why that is safe, stands in ``few_writers``.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import limits
from ..core import intents
from ..core.ops import Identity, Request
from ..core.reduce import applicable
from ..core.state import State
from ..stores.base import Found, Get, Put, StoreReply, StoreRequest

PUBLICATION_KEPT_MS = limits.MINUTE_MS  # at the least, until a reap deletes it
CROWD_COMMITS = 8  # whose writers are counted
NEWCOMERS_MAX = 2  # among them: there are as many doors
NEWCOMER_REQUESTS = 3  # of a writer, with which it counts as one
RECENT_COMMITS = 16  # a writer's own publication is read for so many commits after its last one
OWN_NAME_COMMITS = 12  # and it publishes there for fewer: the reader's head may be a newer one
PUBLICATIONS_READ_MAX = 20  # beside the doors, for one commit
COMBINED_MIN = 300  # thousandths of others' requests in a mean commit, for which all publications are read
COMMITS_BETWEEN_LOOKS = 4  # of a writer that meets nobody, at the door
SLOW_LOOK = 0.5  # of a commit's time: a look that takes longer is made beside a swap


def are_few(state: State) -> bool:
    """Return whether so few writers had a request in the latest commits that they publish rather than announce.

    Newcomers meet at the doors and replace each other's requests there. So processes that come and go announce.
    """
    since = state.seq - CROWD_COMMITS
    numbers = [row.n for row in state.sessions.values() if row.seq > since]
    if not 0 < len(numbers) <= limits.FEW_WRITERS_MAX:
        return False
    return sum(1 for n in numbers if n <= NEWCOMER_REQUESTS) <= NEWCOMERS_MAX


def are_all_read(state: State) -> bool:
    """Return whether a writer that commits on this head reads all recent publications, not only the doors."""
    return state.streak > 0 and state.combined >= COMBINED_MIN


def is_unread(name: str, state: State) -> bool:
    """Return whether no commit on this head or a later one reads what stands under this name.

    A writer that still waits for it publishes again, elsewhere.
    """
    row = state.sessions.get(name)
    return name not in intents.DOORS and (row is None or row.seq <= state.seq - 2 * RECENT_COMMITS)


class Publications:
    """What one writer of a shard knows of publications between its commits."""

    def __init__(self, root: str) -> None:
        self.place = intents.publications_prefix(root)
        self.look_seconds = 0.0  # moving average of a look; 0: not known yet
        self.changed_at = float("-inf")  # when a led writer last saw a new head, on the monotonic clock
        self.unlooked = 0  # commits since the doors were read
        self.door_requests = 0  # looks in a row that found requests at the doors
        self.taken: set[str] = set()  # the doors at which a request waits, by the latest look
        self.found: list[Request] = []  # what was read beside the latest swap
        self.found_at = float("-inf")  # and when, in seconds on the monotonic clock

    def looks(self, state: State, env: str, contended: bool) -> list[StoreRequest]:
        """Return the requests that read what the next commit on this head takes along."""
        names = list(self._doors(contended))
        if contended and are_all_read(state):
            since = state.seq - RECENT_COMMITS
            rows = [
                (row.seq, other) for other, row in state.sessions.items() if row.seq > since and other != env
            ]
            names += [other for _, other in sorted(rows, reverse=True)[:PUBLICATIONS_READ_MAX]]
        return [Get(self.place + name) for name in names]

    def looks_beside(
        self, state: State, env: str, contended: bool, commit_seconds: float
    ) -> list[StoreRequest]:
        """Return what to read beside the swap that makes this state the head."""
        self.unlooked += 1
        if contended:
            due = state.streak > 0 and self.look_seconds > SLOW_LOOK * commit_seconds
        else:
            due = self.unlooked >= COMMITS_BETWEEN_LOOKS
        return self.looks(state, env, contended) if due else []

    def take_in(
        self, state: State, env: str, looks: Sequence[StoreRequest], replies: Sequence[StoreReply]
    ) -> list[Request]:
        """Return what was read and may be applied to the head."""
        found: dict[Identity, Request] = {}  # one may stand at a door and under its writer's name
        self.taken.clear()
        for look, reply in zip(looks, replies, strict=True):
            if not isinstance(look, Get) or not isinstance(reply, Found):
                continue
            other = intents.read_publication(look.key, reply.body)
            if other is not None and other.env != env and applicable(state, other):
                found[other.identity] = other
                name = look.key.removeprefix(self.place)
                if name in intents.DOORS:
                    self.taken.add(name)
        self.door_requests = self.door_requests + 1 if self.taken else 0
        self.unlooked = 0
        return intents.within_bytes(list(found.values())) if found else []

    def note_look(self, seconds: float) -> None:
        """Note how long a look took."""
        known = self.look_seconds or seconds
        self.look_seconds = known + 0.2 * (seconds - known)

    def take_found(self) -> list[Request]:
        """Return, once, what was read beside the latest swap."""
        found, self.found = self.found, []
        return found

    def publish(self, request: Request, state: State, contended: bool, draw: float) -> Put:
        """Return what publishes a request where the next commit looks. ``draw`` is random, from 0 to below 1."""
        row = state.sessions.get(request.env)
        recent = row is not None and row.seq > state.seq - OWN_NAME_COMMITS
        if contended and recent and are_all_read(state):
            name = request.env
        else:
            doors = self._doors(contended)
            free = [door for door in doors if door not in self.taken] or doors
            name = free[int(len(free) * draw)]
        return Put(self.place + name, intents.intent_body(request), durable=False)

    def _doors(self, contended: bool) -> Sequence[str]:
        return intents.DOORS if contended else intents.DOORS[:1]
