"""Which job a claim takes next: the most urgent that is wanted and may start.

Lanes of one priority are compared by their first jobs, so kinds do not starve each other. When a lane's next jobs lie
in a segment that has not been read there is no next job yet: taking a less urgent one instead would break the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .. import limits
from .ageing import turn_of
from .backlog import BacklogDraft, NeededRange, needs_for
from .draft import Draft
from .fairness import FairSearch, FairShare
from .gate import Closed, Gate, gate_of
from .groups import Groups
from .job_ops import ClaimJobs
from .labels import group_digest, groups_told, holds_kind, may_hold
from .mixed import MixedDraft, Wanted
from .ops import Request
from .state import MIXED, NO_STARTS, JobRecord, Lane, State, waiting
from .weights import LEASE_WEIGHT_MIN

BARREN = "barren"  # a mixed lane has nothing that is wanted
ANY_WANTED = "any wanted"  # its first wanted job is in front
WHATEVER_COMES = "whatever comes"  # and all behind it that have no group are wanted, too


class ClaimSearch:
    """The search of one claim in one reduction."""

    def __init__(self, draft: Draft, kinds: Sequence[str] | None, gate: Gate | None, count: int) -> None:
        self._draft = draft
        self._kinds = None if kinds is None else frozenset(kinds)
        self._gate = gate
        self._groups: Groups | None = None
        self._count = count
        self._wanted: dict[
            bool, tuple[tuple[frozenset[str], int, int], Wanted]
        ] = {}  # the last ones: see there
        self._all_grouped: dict[
            int, frozenset[str]
        ] = {}  # priorities whose mixed lane has no job without a group while these kinds are closed
        self._share: FairShare | None = None
        self._fair: dict[
            int, tuple[frozenset[str], FairSearch]
        ] = {}  # by the priorities of mixed lanes: the search while these kinds are closed
        self._barren: dict[
            int, frozenset[str]
        ] = {}  # priorities whose mixed lane has nothing while these are closed

    @property
    def groups(self) -> Groups:
        """Which are closed. Only a mixed lane has any, so few claims ask."""
        if self._groups is None:
            self._groups = _groups_of(self._draft, self._draft.now)
        return self._groups

    def charge(self, job: JobRecord) -> None:
        """A job out of a mixed lane has started."""
        self.groups.charge(job)
        if self._share is not None and job.group:
            self._share.take(group_digest(job.group))

    def _fair_search(self, priority: int, closed: frozenset[str]) -> FairSearch | None:
        """How the mixed lane of a priority is searched where groups share alike.

        With other kinds closed it begins anew: groups that had nothing to start may have something now.
        """
        draft = self._draft
        if not draft.settings.fair:
            return None
        if self._share is None:
            running = [lease.job.group for lease in draft.leases.values() if lease.job.group]
            self._share = FairShare(running, draft.round, draft.context.chance)
        known = self._fair.get(priority)
        if known is None or known[0] != closed:
            known = self._fair[priority] = closed, FairSearch(self._share)
        return known[1]

    def next_lane(self) -> tuple[BacklogDraft | None, bool]:
        """The lane of the next job, which is ready in it; among kinds of one priority, the one whose job came first.

        Also whether it is alone in its priority: then it stays the most urgent for as long as jobs are ready in it.
        """
        draft = self._draft
        while lanes := self._most_urgent():
            searched = [
                self._search(priority, lane) for priority, lane in lanes if isinstance(lane, MixedDraft)
            ]
            if None in searched:
                break
            if BARREN in searched:
                continue
            lane = self._first(lanes)
            if lane.ready:
                return lane, len(lanes) == 1 and ANY_WANTED not in searched
            unread = lane.refill(draft.blocks, draft.tombstones)
            if unread is not None:
                draft.need(unread)
            if unread is not None or draft.drops.is_spent:
                break
            # Now its first key is known, not only a lower bound of it (or it was empty): look again.
        return None, True

    def _first(self, lanes: Sequence[tuple[int, BacklogDraft]]) -> BacklogDraft:
        ageing = self._draft.settings.ageing_ms
        if len(lanes) == 1:
            return lanes[0][1]
        if ageing:
            return min(lanes, key=lambda each: turn_of(each[0], each[1], ageing))[1]
        return min((lane for _, lane in lanes), key=BacklogDraft.head_key)

    def _search(self, priority: int, lane: MixedDraft) -> str | None:
        """Bring the first wanted job of a mixed lane to its front; None: something has to be read for it."""
        closed = self._closed(priority)
        fair = self._fair_search(priority, closed)
        found = self._bring(priority, lane, closed, fair)
        turn = lane.ready[0] if found is True and fair is not None else None
        if fair is not None and not isinstance(found, list) and self._all_grouped.get(priority) != closed:
            other = self._bring(priority, lane, closed, None)
            if other is False:
                self._all_grouped[priority] = closed
            elif other is True and turn is not None and turn.key < lane.ready[0].key:
                lane.prefer(turn)
            if other is not False:
                found = other
        if found is False:
            self._barren[priority] = closed
            return BARREN
        if found is not True:
            for need in found:
                self._draft.need(need)
            return None
        alike = self._kinds is None and not closed and self._gate is None and turn is None
        return WHATEVER_COMES if alike else ANY_WANTED

    def _bring(
        self, priority: int, lane: MixedDraft, closed: frozenset[str], fair: FairSearch | None
    ) -> bool | list[NeededRange]:
        """Put the first job in front that is wanted: see ``MixedDraft.bring``.

        ``fair``: that of a group whose turn it is. None, where groups share alike: that without a group.
        """
        draft = self._draft
        room = limits.READY_BYTES_MAX - sum([each.ready_bytes for each in draft.lanes.values()])
        if fair is not None:
            fair.begin()
        while True:
            wanted = self._wanted_of(closed, priority, fair)
            found = lane.bring(wanted, draft.blocks, draft.tombstones, room)
            if found is not False or fair is None or not fair.widen():
                return found

    def _wanted_of(self, closed: frozenset[str], priority: int, fair: FairSearch | None) -> Wanted:
        part, alike = fair is not None, self._share is None
        place = (closed, 0 if alike else priority, fair.step if fair is not None else 0)
        known, wanted = self._wanted.get(part, (None, None))
        if wanted is None or known != place:
            wanted = Wanted(self._kinds, closed, self.groups, self._count, fair, part or alike)
            self._wanted[part] = place, wanted
        return wanted

    def _most_urgent(self) -> list[tuple[int, BacklogDraft]]:
        """The lanes of the most urgent priority in which jobs wait that may start; with ageing, of all priorities."""
        lanes: list[tuple[int, BacklogDraft]] = []
        first, all_ = 0, bool(self._draft.settings.ageing_ms)
        free = self._gate is None and self._kinds is None
        for (priority, kind), lane in self._draft.lanes.items():
            may_start = (free and kind != MIXED) or self._may_start(priority, kind)
            if (not lanes or all_ or priority <= first) and lane and may_start:
                same = lanes and (all_ or priority == first)
                lanes = [*lanes, (priority, lane)] if same else [(priority, lane)]
                first = priority
        return lanes

    def _may_start(self, priority: int, kind: str) -> bool:
        gate = self._gate
        if kind == MIXED:
            barren = self._barren.get(priority) if self._barren else None
            return not (gate is not None and gate.is_shut) and (
                barren is None or barren != self._closed(priority)
            )
        return _wants(self._kinds, kind) and (gate is None or gate.room_for(kind) > 0)

    def _closed(self, priority: int) -> frozenset[str]:
        """Kinds that are not taken from the mixed lane: they may not start, or have older jobs elsewhere."""
        lanes = self._draft.lanes.items()
        own = [kind for (other, kind), lane in lanes if other == priority and kind != MIXED and lane]
        return frozenset(own if self._gate is None else [*own, *self._gate.closed_kinds()])

    def why_groups_wait(self) -> Closed | None:
        """Why jobs wait that it would take if their groups were open, as far as the head tells; None: none does."""
        draft = self._draft
        if not draft.leases and not draft.holds and draft.starts is NO_STARTS:
            return None
        lanes = [Lane(*place, lane.freeze()) for place, lane in draft.lanes.items() if lane.mixed and lane]
        waiting, all_known = groups_waiting(
            lanes, lambda priority: Wanted(self._kinds, self._closed(priority))
        )
        return self.groups.why_closed(waiting, all_known) if waiting else None

    def keep_starts(self) -> None:
        """Keep in the draft what rates are owed for what it has started, and how far the round of groups is."""
        draft = self._draft
        if self._gate is not None:
            draft.starts = self._gate.starts()
        if self._groups is not None:
            draft.starts = self._groups.starts(draft.starts)
        if self._share is not None:
            draft.round = self._share.round()

    def slots_wanted(self, limit: int) -> int:
        """How many slots of the limiter to borrow: what is owed, and no more than jobs might start otherwise."""
        gate = self._gate
        if gate is None or gate.slots is None:
            return 0
        slots = gate.slots
        return slots.owed + min(slots.wanted(min(limit, gate.most_otherwise)), self._jobs())

    def _jobs(self) -> int:
        return sum(waiting(lane.freeze()) for lane in self._draft.lanes.values())

    def kinds_waiting(self) -> set[str]:
        """Kinds of which jobs wait that the claim would take if they might start."""
        return kinds_waiting(
            [Lane(*place, lane.freeze()) for place, lane in self._draft.lanes.items() if lane],
            self._kinds,
            self._gate,
        )


def _wants(kinds: frozenset[str] | None, kind: str) -> bool:
    return kinds is None or kind in kinds


def kinds_waiting(lanes: Sequence[Lane], kinds: frozenset[str] | None, gate: Gate | None) -> set[str]:
    """Wanted kinds of which jobs wait, as far as the head tells: in mixed segments only those that may not start.

    Where nothing may start, of whatever kind, one stands for all that are wanted and that nobody has read.
    """
    closed = frozenset() if gate is None else gate.closed_kinds()
    shut = gate is not None and gate.is_shut
    if shut and kinds is not None:
        closed |= kinds
    found: set[str] = set()
    for lane in lanes:
        if lane.kind != MIXED:
            found.add(lane.kind)
            continue
        found.update(job.kind for jobs in (lane.backlog.ready, lane.backlog.tail) for job in jobs)
        if shut and kinds is None and lane.backlog.spans:
            found.add("")
        for kind in closed - found:
            if any(holds_kind(span.labels, kind) for span in lane.backlog.spans):
                found.add(kind)
    return {kind for kind in found if _wants(kinds, kind)}


def groups_waiting(lanes: Iterable[Lane], wanted_in: Callable[[int], Wanted]) -> tuple[set[bytes], bool]:
    """The groups of which wanted jobs wait in mixed lanes, by their digests, as far as the head tells; are they all?

    Labels may tell of groups whose jobs have all been taken.
    """
    found: set[bytes] = set()
    all_known = True
    for lane in lanes:
        wanted = wanted_in(lane.priority)
        for jobs in (lane.backlog.ready, lane.backlog.tail):
            found.update([group_digest(job.group) for job in jobs if job.group and wanted.takes(job)])
        for span in lane.backlog.spans:
            if span.labels is None:
                all_known = False
            else:
                found.update(groups_told(span.labels, wanted))
    return found, all_known


def _groups_of(head: Draft | State, now_ms: int) -> Groups:
    return Groups(head.settings, head.leases, head.holds, head.starts, now_ms)


def needs_of_claims(state: State, requests: Sequence[Request]) -> list[NeededRange]:
    """What these requests' claims will want to read, so that it can be read before the first reduction."""
    if not any(lane.backlog.spans for lane in state.lanes):
        return []
    claims = [op for request in requests for op in request.ops if isinstance(op, ClaimJobs)]
    room = (limits.LEASES_BYTES_MAX - state.leases_bytes) // LEASE_WEIGHT_MIN
    wanted = 0 if state.settings.paused else min(sum(op.limit for op in claims), room)
    if not any(lane.backlog.spans and len(lane.backlog.ready) < wanted for lane in state.lanes):
        return []
    gate = _gate_of(state)
    needs: list[NeededRange] = []
    for lane in state.lanes:  # sorted by priority
        picks = gate is not None or state.settings.fair or any(op.kinds is not None for op in claims)
        if lane.kind == MIXED and picks:
            break  # what they want of it takes a search
        if gate is not None and gate.room_for(lane.kind) <= 0:
            continue
        wanted -= len(lane.backlog.ready)
        if wanted <= 0:
            break
        needs.extend(needs_for(lane.backlog.spans, wanted))
        wanted -= sum(span.count for span in lane.backlog.spans)
    return needs


