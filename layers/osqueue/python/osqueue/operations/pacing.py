"""What the methods of a pacer do with slots, as flows: reserve one, look at the pacer, wait for the slot."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..clock import Machine, Moment
from ..commit.effects import QueueFlow, Sleep
from ..commit.writer import CLOCK_DRIFT_MAX
from ..core.pacing import Slot, head_us
from ..core.state import PacerRow
from ..errors import Throttled
from ..model.validation import whole_number
from .pacer_access import PacerAccess

LOOK_SECONDS_MAX = 60.0  # between two looks of a holder whose slot is far ahead
LEAD_DECAY = 0.7  # of the longest way that a response took lately, with each further one
SLOTS_MISSED_MAX = 20  # by one caller in a row
GRACE_SHARE = 10  # a slot may be used for a tenth of the interval


class HeldSlot(Struct, frozen=True):
    """A slot that was reserved, and what its holder knows of the pacer."""

    slot: Slot
    row: PacerRow  # as it was seen last
    version: str | None  # of the head it was seen in
    seen: Moment  # when the request was sent that showed it
    now_ms: int  # the head's time when the slot was given
    heard: Moment  # when the response came


class PacerFlows:
    """The flows of one pacer, however it is reached."""

    def __init__(
        self, name: str, machine: Machine, access: PacerAccess, grace_us: int | None, ahead_us: int
    ) -> None:
        self.name = name
        self.machine = machine
        self.access = access
        self.grace_us = grace_us  # how late a slot may be used; None: as the interval says
        self.ahead_us = ahead_us
        self._lead_ms: float | None = None  # how long responses are on their way

    def reserve(self, units: Any = 1) -> QueueFlow[HeldSlot]:
        """Take the next slot that is free, and will not have gone by when the response comes."""
        whole_number(units, "units", 1, limits.PACER_BURST_MAX)
        asked = self.machine.moment()
        grant = yield from self.access.reserve(units, self.ahead_us, int(self._lead() * 1000))
        if not grant.taken:
            raise self._too_far(grant.left_us / 1e6)
        self._learn(grant.now_ms)
        return HeldSlot(grant.slot, grant.row, grant.version, asked, grant.now_ms, self.machine.moment())

    def _too_far(self, away: float) -> Throttled:
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
        """Wait for a slot. Return it if it may be used then."""
        looked = False
        while held.row.epoch == held.slot.epoch and self.access.knows_time_since(held.heard):
            if held.row.paused_ms:
                yield Sleep(self.access.pace.paused)
                held = yield from self._look(held)
                continue
            left = self.left_us(held) / 1e6
            unseen = self.machine.ms_since(held.seen) / 1000
            if unseen + max(left, 0.0) > self.access.pace.checked:
                if left > self.access.pace.ahead and unseen < LOOK_SECONDS_MAX:
                    yield Sleep(min(left - self.access.pace.ahead, LOOK_SECONDS_MAX))
                    looked = False
                elif looked and -left * 1e6 > self._grace_us(held.row):  # the look itself took too long
                    return None
                else:
                    held = yield from self._look(held)
                    looked = True
            elif left > 0:
                yield Sleep(left)
                looked = False
            elif self.access.clock_is_due():  # the machine was suspended, or it is long ago
                yield from self.access.tell_time()
            else:
                return held if -left * 1e6 <= self._grace_us(held.row) else None
        return None

    def left_us(self, held: HeldSlot) -> float:
        """Return the microseconds until the slot.

        They count by the pacer's time as this machine knows it, or by the response, if that is sooner.
        """
        passed_ms = (self.machine.monotonic() - held.heard.monotonic) * 1000
        now_ms = max(self.access.time_ms() or 0, held.now_ms + passed_ms * (1 - CLOCK_DRIFT_MAX))
        return head_us(held.row, held.slot.at_us, int(now_ms)) - now_ms * 1000

    def _look(self, held: HeldSlot) -> QueueFlow[HeldSlot]:
        """Look whether the pacer was paused, resumed, reset or removed."""
        asked = self.machine.moment()
        found = yield from self.access.look(held.version)
        if found is None:
            return replace(held, seen=asked)
        return replace(held, row=found.row, version=found.version, seen=asked)

    def _grace_us(self, row: PacerRow) -> int:
        if self.grace_us is not None:
            return self.grace_us
        return max(row.interval_us // GRACE_SHARE, limits.PACER_GRACE_MS_MIN * 1000)

    def _lead(self) -> float:
        """Return the milliseconds that the next response will be on its way: no slot comes before it."""
        if self._lead_ms is None:
            return self.access.lead_ms_first
        return self._lead_ms

    def _learn(self, now_ms: int) -> None:
        """Note how long a response was on its way."""
        took = (self.access.time_ms() or now_ms) - now_ms
        self._lead_ms = min(max(took, self._lead() * LEAD_DECAY), limits.PACER_LEAD_MS_MAX)
