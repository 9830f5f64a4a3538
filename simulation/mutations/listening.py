"""The event log, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Submit
from osqueue.core import event_log
from osqueue.core.draft import Draft
from osqueue.core.ops import Outcome
from osqueue.core.queue_ops import RecordEvents
from osqueue.core.state import NOT_RECORDED
from osqueue.objects import event_objects
from osqueue.operations.events import EventReader

from .control import Control, dispatched, in_runs, patched

_settle, _record, _rows_behind = event_log.settle, event_log.record, event_objects.rows_behind


def _spill_all(draft: Draft) -> None:
    """The rows of this very batch leave the head with those of before."""
    _settle(draft)
    log = draft.log
    if log.first > draft.state.log.first and log.rows:
        draft.spills[-1] = event_log._spilled(
            replace(log, first=draft.state.log.first, rows=(*draft.state.log.rows, *log.rows)),
            draft.state,
        )
        draft.log = replace(log, first=log.end, rows=(), rows_bytes=0)


def _drop(draft: Draft) -> None:
    """What has no room in the head is forgotten."""
    count = len(draft.spills)
    _settle(draft)
    del draft.spills[count:]


def _at_once(draft: Draft, op: RecordEvents) -> Outcome:
    """The commit of the wish counts, although what came before it in that commit was not noted."""
    done = _record(draft, op)
    draft.recorded = draft.observed
    return done


def _never_ending(draft: Draft) -> None:
    """A log that nobody asks for any more goes on."""
    draft.recorded = draft.recorded or draft.log is not NOT_RECORDED
    _settle(draft)


def _later(root: str, epoch: int, seq: int, position: int, end: int, most: int) -> Any:
    return _rows_behind(root, epoch, seq + 1, position, end, most)


def _once(self: EventReader, shard: int) -> Any:
    yield Submit(shard, (RecordEvents(),))
    yield from self._read_heads([shard])


def own_rows_spilled() -> AbstractContextManager[None]:
    """A commit spills its own transitions before it is won."""
    return patched((event_log, "settle", _spill_all))


def dropped() -> AbstractContextManager[None]:
    """Older rows leave the head for nowhere."""
    return patched((event_log, "settle", _drop))


def positions_again() -> AbstractContextManager[None]:
    """Each recording begins at the same position."""
    return patched((event_log, "first_after", lambda seq: 1))


def recorded_at_once() -> AbstractContextManager[None]:
    """Recording begins in the middle of a commit."""
    return dispatched(RecordEvents, _at_once)


def recorded_for_ever() -> AbstractContextManager[None]:
    """Nothing ends a recording."""
    return patched((event_log, "settle", _never_ending))


def cursors_ahead() -> AbstractContextManager[None]:
    """A reader looks for objects from a later head on than its cursor tells."""
    return patched((event_objects, "rows_behind", _later))


def heads_read_once() -> AbstractContextManager[None]:
    """A reader believes a head although the recording ended before it was read."""
    return patched((EventReader, "_record", _once))


CONTROLS: tuple[Control, ...] = (
    Control("only committed rows are spilled", own_rows_spilled, (in_runs("events", "was never committed"),)),
    Control("rows are spilled before they leave", dropped, (in_runs("events", "had to find"),)),
    Control(
        "positions are given once", positions_again, (in_runs("events", "given before|two transitions"),)
    ),
    Control(
        "recording begins with a commit",
        recorded_at_once,
        (in_runs("events", "nobody asked for|were recorded of", seed=3),),
    ),
    Control("recording ends", recorded_for_ever, (in_runs("events", "nobody asked for"),)),
    Control(
        "a head without a recording is read again",
        heads_read_once,
        (in_runs("events", "all that was", seed=6),),
    ),
    Control("a cursor tells where to look", cursors_ahead, (in_runs("events", "had to find"),)),
)
