"""Which job a claim takes next: the most urgent that is wanted and may start.

Lanes of one priority are compared by their first jobs, so kinds do not starve each other. When a lane's next jobs lie
in a segment that has not been read there is no next job yet: taking a less urgent one instead would break the order.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import limits
from .backlog import BacklogDraft, NeededRange, needs_for
from .draft import Draft
from .gate import Gate, gate_of
from .groups import Groups
from .job_ops import ClaimJobs
from .labels import holds_kind, may_hold
from .mixed import MixedDraft, Wanted
from .ops import Request
from .state import MIXED, Lane, State
from .weights import LEASE_WEIGHT_MIN


class ClaimSearch:
    """The search of one claim in one reduction."""

    def __init__(self, draft: Draft, kinds: Sequence[str] | None, gate: Gate | None) -> None:
        self._draft = draft
        self._kinds = None if kinds is None else frozenset(kinds)
        self._gate = gate
        self.groups = Groups(draft.settings, draft.leases, draft.holds)
        self._barren: dict[
            int, frozenset[str]
        ] = {}  # priorities whose mixed lane has nothing while these are closed

    def next_lane(self) -> tuple[BacklogDraft | None, bool]:
        """The lane of the next job, which is ready in it; among kinds of one priority, the one whose job came first.

        Also whether it is alone in its priority: then it stays the most urgent for as long as jobs are ready in it.
        """
        draft = self._draft
        while found := self._most_urgent():
            priority, lanes = found
            mixed = next((lane for lane in lanes if isinstance(lane, MixedDraft)), None)
            is_any = True
            if mixed is not None:
                closed = self._closed(priority)
                wanted = Wanted(self._kinds, closed, self.groups)
                room = limits.READY_BYTES_MAX - sum([lane.ready_bytes for lane in draft.lanes.values()])
                brought = mixed.bring(wanted, draft.blocks, draft.tombstones, room)
                if brought is False:
                    self._barren[priority] = closed
                    continue
                if brought is not True:
                    for need in brought:
                        draft.need(need)
                    break
                is_any = wanted.is_any and self._gate is None
            lane = min(lanes, key=BacklogDraft.head_key) if len(lanes) > 1 else lanes[0]
            if lane.ready:
                return lane, is_any and len(lanes) == 1
            unread = lane.refill(draft.blocks, draft.tombstones)
            if unread is not None:
                draft.need(unread)
                break
            # Now its first key is known, not only a lower bound of it (or it was empty): look again.
        return None, True

    def _most_urgent(self) -> tuple[int, list[BacklogDraft]] | None:
        """The most urgent priority in which jobs wait that may start, and their lanes."""
        lanes: list[BacklogDraft] = []
        first = 0
        for (priority, kind), lane in self._draft.lanes.items():
            if (not lanes or priority <= first) and lane and self._may_start(priority, kind):
                lanes = [*lanes, lane] if lanes and priority == first else [lane]
                first = priority
        return (first, lanes) if lanes else None

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

    def waits_for_groups(self) -> bool:
        """Would it find some if all groups were open?"""
        lanes = [(*place, lane) for place, lane in self._draft.lanes.items() if lane.mixed and lane]
        return any(
            _is_claimable(
                Lane(priority, kind, lane.freeze()),
                self._kinds,
                Wanted(self._kinds, self._closed(priority)),
                self._gate,
            )
            for priority, kind, lane in lanes
        )

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
    """Wanted kinds of which jobs wait, as far as the head tells: in mixed segments only those that may not start."""
    closed = frozenset() if gate is None else gate.closed_kinds()
    found: set[str] = set()
    for lane in lanes:
        if lane.kind != MIXED:
            found.add(lane.kind)
            continue
        found.update(job.kind for jobs in (lane.backlog.ready, lane.backlog.tail) for job in jobs)
        for kind in closed - found:
            if any(holds_kind(span.labels, kind) for span in lane.backlog.spans):
                found.add(kind)
    return {kind for kind in found if _wants(kinds, kind)}


def needs_of_claims(state: State, requests: Sequence[Request]) -> list[NeededRange]:
    """What these requests' claims will want to read, so that it can be read before the first reduction."""
    if not any(lane.backlog.spans for lane in state.lanes):
        return []
    claims = [op for request in requests for op in request.ops if isinstance(op, ClaimJobs)]
    room = (limits.LEASES_BYTES_MAX - state.leases_bytes) // LEASE_WEIGHT_MIN
    wanted = 0 if state.settings.paused else min(sum(op.limit for op in claims), room)
    gate = gate_of(state.settings, state.leases, state.starts, state.now_ms)
    needs: list[NeededRange] = []
    for lane in state.lanes:  # sorted by priority
        if lane.kind == MIXED and (gate is not None or any(op.kinds is not None for op in claims)):
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
    if state.settings.paused or state.leases_bytes >= limits.LEASES_BYTES_MAX:
        return False
    gate = gate_of(state.settings, state.leases, state.starts, state.now_ms)
    if gate is not None and gate.is_shut:
        return False
    asked = None if kinds is None else frozenset(kinds)
    groups = Groups(state.settings, state.leases, state.holds)
    wanted = Wanted(asked, frozenset() if gate is None else gate.closed_kinds(), groups)
    return any(_is_claimable(lane, asked, wanted, gate) for lane in state.lanes)


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
    gate = gate_of(state.settings, state.leases, state.starts, state.now_ms)
    if gate is None or state.settings.paused:
        return None
    closed = gate.why_closed(kinds_waiting(state.lanes, None if kinds is None else frozenset(kinds), gate))
    return None if closed is None or not closed.wait_ms else state.now_ms + closed.wait_ms