def has_claimable(state: State, kinds: Sequence[str] | None = None) -> bool:
    """Would a claim of these kinds, or of any, find a job in this head, or read a segment to find one?"""
    gate = _gate_of(state)
    if _is_shut(state, gate):
        return False
    asked = None if kinds is None else frozenset(kinds)
    mixed = any(lane.kind == MIXED for lane in state.lanes)
    groups = _groups_of(state, state.now_ms) if mixed else None
    wanted = Wanted(asked, frozenset() if gate is None else gate.closed_kinds(), groups)
    return any(_is_claimable(lane, asked, wanted, gate) for lane in state.lanes)


def is_idle(state: State, kinds: Sequence[str] | None = None) -> bool:
    """Would a claim of these kinds, or of any, surely be told that the queue is empty, and no pause or limit?"""
    if _is_shut(state, _gate_of(state)):
        return False
    asked = None if kinds is None else frozenset(kinds)
    return not any(
        lane.backlog.ready or lane.backlog.spans or lane.backlog.tail
        for lane in state.lanes
        if lane.kind == MIXED or _wants(asked, lane.kind)
    )


def _gate_of(state: State) -> Gate | None:
    return gate_of(state.settings, state.leases, state.starts, state.now_ms)


def _is_shut(state: State, gate: Gate | None) -> bool:
    """Does a claim find nothing, whatever waits?"""
    full = state.leases_bytes >= limits.LEASES_BYTES_MAX
    return state.settings.paused or full or (gate is not None and gate.is_shut)


