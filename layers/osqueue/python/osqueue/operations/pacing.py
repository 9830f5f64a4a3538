"""What the methods of a pacer do, as flows: reserve a slot, wait for it, look at the pacer, steer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..clock import Machine, Moment
from ..commit.effects import Flow, QueueFlow, Sleep, Submit
from ..commit.pacer_writer import PacerWriter
from ..commit.retry import HEAD_READ, ask
from ..commit.writer import HEAD
from ..core.encoding import decode_head
from ..core.ops import Code
from ..core.pacing import Slot, burst_of, exists, head_us, slot_of
from ..core.queue_ops import ChangePacer, ReserveSlots, ReturnSlot
from ..core.state import NO_PACER, PacerRow
from ..errors import Conflict, NotFound, Rejected, Throttled, shown
from ..model.pacer import PacerStatus, status_of
from ..model.validation import microseconds, whole_number
from ..objects.layout import PACERS, register_pacer, registered, unavailable
from ..stores.base import Found, Get, Missing, Unchanged

IfExists = Literal["keep", "reset", "fail"]
IF_EXISTS: tuple[IfExists, ...] = ("keep", "reset", "fail")
LOOK_SECONDS_MAX = 60.0  # between two looks of a holder whose slot is far ahead
LEAD_MS_FIRST = 100.0  # that an answer is thought to take from a store whose time has to be asked for
LEAD_MS_MAX = 2_000.0  # more would cost others their slots
LEAD_DECAY = 0.7  # of the longest way that an answer took lately, with each further one
SLOTS_MISSED_MAX = 20  # by one caller in a row
GRACE_SHARE = 10  # a slot may be used for a tenth of the interval


class StartPace(Struct, frozen=True):
    """How soon a pause is known to the holders of slots, by what a look at the pacer costs."""

    checked: float  # seconds: no start by a look that was sent earlier
    ahead: float  # seconds before a slot at which its holder looks
    paused: float  # seconds between two looks at a paused pacer
    rest_ms: int  # a resumed pacer stands still for this time: by then all holders have looked

    @property
    def pause(self) -> float:
        """Seconds after a pause when no holder starts: all looks are too old, and half as long for slow machines."""
        return 1.5 * self.checked


PRICED = StartPace(checked=1.0, ahead=0.5, paused=1.0, rest_ms=2_000)
FREE = StartPace(checked=0.2, ahead=0.1, paused=0.08, rest_ms=100)


class HeldSlot(Struct, frozen=True):
    """A slot that was reserved, and what its holder knows of the pacer."""

    slot: Slot
    row: PacerRow  # as it was seen last
    version: str | None  # of the head it was seen in
    seen: Moment  # when the request was sent that showed it
    now_ms: int  # the head's time when the slot was given
    heard: Moment  # when the holder was told


class PacerFlows:
    """The flows of one pacer."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        writer: Callable[[], PacerWriter],
        grace_us: int | None,
        ahead_us: int,
        pace: StartPace = PRICED,
    ) -> None:
        self.name = name
        self.machine = machine
        self.grace_us = grace_us  # how late a slot may be used; None: as the interval says
        self.ahead_us = ahead_us
        self.pace = pace
        self._writer = writer
        self._lead_ms: float | None = None  # how long answers are on their way

    @property
    def writer(self) -> PacerWriter:
        """That of this process."""
        return self._writer()

    # ── Steering ─────────────────────────────────────────────────────────────
    def create(self, interval: Any, burst: Any, if_exists: Any) -> QueueFlow[PacerStatus]:
        """Make the pacer; answers the settings that hold."""
        created = PacerRow(
            microseconds(interval, "interval", limits.PACER_INTERVAL_MS_MIN, limits.PACER_INTERVAL_MS_MAX),
            whole_number(burst, "burst", 1, limits.PACER_BURST_MAX),
            epoch=self.machine.bits(32),
        )
        if not isinstance(if_exists, str) or if_exists not in IF_EXISTS:
            raise Rejected(
                f"if_exists: {shown(if_exists)} is none of 'keep' (the one there is), 'reset' (begin again with these"
                " settings) and 'fail' (raise Conflict).",
                field="if_exists",
            )
        row, _ = yield from self._known()
        if not exists(row):
            yield from register_pacer(self.name)
        answer = yield Submit(0, (ChangePacer(created, reset=if_exists == "reset"),))
        if if_exists == "fail" and answer.outcomes[0].code == Code.DUPLICATE:
            raise Conflict(
                f"pacer {self.name}: it exists, and was left as it is. Use if_exists='keep' to take it as it is, or"
                " 'reset' to begin again."
            )
        return (yield from self.status())

    def pause(self, paused: bool) -> QueueFlow[PacerStatus]:
        """Let the pacer's time stand still, or go on. Return from a pause when no holder starts by an older look."""
        yield from self._change(ChangePacer(paused=paused, rest_ms=self.pace.rest_ms))
        if paused:
            yield Sleep(self.pace.pause)
        return (yield from self.status())

    def remove(self) -> QueueFlow[None]:
        """Remove the pacer. Whoever waits for a slot is told so."""
        return self._change(ChangePacer(removed=True))

    def _change(self, op: ChangePacer) -> QueueFlow[None]:
        answer = yield Submit(0, (op,))
        if answer.outcomes[0].code == Code.NOT_FOUND:
            raise self._missing()

    def status(self) -> Flow[PacerStatus]:
        """The pacer as it is now."""
        reply = yield from ask(Get(self.writer.root + HEAD, flushed=True), HEAD_READ)
        if isinstance(reply, Found):
            state = decode_head(reply.body)
            now_ms = max(self.writer.time_ms() or self.machine.now_ms(), state.now_ms)
            status = status_of(self.name, state.pacer, now_ms)
            if status is not None:
                return status
        elif not isinstance(reply, Missing):
            raise unavailable(reply, "the pacer's head")
        raise self._missing()

    def _missing(self) -> NotFound:
        return NotFound(
            f"pacer {self.name}: there is none of this name at this address. Create it first:"
            f" pacer.create(interval=1), or 'osqueue pacer create ADDRESS {self.name} --interval 1s'."
        )

    def _known(self) -> QueueFlow[tuple[PacerRow, str | None]]:
        """The pacer as this process saw it last, and the version of that head."""
        while (head := self.writer.head) is None:
            yield Submit(0, ())
        return head.state.pacer, head.version

    # ── Slots ────────────────────────────────────────────────────────────────
    def reserve(self, units: Any = 1) -> QueueFlow[HeldSlot]:
        """Take the next slot that is free, and will not have gone by when this is answered."""
        whole_number(units, "units", 1, limits.PACER_BURST_MAX)
        writer = self.writer
        while True:
            lead_us = int(self._lead() * 1000)
            op = ReserveSlots(1, units, self.ahead_us, lead_us)
            asked = self.machine.moment()
            answer = yield Submit(0, (op,))
            outcome = answer.outcomes[0]
            if outcome.code == Code.NOT_FOUND:
                raise self._missing()
            if units > burst_of(outcome):
                raise Rejected(
                    f"units: {units} is more than the pacer's burst, {burst_of(outcome)}, so there is never room for"
                    " them at once. Reserve fewer, or reset the pacer with a larger burst.",
                    field="units",
                )
            if outcome.code == Code.RESERVED:
                break
            if not writer.clock_is_due():
                raise self._too_far(outcome.runs[2][0] - lead_us, slot_of(op, outcome))
            yield from writer.tell_time()  # nothing was written, so nobody has asked for the time yet
        self._learn(answer.now_ms)
        row, version = yield from self._known()
        return HeldSlot(slot_of(op, outcome), row, version, asked, answer.now_ms, self.machine.moment())

    def _too_far(self, now_us: int, slot: Slot) -> Throttled:
        away = (slot.at_us - now_us) / 1e6
        later = max(0.001, away - self.ahead_us / 1e6)
        return Throttled(
            f"pacer {self.name}: the next slot is {away:,.3f} s ahead, and max_ahead is {self.ahead_us / 1e6:,.3f} s."
            f" Nothing was reserved: come back in {later:,.3f} s.",
            retry_after=later,
        )

    def take(self, units: Any = 1) -> QueueFlow[HeldSlot]:
        """Reserve a slot and wait for it; another one, where it has gone by or become void."""
        return (yield from self.wait((yield from self.reserve(units))))

    def wait(self, held: HeldSlot) -> QueueFlow[HeldSlot]:
        """Wait until the holder may act: by this slot, or by another one where it has gone by or become void."""
        for _ in range(SLOTS_MISSED_MAX):
            usable = yield from self._usable(held)
            if usable is not None:
                return usable
            held = yield from self.reserve(held.slot.units)
        raise Throttled(
            f"pacer {self.name}: {SLOTS_MISSED_MAX} slots in a row had gone by when this process came to use them. It"
            " is too busy, or its store too slow: use a longer grace."
        )

    def _usable(self, held: HeldSlot) -> QueueFlow[HeldSlot | None]:
        """Wait for a slot; the same, if it may be used then."""
        looked = False
        while held.row.epoch == held.slot.epoch:
            if held.row.paused_ms:
                yield Sleep(self.pace.paused)
                held = yield from self._look(held)
                continue
            left = self.left_us(held) / 1e6
            unseen = self.machine.ms_since(held.seen) / 1000
            if unseen + max(left, 0.0) > self.pace.checked:
                if left > self.pace.ahead and unseen < LOOK_SECONDS_MAX:
                    yield Sleep(min(left - self.pace.ahead, LOOK_SECONDS_MAX))
                    looked = False
                elif looked and -left * 1e6 > self._grace_us(held.row):  # the look itself took too long
                    return None
                else:
                    held = yield from self._look(held)
                    looked = True
            elif left > 0:
                yield Sleep(left)
            elif self.writer.clock_is_due():  # the machine was suspended, or it is long ago
                yield from self.writer.tell_time()
            else:
                return held if -left * 1e6 <= self._grace_us(held.row) else None
        return None

    def left_us(self, held: HeldSlot) -> float:
        """Until the slot: by the store's clock as this machine knows it, or by the answer, if that is sooner."""
        passed_ms = (self.machine.monotonic() - held.heard.monotonic) * 1000
        now_ms = max(self.writer.time_ms() or 0, held.now_ms + passed_ms)
        return head_us(held.row, held.slot.at_us, int(now_ms)) - now_ms * 1000

    def give_back(self, held: HeldSlot) -> QueueFlow[bool]:
        """Give a slot back; False where a later one has been reserved since, so that it stays a gap."""
        slot = held.slot
        answer = yield Submit(0, (ReturnSlot(slot.number, slot.units, slot.epoch),))
        return bool(answer.outcomes[0].code == Code.OK)

    def _look(self, held: HeldSlot) -> Flow[HeldSlot]:
        """Was the pacer paused, resumed, reset or removed? One conditional GET."""
        seen = self.machine.moment()
        reply = yield from ask(Get(self.writer.root + HEAD, unless=held.version), HEAD_READ)
        if isinstance(reply, Unchanged):
            return replace(held, seen=seen)
        if isinstance(reply, Found):
            return replace(held, row=decode_head(reply.body).pacer, version=reply.version, seen=seen)
        if isinstance(reply, Missing):
            return replace(held, row=NO_PACER, version=None, seen=seen)
        raise unavailable(reply, "the pacer's head")

    def _grace_us(self, row: PacerRow) -> int:
        if self.grace_us is not None:
            return self.grace_us
        return max(row.interval_us // GRACE_SHARE, limits.PACER_GRACE_MS_MIN * 1000)

    def _lead(self) -> float:
        """Milliseconds that the next answer will be on its way: no slot comes before it."""
        if self._lead_ms is None:
            return 0.0 if self.writer.store_clock() is not None else LEAD_MS_FIRST
        return self._lead_ms

    def _learn(self, now_ms: int) -> None:
        """An answer has come."""
        took = (self.writer.time_ms() or now_ms) - now_ms
        self._lead_ms = min(max(took, self._lead() * LEAD_DECAY), LEAD_MS_MAX)


def pacers() -> Flow[list[str]]:
    """The names of all pacers that were ever created at a store, those removed since as well."""
    return registered(PACERS)
