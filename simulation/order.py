"""First in, first out: what a commit may do to the order of the jobs of one priority, kind and group."""

from __future__ import annotations

from collections.abc import Sequence

from osqueue.core.state import MIXED, State, Transition

from .ledger import Violation
from .places import SegmentCache

FROM_A_WORKER = ("stalled", "release", "replace")
COMES_BACK = (*FROM_A_WORKER, "due", "redrive")  # to the front of its group, which waits for it

Lane = tuple[int, str, str]


def orders(state: State, library: SegmentCache) -> dict[Lane, list[bytes]]:
    """The keys of the jobs of every priority, kind and group, from the front; mixed lanes have the younger ones."""
    gone = set(state.tombstones)
    found: dict[Lane, list[bytes]] = {}
    for lane in sorted(state.lanes, key=lambda each: each.kind == MIXED):
        for job in library.backlog(lane.backlog):
            if job.key not in gone or job in lane.backlog.ready:
                found.setdefault((job.priority, job.kind, job.group), []).append(job.key)
    return found


def check(
    before: dict[Lane, list[bytes]], after: dict[Lane, list[bytes]], events: Sequence[Transition]
) -> None:
    """Who stays keeps the order; who comes joins the back, unless it comes back or for one; the first is claimed."""
    touched = {event.key: event.cause for event in events}
    claimed = {event.key for event in events if event.cause == "claim"}
    for lane, was in before.items():
        now = after.get(lane, [])
        present, past = set(now), set(was)
        stay = [key for key in was if key in present and key not in touched]
        staying = set(stay)
        if [key for key in now if key in staying] != stay:
            raise Violation(f"the order of lane {lane} changed")
        first = len(was)
        for at, key in enumerate(was):
            if key in staying:
                first = min(first, at)
            elif key in claimed and at > first:
                raise Violation(f"a job of lane {lane} was claimed before an older one")
        last = max((at for at, key in enumerate(now) if key in staying), default=-1)
        for key in now[: last + 1]:
            if key not in past and touched.get(key) not in (COMES_BACK if lane[2] else FROM_A_WORKER):
                raise Violation(
                    f"a job joined lane {lane} in front of an older one ({touched.get(key, 'attach')})"
                )
