"""Slots of a limiter for a shard, as flows: borrow a block for a claim, look at the limiter. See ``core.lending``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Machine
from ..commit.effects import Flow, QueueFlow, Submit
from ..commit.pacer_writer import PacerWriter
from ..commit.retry import HEAD_READ, ask
from ..commit.writer import HEAD, ShardWriter
from ..core.encoding import decode_head
from ..core.job_ops import ClaimJobs
from ..core.lending import AHEAD_US, LIFE_US_MIN, LentSlots, life_us, runs_of
from ..core.ops import Code, Outcome
from ..core.pacing import exists, head_us, next_us, own_us, slot_of
from ..core.queue_ops import ReserveSlots
from ..core.rows import Lent
from ..core.state import State, waiting
from ..errors import NotFound, Rejected
from ..model.explain import duration_text, iso, when
from ..model.fields import moment
from ..model.reports import LimiterUse
from ..objects.layout import root_of_pacer, unavailable
from ..stores.base import Found, Get, Missing, Store
from .context import Writers

ClaimIn = Callable[[int, ClaimJobs], QueueFlow[Outcome]]  # makes a claim in one shard
DEPOSIT_US = (
    LIFE_US_MIN // 2
)  # that a deposit may take; where commits take longer, slots are reserved for later
PAUSED_MS = 2_000  # between two tries to borrow from a paused limiter
SOON_MS = 50  # after which a claim is made again that found its borrowed slots gone


def limiter_writer(limiter: str, machine: Machine, store: Store) -> PacerWriter:
    """Who changes a limiter's head."""
    return PacerWriter.on(store, root_of_pacer(limiter), limiter, machine)


class Loan(Struct, frozen=True):
    """What a limiter gave."""

    lent: Lent | None  # None: nothing
    wait_ms: int = 0  # nothing: for so long there will be nothing


def borrower_of(queue: str, shard: int) -> bytes:
    """A shard, as a limiter counts it."""
    return blake2b(f"{queue}/{shard}".encode(), digest_size=8).digest()