def _is_claimable(lane: Lane, kinds: frozenset[str] | None, wanted: Wanted, gate: Gate | None) -> bool:
    backlog = lane.backlog
    if lane.kind != MIXED:
        may_start = _wants(kinds, lane.kind) and (gate is None or gate.room_for(lane.kind) > 0)
        return may_start and bool(backlog.ready or backlog.spans or backlog.tail)
    return any(wanted.takes(job) for jobs in (backlog.ready, backlog.tail) for job in jobs) or any(
        may_hold(span.labels, wanted) for span in backlog.spans
    )


def opens_ms(state: State, kinds: Sequence[str] | None = None) -> int | None:
    """When a claim of these kinds, or of any, may find more in this head by the time alone; None: it does not."""
    if state.settings.paused:
        return None
    asked = None if kinds is None else frozenset(kinds)
    gate = _gate_of(state)
    closed = None if gate is None else gate.why_closed(kinds_waiting(state.lanes, asked, gate))
    waits = [0 if closed is None else closed.wait_ms]
    mixed = [lane for lane in state.lanes if lane.kind == MIXED]
    groups = _groups_of(state, state.now_ms) if mixed and state.starts is not NO_STARTS else None
    if groups is not None and groups.rates is not None:
        waits.append(groups.rates.first_wait_ms())
    return min([state.now_ms + wait for wait in waits if wait], default=None)
