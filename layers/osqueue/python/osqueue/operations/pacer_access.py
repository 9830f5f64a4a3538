"""A pacer as its flows reach it: what they need of it, and how a process with the store provides that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

from .. import limits
from ..clock import Machine, Moment
from ..commit.effects import Flow, QueueFlow, Sleep, Submit
from ..commit.pacer_writer import PacerWriter
from ..commit.retry import HEAD_READ, ask
from ..commit.writer import HEAD
from ..core.encoding import decode_head
from ..core.ops import Code
from ..core.pacing import REMOTE_REST_MS, Slot, burst_of, exists, slot_of
from ..core.queue_ops import ChangePacer, ReserveSlots, ReturnSlot
from ..core.state import NO_PACER, PacerRow
from ..errors import Conflict, NotFound, Rejected, shown
from ..model.pacer import PacerStatus, status_of
from ..model.validation import microseconds, whole_number
from ..objects.layout import PACERS, register_pacer, registered, unavailable
from ..stores.base import Found, Get, Missing, Unchanged

IfExists = Literal["keep", "reset", "fail"]
IF_EXISTS: tuple[IfExists, ...] = ("keep", "reset", "fail")
LEAD_MS_FIRST = 100.0  # of the first reservation, while the store's time is not known


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


PRICED = StartPace(checked=1.0, ahead=0.5, paused=1.0, rest_ms=REMOTE_REST_MS)
FREE = StartPace(checked=0.2, ahead=0.1, paused=0.08, rest_ms=100)
REMOTE = PRICED  # over an API a look takes a while, on whichever store


class SlotGrant(Struct, frozen=True):
    """The outcome of a reservation."""

    slot: Slot
    taken: bool  # False: the slot was too far ahead, and is still free
    row: PacerRow  # as it was then, or later
    version: str | None  # of the row's head, if the caller can name it in a look
    left_us: int  # microseconds from the decision to the slot
    now_ms: int  # a time of the pacer's head, not after the decision


class Seen(Struct, frozen=True):
    """A pacer as one look showed it."""

    row: PacerRow
    version: str | None = None


class PacerAccess(Protocol):
    """A pacer, reached through its store or over an API."""

    @property
    def pace(self) -> StartPace:
        """How old the look may be by which a holder starts."""

    @property
    def lead_ms_first(self) -> float:
        """Milliseconds that the first response is expected to take."""

    def create(self, interval: Any, burst: Any, if_exists: Any) -> QueueFlow[PacerStatus]:
        """Create the pacer and return the settings that hold."""

    def pause(self, paused: bool) -> QueueFlow[PacerStatus]:
        """Pause or resume. Return from a pause when no holder starts by an older look."""

    def remove(self) -> QueueFlow[None]:
        """Remove the pacer."""

    def status(self) -> QueueFlow[PacerStatus]:
        """Return the pacer as it is now."""

    def reserve(self, units: int, ahead_us: int, lead_us: int) -> QueueFlow[SlotGrant]:
        """Take the next free slot, at least ``lead_us`` and at most ``ahead_us`` from now."""

    def give_back(self, slot: Slot) -> QueueFlow[bool]:
        """Give a slot back. Return False if a later one has been reserved since."""

    def look(self, version: str | None) -> QueueFlow[Seen | None]:
        """Return the pacer as it is now, or None if its head still has this version."""

    def time_ms(self) -> int | None:
        """Return the pacer's time as this machine knows it, or None if it is not known."""

    def knows_time_since(self, heard: Moment) -> bool:
        """Return whether the time that passed since a response is known, or can be measured."""

    def clock_is_due(self) -> bool:
        """Return whether the time has to be measured."""

    def tell_time(self) -> QueueFlow[None]:
        """Measure the time if that is due."""


