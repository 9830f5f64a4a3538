"""The event log of a shard: its committed transitions, in order, for as long as somebody listens.

A listener asks for them to be recorded (``record``). From the next commit on every commit adds its own transitions to
the head, until ``EVENTS_KEPT_MS`` after the latest such wish. When they exceed their budget the rows that the head
already held become an *event object*, written before the commit that drops them from the head. So an object never
tells of what was not committed, whoever wins: no pointer to it is needed, and a listing finds it by its name.

    events/<born>-<end>-<rows>-<at>-<epoch>   the seq of the head that held its rows, the position behind its last
                                              row, how many there are, the time of the last one, and the head's
                                              epoch, in hex
    object   block … block | frame "OSQF" of the footer | length of the footer frame (4 bytes)
    block    frame "OSQE" | four zero bytes, where segments tell of the next block | MessagePack of transitions

Each transition of a shard has a *position*, one more than the one before it. Where recording begins, and where a head
is restored, positions leap to ``POSITIONS_PER_COMMIT`` times the seq, past all that were ever given: whoever goes on
from an older position finds a gap, and nothing is passed over in silence. Nothing refers to the objects: they are
collected once they are older than the collector's horizon.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..errors import Damaged
from .context import StagedObject
from .draft import Draft
from .encoding import (
    BlockInfo,
    Footer,
    cut_rows,
    decode_footer,
    encode,
    frame,
    pack_length,
    unframe,
)
from .ops import Code, Outcome, outcome
from .queue_ops import RecordEvents
from .state import NOT_RECORDED, EventLog, State, Transition

FOLDER = "events"
MAGIC = b"OSQE"
POSITIONS_PER_COMMIT = 1 << 24  # more transitions than one commit makes

decode_events = msgspec.msgpack.Decoder(tuple[Transition, ...]).decode


class EventObject(Struct, frozen=True):
    """An event object, as its name tells of it."""

    name: str
    born: int
    first: int  # the position of its first row
    end: int  # and the one behind its last row
    at_ms: int  # the time of the last row
    epoch: int  # of the head


def event_weight(event: Transition) -> int:
    """The bytes of a recorded transition."""
    return len(encode(event))


def first_after(seq: int) -> int:
    """A position past all those of commits up to this one."""
    return (seq + 1) * POSITIONS_PER_COMMIT


# ── In the head ──────────────────────────────────────────────────────────────
def record(draft: Draft, op: RecordEvents) -> Outcome:
    """Record transitions, from the next commit on where none were recorded, for another while."""
    until = draft.latest + limits.EVENTS_KEPT_MS
    log = draft.log
    if not log.is_recorded_at(draft.now):
        _let_go(draft)
        draft.log = EventLog(until, first_after(draft.state.seq + 1))
        draft.changed = True
    elif until > log.until_ms:
        draft.log = replace(log, until_ms=until)
        draft.changed = True
    return outcome([Code.OK])


def settle(draft: Draft) -> None:
    """The end of a reduction: take in its transitions, and move older ones out of the head."""
    log = draft.log
    if not draft.recorded:
        if not log.is_recorded_at(draft.now):  # nobody has listened for long
            _let_go(draft)
        return
    more = tuple(draft.events)
    size = sum(map(event_weight, more))
    if size > limits.EVENTS_OF_A_COMMIT_BYTES_MAX:
        more = tuple([replace(each, client_id=None, headers=()) for each in more])
        size = sum(map(event_weight, more))
    size += log.rows_bytes
    if size > limits.EVENTS_BYTES_MAX and _is_spilled(draft):
        size -= log.rows_bytes
        log = replace(log, first=log.end, rows=())
    if more or log is not draft.log:
        draft.log = replace(log, rows=(*log.rows, *more), rows_bytes=size)


def _let_go(draft: Draft) -> None:
    """The end of a recording: what the head still holds of it is kept beside it."""
    _is_spilled(draft)
    draft.log = NOT_RECORDED


def _is_spilled(draft: Draft) -> bool:
    """Move the rows that the head held before this reduction into an object, if there are any."""
    log = draft.log
    if not log.rows or log.rows is not draft.state.log.rows:
        return False
    draft.spills.append(_spilled(log, draft.state))
    return True


def _spilled(log: EventLog, state: State) -> StagedObject:
    """The object of the rows of a head. Whoever spills the rows of this head writes the same one."""
    name = (
        f"{FOLDER}/{state.seq:012x}-{log.end:016x}-{len(log.rows):x}-{log.rows[-1].at_ms:x}-{state.epoch:x}"
    )
    return StagedObject(name, encode_events(log.rows))


def of_a_new_life(log: EventLog, seq: int) -> EventLog:
    """The log of a restored head: recorded as before, and nothing is known of what happened since the backup."""
    return EventLog(log.until_ms, first_after(seq)) if log.until_ms else log


def at_another_time(log: EventLog, now_ms: int) -> EventLog:
    """The log of a head whose clock is set: it is not recorded for longer than ever asked for."""
    return replace(log, until_ms=min(log.until_ms, now_ms + limits.EVENTS_KEPT_MS)) if log.until_ms else log


# ── Objects ──────────────────────────────────────────────────────────────────
def encode_events(rows: Sequence[Transition]) -> bytes:
    """An event object."""
    blocks: list[bytes] = []
    infos: list[BlockInfo] = []
    for run, body in cut_rows(rows):
        blocks.append(frame(MAGIC, pack_length(0) + body))
        infos.append(BlockInfo(sum(map(len, blocks[:-1])), len(blocks[-1]), len(run), b"", b""))
    footer = frame(b"OSQF", encode(Footer(tuple(infos), ())))
    return b"".join((*blocks, footer, pack_length(len(footer))))


def rows_of(data: bytes, name: str) -> tuple[Transition, ...]:
    """The rows of an event object. Raises Damaged or NewerFormat."""
    footer = decode_footer(data, name)
    if not isinstance(footer, Footer):
        raise Damaged(f"{name} is cut short. See docs/operations.md.")
    found: list[Transition] = []
    for info in footer.blocks:
        rest = unframe(MAGIC, data[info.offset : info.offset + info.length], name)
        try:
            found.extend(decode_events(rest[4:]))
        except msgspec.MsgspecError as error:
            raise Damaged(f"{name} cannot be decoded: {error}") from error
    return tuple(found)


def object_of(name: str) -> EventObject | None:
    """What a name tells of an event object; None for the name of something else."""
    try:
        born, end, rows, at_ms, epoch = (int(part, 16) for part in name.removeprefix(f"{FOLDER}/").split("-"))
    except ValueError:
        return None
    return EventObject(name, born, end - rows, end, at_ms, epoch)
