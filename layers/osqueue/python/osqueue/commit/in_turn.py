"""Commits in turn: how the writers of one machine share a head, where the store lets them take turns.

Writers on S3 race for the head, because nobody can tell them whose turn it is. Where a store can (a folder: the
kernel's locks), a writer leaves a note with its request and waits for the turn. Whoever has the turn reads what
changed, applies *every* request it finds noted together with its own in one commit, and hands the outcomes over with
the turn. So contention makes batches larger, nobody loses a race, and no pause is guessed. This is flat combining
(D. Hendler et al., 2010) with the lock's waiters as its publication list.

    leave a note, wait for the turn ── answered ──▶ the outcomes, from whoever applied the note
                 │ my turn                └─ nobody passes it on ──▶ race for the head, as on S3
                 ▼
    GET head ── my row is there ──▶ answer, pass the turn on
                 │ not yet
                 ▼
    reduce my request and all noted ones, PUT head If-Match ──▶ answer, pass the turn and the outcomes on

A writer that has met no other for a while commits without a turn. Its swap *yields*: the store refuses it while another
has the turn. So a writer that joins loses one swap at most to it.

A turn makes a commit cheap, it does not make it safe. A holder may have been stopped and may go on when others have
done without it; a note may be read twice, or after its writer has given up. The head is swapped as ever, and its
session rows decide what was applied: see ``protocol``.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from .. import limits
from ..core.encoding import encode
from ..core.ops import Identity, Outcome, Request
from ..core.reduce import applicable
from ..stores.base import Answered, PassTurn, Refused, TakeTurn, Turn
from .effects import Flow, Performer
from .request_status import CommitResult
from .steps import Steps
from .writer import HEAD, ShardWriter

WAIT_SECONDS_MAX = 1.0  # for a turn that nobody passes on; longer means that its holder stands still
SWAPS_MAX = 3  # that the holder of a turn loses to those who did without it, before it does so too
NOTE_FORMAT = 1  # a note or an answer of another release is not read


class HandedOver(Struct, frozen=True, array_like=True):
    """What the holder of the turn tells the writer whose note it applied."""

    form: int
    nonce: int  # of the request
    outcomes: tuple[Outcome, ...]
    now_ms: int


class Note(Struct, frozen=True, array_like=True):
    """What a writer who waits for the turn leaves for its holder."""

    form: int
    request: Request


_decode_note = msgspec.msgpack.Decoder(Note).decode
_decode_answer = msgspec.msgpack.Decoder(HandedOver).decode


def commit_in_turn(steps: Steps, request: Request) -> Flow[CommitResult | None]:
    """Commit when it is this writer's turn, or hear from the holder of the turn. None: do without a turn."""
    writer, deadline = steps.writer, steps.deadline
    wait_seconds = max(0.0, min(WAIT_SECONDS_MAX, deadline.left() / 2))
    note = encode(Note(NOTE_FORMAT, request))
    reply = yield TakeTurn(writer.root + HEAD, note, wait_seconds)
    if not isinstance(reply, Turn):
        deadline.complain(reply)
        # An interrupted wait brings Failed: its note may have been left.
        deadline.sent = deadline.sent or not isinstance(reply, Refused) or reply.noted
        if not isinstance(reply, Answered):
            return None
        writer.shared = True
        return _handed_over(reply.answer, request) or (
            yield from steps.look(request, (yield from steps.reread()))
        )
    writer.turn = reply
    deadline.sent = deadline.sent or reply.noted
    try:
        answer, answers = yield from _lead(steps, request, reply.notes)
    except Exception:
        yield PassTurn(reply)
        writer.turn = None
        raise
    yield PassTurn(reply, answers)
    writer.turn = None
    return answer


def give_up_turn(writer: ShardWriter, store: Performer) -> None:
    """Let others have the turn of a commit that was interrupted: nobody may come to resume it, or only much later."""
    if writer.turn is not None:
        store.perform(PassTurn(writer.turn))
        writer.turn = None


def _lead(
    steps: Steps, request: Request, notes: Sequence[bytes]
) -> Flow[tuple[CommitResult | None, tuple[tuple[int, bytes], ...]]]:
    """Commit the request, and those of notes; its answer, and theirs by the position of their notes."""
    noted = [(at, each) for at, each in _read(notes) if each.identity != request.identity]
    for _ in range(SWAPS_MAX):
        head = yield from steps.reread()
        answer = yield from steps.look(request, head)
        # Those that were applied, or never will be, read it in the head.
        told = [(at, b"") for at, each in noted if not applicable(head.state, each)]
        if answer is not None:
            return answer, tuple(told)
        others = [(at, each) for at, each in noted if applicable(head.state, each)]
        answer = yield from steps.apply(request, head, [each for _, each in others])
        if answer is not None:
            for at, each in others:
                outcomes = steps.applied.get(each.identity)
                if outcomes is not None:
                    told.append((at, encode(HandedOver(NOTE_FORMAT, each.nonce, outcomes, answer.now_ms))))
            return answer, tuple(told)
    return None, ()


def _read(notes: Sequence[bytes]) -> list[tuple[int, Request]]:
    """The requests of those notes that this release can read, with their positions; as many as one commit takes."""
    found: dict[Identity, tuple[int, Request]] = {}
    room = limits.INTENT_BYTES_PER_COMMIT_MAX
    for at, data in enumerate(notes[: limits.INTENTS_PER_COMMIT_MAX]):
        room -= len(data)
        if room < 0:
            break
        try:
            note = _decode_note(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if note.form == NOTE_FORMAT:
            found[note.request.identity] = at, note.request
    return list(found.values())


def _handed_over(data: bytes, request: Request) -> CommitResult | None:
    """Return what the holder of the turn handed over, or None if it belongs to another request or cannot be read.

    A store may deliver a late answer to an earlier request: the nonce tells.
    """
    try:
        handed = _decode_answer(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    mine = (handed.form, handed.nonce) == (NOTE_FORMAT, request.nonce)
    return CommitResult(handed.outcomes, handed.now_ms) if mine else None