class StoreAccess:
    """The pacer of a process that reads and writes the store itself."""

    def __init__(
        self, name: str, machine: Machine, writer: Callable[[], PacerWriter], pace: StartPace = PRICED
    ) -> None:
        self.name = name
        self.machine = machine
        self.pace = pace
        self._writer = writer

    @property
    def writer(self) -> PacerWriter:
        """The pacer's writer in this process."""
        return self._writer()

    # ── Steering ─────────────────────────────────────────────────────────────
    def create(self, interval: Any, burst: Any, if_exists: Any) -> QueueFlow[PacerStatus]:
        """Create the pacer and return the settings that hold."""
        created = created_row(interval, burst, if_exists, self.machine.bits(32))
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
        """Pause or resume. Return from a pause when no holder starts by an older look."""
        yield from self._change(ChangePacer(paused=paused, rest_ms=self.pace.rest_ms))
        if paused:
            row, _ = yield from self._known()
            yield Sleep((self.pace if row.rest_ms <= self.pace.rest_ms else REMOTE).pause)
        return (yield from self.status())

    def remove(self) -> QueueFlow[None]:
        """Remove the pacer. A caller that waits for a slot gets NotFound."""
        return self._change(ChangePacer(removed=True))

    def _change(self, op: ChangePacer) -> QueueFlow[None]:
        answer = yield Submit(0, (op,))
        if answer.outcomes[0].code == Code.NOT_FOUND:
            raise missing(self.name)

    def status(self) -> Flow[PacerStatus]:
        """Return the pacer as it is now."""
        status, _, _ = yield from self.details()
        return status

    def details(self) -> Flow[tuple[PacerStatus, PacerRow, int]]:
        """Return the status, the row, and the earliest time of the pacer in milliseconds. Raises NotFound."""
        reply = yield from ask(Get(self.writer.root + HEAD, flushed=True), HEAD_READ)
        if isinstance(reply, Found):
            state = decode_head(reply.body)
            known_ms = self.writer.time_ms()
            now_ms = max(self.machine.now_ms() if known_ms is None else known_ms, state.now_ms)
            status = status_of(self.name, state.pacer, now_ms)
            if status is not None:
                return status, state.pacer, state.now_ms if known_ms is None else now_ms
        elif not isinstance(reply, Missing):
            raise unavailable(reply, "the pacer's head")
        raise missing(self.name)

    def _known(self) -> QueueFlow[tuple[PacerRow, str | None]]:
        """Return the pacer as this process saw it last, and the version of that head."""
        while (head := self.writer.head) is None:
            yield Submit(0, ())
        return head.state.pacer, head.version

    # ── Slots ────────────────────────────────────────────────────────────────
    def reserve(self, units: int, ahead_us: int, lead_us: int, remote: bool = False) -> QueueFlow[SlotGrant]:
        """Take the next free slot, at least ``lead_us`` and at most ``ahead_us`` from now.

        ``remote`` states that its holder looks at the pacer over an API.
        """
        op = ReserveSlots(1, units, ahead_us, lead_us, remote=remote)
        while True:
            answer = yield Submit(0, (op,))
            outcome = answer.outcomes[0]
            if outcome.code == Code.NOT_FOUND:
                raise missing(self.name)
            if units > burst_of(outcome):
                raise Rejected(
                    f"units: {units} is more than the pacer's burst, {burst_of(outcome)}, so there is never room for"
                    " them at once. Reserve fewer, or reset the pacer with a larger burst.",
                    field="units",
                )
            if outcome.code == Code.RESERVED or not self.writer.clock_is_due():
                row, version = yield from self._known()
                taken = outcome.code == Code.RESERVED
                slot = slot_of(op, outcome)
                left_us = slot.at_us - outcome.runs[2][0] + lead_us
                return SlotGrant(slot, taken, row, version, left_us, answer.now_ms)
            yield from self.writer.tell_time()  # nothing was written, so the time was not measured

    def give_back(self, slot: Slot) -> QueueFlow[bool]:
        """Give a slot back. Return False if a later one has been reserved since, so that it stays a gap."""
        answer = yield Submit(0, (ReturnSlot(slot.number, slot.units, slot.epoch),))
        return bool(answer.outcomes[0].code == Code.OK)

    def look(self, version: str | None) -> Flow[Seen | None]:
        """Return the pacer as it is now, or None if its head still has this version. One conditional GET."""
        reply = yield from ask(Get(self.writer.root + HEAD, unless=version), HEAD_READ)
        if isinstance(reply, Unchanged):
            return None
        if isinstance(reply, Found):
            return Seen(decode_head(reply.body).pacer, reply.version)
        if isinstance(reply, Missing):
            return Seen(NO_PACER)
        raise unavailable(reply, "the pacer's head")

    # ── Time ─────────────────────────────────────────────────────────────────
    @property
    def lead_ms_first(self) -> float:
        """Milliseconds that the first response is expected to take: none where the store gives its time."""
        return 0.0 if self.writer.store_clock() is not None else LEAD_MS_FIRST

    def time_ms(self) -> int | None:
        """Return the store's time as this machine knows it, or None if it is not known."""
        return self.writer.time_ms()

    def knows_time_since(self, heard: Moment) -> bool:
        """Return True: the store's time can be measured."""
        return True

    def clock_is_due(self) -> bool:
        """Return whether the store's time has to be measured."""
        return self.writer.clock_is_due()

    def tell_time(self) -> Flow[None]:
        """Measure the store's time if that is due."""
        return self.writer.tell_time()


def created_row(interval: Any, burst: Any, if_exists: Any, epoch: int) -> PacerRow:
    """Return a new pacer. Raises Rejected for a setting that is not valid."""
    created = PacerRow(
        microseconds(interval, "interval", limits.PACER_INTERVAL_MS_MIN, limits.PACER_INTERVAL_MS_MAX),
        whole_number(burst, "burst", 1, limits.PACER_BURST_MAX),
        epoch=epoch,
    )
    if not isinstance(if_exists, str) or if_exists not in IF_EXISTS:
        raise Rejected(
            f"if_exists: {shown(if_exists)} is none of 'keep' (the one there is), 'reset' (begin again with these"
            " settings) and 'fail' (raise Conflict).",
            field="if_exists",
        )
    return created


def missing(name: str) -> NotFound:
    """Return the error of a pacer that does not exist."""
    return NotFound(
        f"pacer {name}: there is none of this name at this address. Create it first:"
        f" pacer.create(interval=1), or 'osqueue pacer create ADDRESS {name} --interval 1s'."
    )


def pacers() -> Flow[list[str]]:
    """Return the names of all pacers that were ever created at a store, those removed since as well."""
    return registered(PACERS)