def borrow(
    limiter: str, lender: ShardWriter, queue: str, shard: int, writer: ShardWriter, wanted: int
) -> QueueFlow[Loan]:
    """Reserve slots for a shard, of which ``writer`` writes the head, unless they would be over by its head's time.

    Raises NotFound where there is no such limiter: nothing starts then.
    """
    lead_us = min(AHEAD_US, max(0, round(writer.commit_seconds * 1e6) - DEPOSIT_US))
    op = ReserveSlots(max(1, wanted), 1, AHEAD_US, lead_us, borrower_of(queue, shard))
    while True:
        over_ms = _over_ms(lender, writer)
        if over_ms and lender.clock_is_due():
            yield from lender.tell_time()
            over_ms = _over_ms(lender, writer)
        if over_ms:
            return Loan(None, over_ms)
        answer = yield Submit(limiter, (op,))
        outcome = answer.outcomes[0]
        if outcome.code == Code.NOT_FOUND:
            raise NotFound(_missing(limiter, f"no job of queue {queue} starts"))
        if outcome.code == Code.PAUSED:
            return Loan(None, PAUSED_MS)
        if outcome.count:
            break
        if not lender.clock_is_due():
            away_us = slot_of(op, outcome).at_us - AHEAD_US - outcome.runs[2][0] + lead_us
            return Loan(None, max(1, -(-away_us // 1000)))
        yield from lender.tell_time()  # nothing was written, so nobody has asked for the time yet
    (_, count), (_, base), (start, epoch), (interval, burst) = outcome.runs
    return Loan(Lent(limiter, epoch, runs_of(start, base, interval, burst, count)))


def _over_ms(lender: ShardWriter, writer: ShardWriter) -> int:
    """For how long slots are over when they come to a shard that is ahead of its limiter; 0: they are not."""
    known, head = lender.head, writer.head
    if known is None or head is None or not exists(known.state.pacer):
        return 0
    row, ahead_ms = known.state.pacer, writer.now_ms(head.state) - lender.now_ms(known.state)
    return max(0, ahead_ms - life_us(row.interval_us, row.burst) // 1000 + 1)


class Borrower:
    """A claim that goes through the shards of a queue. It borrows for one of them, and asks its limiter once."""

    def __init__(self, queue: str, writers: Writers, claim_in: ClaimIn) -> None:
        self._queue = queue
        self._writers = writers
        self._claim_in = claim_in
        self._loan: Loan | None = None

    def claim(self, shard: int, op: ClaimJobs, outcome: Outcome) -> QueueFlow[Outcome]:
        """What becomes of a claim that was limited in a shard: by more slots, where the limiter gives some."""
        lacks = outcome.code == Code.NO_SLOTS
        writer = self._writers[shard]
        state = writer.head.state if writer.head is not None else None
        if state is None:
            return outcome
        wanted = outcome.count if lacks else _wanted_soon(state, op, writer.now_ms(state))
        limiter = state.settings.limiter
        if self._loan is None and wanted:
            self._loan = yield from borrow(
                limiter, self._writers[limiter], self._queue, shard, writer, wanted
            )
            if self._loan.lent is not None:
                outcome = yield from self._claim_in(shard, replace(op, lent=self._loan.lent))
                # It may have come too late, or others have used all of it up.
                return Outcome(((Code.NO_SLOTS, SOON_MS),)) if outcome.code == Code.NO_SLOTS else outcome
        if not lacks:
            return outcome
        return Outcome(((Code.NO_SLOTS, 0 if self._loan is None else self._loan.wait_ms),))


def _wanted_soon(state: State, op: ClaimJobs, now_ms: int) -> int:
    """How many slots to borrow for a shard that has some for later; 0: it has enough for now."""
    slots = LentSlots(state.settings.limiter, state.starts.lent, now_ms * 1000)
    lacking = sum(waiting(lane.backlog) for lane in state.lanes) + slots.owed - slots.all_left
    return min(slots.wanted(op.limit), lacking) if slots.is_short and lacking > 0 else 0


def limiter_state(limiter: str) -> Flow[State | None]:
    """The limiter's head as it is now; None where there is none. Raises Unavailable."""
    reply = yield from ask(Get(root_of_pacer(limiter) + HEAD, flushed=True), HEAD_READ)
    if isinstance(reply, Found):
        state = decode_head(reply.body)
        return state if exists(state.pacer) else None
    if isinstance(reply, Missing):
        return None
    raise unavailable(reply, "the limiter's head")


def refuse_missing(limiter: str) -> Flow[None]:
    """Raises Rejected where there is no limiter of this name."""
    if (yield from limiter_state(limiter)) is None:
        raise Rejected(_missing(limiter, "nothing was changed"), field="limiter")


def _missing(limiter: str, so: str) -> str:
    return (
        f"limiter {limiter}: there is no pacer of this name at this address, so {so}. Create it ('osqueue pacer create"
        f" ADDRESS {limiter} --interval 1s'), or let go of it ('osqueue queue configure ADDRESS QUEUE --no-limiter')."
    )


# ── What is told of it ───────────────────────────────────────────────────────
def next_slot_ms(state: State, now_ms: int) -> int:
    """When the limiter has its next slot, in the head's time."""
    row = state.pacer
    return -(-head_us(row, next_us(row, own_us(row, now_ms)), now_ms) // 1000)


def limiter_held(state: State, limiter: State | None, now_ms: int) -> str:
    """Why no job of a shard starts as far as its limiter says; "" where one may."""
    name = state.settings.limiter
    if limiter is None:
        return _missing(name, "no job starts")
    row, slots = limiter.pacer, LentSlots(name, state.starts.lent, max(now_ms, state.now_ms) * 1000)
    if slots.left:
        return ""
    rate = f"{row.burst:,} at once, and one in {duration_text(row.interval_us / 1e6)} on average"
    if row.paused_ms and slots.is_lacking:
        since = iso(moment(row.paused_ms))
        return f"limiter {name!r} is paused since {since}; nothing starts before 'osqueue pacer resume ADDRESS {name}'"
    now_ms = max(now_ms, limiter.now_ms)
    at_ms = next_slot_ms(limiter, now_ms) if slots.is_lacking else now_ms + slots.wait_ms()
    if at_ms <= now_ms:
        return ""
    at = when(moment(at_ms), moment(now_ms))
    owed = f", and {slots.owed:,} are owed for what started" if slots.owed else ""
    return f"limiter {name!r} gives slots to all that share it: {rate}; the next is {at}{owed}"


def limiter_use(name: str, limiter: State | None, states: Sequence[State], now_ms: int) -> LimiterUse:
    """A queue's limiter, and the slots that its shards have of it."""
    lent = sum(slots_lent(state, now_ms) or 0 for state in states)
    if limiter is None:
        return LimiterUse(name, lent, missing=True)
    row, now_ms = limiter.pacer, max(now_ms, limiter.now_ms)
    at_ms = next_slot_ms(limiter, now_ms)
    return LimiterUse(
        name,
        lent,
        row.interval_us / 1e6,
        row.burst,
        moment(at_ms) if at_ms > now_ms else None,
        moment(row.paused_ms) if row.paused_ms else None,
    )


def slots_lent(state: State, now_ms: int) -> int | None:
    """The slots that a shard has; None: it has no limiter."""
    name = state.settings.limiter
    return LentSlots(name, state.starts.lent, max(now_ms, state.now_ms) * 1000).all_left if name else None
