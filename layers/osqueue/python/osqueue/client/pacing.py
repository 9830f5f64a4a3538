"""A pacer over an API: its operations, and its time as the responses show it.

The store's clock is out of reach here, so the pacer's time counts from the responses: a response shows the time when
it was made at the earliest, and this machine's monotonic clock counts on. So no slot is used early. A start may be late
by the time that the response took, which is less than ``REMOTE.checked`` seconds: a start needs a look that young.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from ..clock import Machine, Moment, clocks_disagree
from ..commit.writer import CLOCK_DRIFT_MAX
from ..contract.pacers import (
    PACERS_MAX,
    NewPacer,
    NewReservation,
    PacerAnswer,
    PacerChange,
    Pacers,
    ReservationAnswer,
    SlotReturn,
    SlotReturned,
)
from ..core.pacing import Slot, head_us
from ..core.state import NO_PACER, PacerRow
from ..errors import NotFound
from ..model.codecs import JSON, Codec
from ..model.fields import moment
from ..model.pacer import PacerStatus
from ..operations.pacer_access import REMOTE, Seen, SlotGrant, created_row
from .call import ApiClient, RemoteFlow


class KnownTime(Struct, frozen=True):
    """A time that the pacer had reached, at the earliest, at a moment of this machine."""

    pacer_ms: int
    monotonic: float  # seconds


class ApiAccess(ApiClient):
    """The pacer of a process that reaches it over an API."""

    pace = REMOTE
    lead_ms_first = 0.0  # grace counts from the response

    def __init__(self, name: str, machine: Machine, timeout: float) -> None:
        super().__init__(name, Codec(JSON), machine, timeout)
        self._known: KnownTime | None = None

    # ── Steering ─────────────────────────────────────────────────────────────
    def create(self, interval: Any, burst: Any, if_exists: Any) -> RemoteFlow[PacerStatus]:
        """Create the pacer and return the settings that hold."""
        row = created_row(interval, burst, if_exists, 0)
        body = NewPacer(interval=row.interval_us / 1e6, burst=row.burst, if_exists=if_exists)
        return _status((yield from self._ask("put_pacer", body)))

    def pause(self, paused: bool) -> RemoteFlow[PacerStatus]:
        """Pause or resume. Return from a pause when no holder starts by an older look."""
        seconds = self.timeout + REMOTE.pause  # for which the API waits
        return _status((yield from self._ask("change_pacer", PacerChange(paused=paused), seconds)))

    def remove(self) -> RemoteFlow[None]:
        """Remove the pacer. A caller that waits for a slot gets NotFound."""
        yield from self._ask("delete_pacer")

    def status(self) -> RemoteFlow[PacerStatus]:
        """Return the pacer as it is now."""
        return _status((yield from self._ask("get_pacer")))

    # ── Slots ────────────────────────────────────────────────────────────────
    def reserve(self, units: int, ahead_us: int, lead_us: int) -> RemoteFlow[SlotGrant]:
        """Take the next free slot, at least ``lead_us`` and at most ``ahead_us`` from now.

        A call whose response is lost is not repeated but raises: its slot is a gap.
        """
        body = NewReservation(units=units, max_ahead=ahead_us / 1e6, lead=lead_us / 1e6)
        found: ReservationAnswer = yield from self._ask("reserve_slot", body)
        row, now_ms = _row(found.pacer), self._note(found.pacer)
        at_us = _microseconds(found.at) - head_us(row, 0, now_ms)
        slot = Slot(found.number, at_us, found.units, found.epoch)
        return SlotGrant(slot, found.reserved, row, None, round(found.seconds_left * 1e6), now_ms)

    def give_back(self, slot: Slot) -> RemoteFlow[bool]:
        """Give a slot back. Return False if a later one has been reserved since, so that it stays a gap."""
        body = SlotReturn(number=slot.number, units=slot.units, epoch=slot.epoch)
        found: SlotReturned = yield from self._ask("return_slot", body)
        return found.returned

    def look(self, version: str | None) -> RemoteFlow[Seen | None]:
        """Return the pacer as it is now."""
        try:
            found: PacerAnswer = yield from self._ask("get_pacer")
        except NotFound:
            return Seen(NO_PACER)
        self._note(found)
        return Seen(_row(found))

    def _ask(self, operation: str, body: Any = None, seconds: float | None = None) -> RemoteFlow[Any]:
        return self.ask(operation, pacer=self.queue, body=body, seconds=seconds)

    # ── Time ─────────────────────────────────────────────────────────────────
    def time_ms(self) -> int | None:
        """Return the pacer's time at the earliest, or None before the first response."""
        known = self._known
        if known is None:
            return None
        passed_ms = (self.machine.monotonic() - known.monotonic) * 1000
        return known.pacer_ms + int(passed_ms * (1 - CLOCK_DRIFT_MAX))

    def _note(self, answer: PacerAnswer) -> int:
        """Note the time of a response, and return it: in milliseconds."""
        now_ms = _microseconds(answer.now) // 1000
        if now_ms > (self.time_ms() or 0):
            self._known = KnownTime(now_ms, self.machine.monotonic())
        return now_ms

    def knows_time_since(self, heard: Moment) -> bool:
        """Return False if the machine was suspended since a response, or a clock of it was set.

        A look does not help: a server that has just begun responds with the time of the last commit.
        """
        return not clocks_disagree(heard, self.machine.moment())

    def clock_is_due(self) -> bool:
        """Return whether the time has to be measured: never, for every response shows it."""
        return False

    def tell_time(self) -> RemoteFlow[None]:
        """Measure nothing."""
        yield from ()


class PacerLister(ApiClient):
    """The pacers of an API."""

    def __init__(self, machine: Machine, timeout: float) -> None:
        super().__init__("", Codec(JSON), machine, timeout)

    def pacers(self) -> RemoteFlow[list[PacerStatus]]:
        """Return all pacers, by name."""
        found: list[PacerStatus] = []
        cursor: str | None = None
        while True:
            query = (("limit", PACERS_MAX), ("cursor", cursor))
            page: Pacers = yield from self.ask("list_pacers", query=query)
            found += [_status(each) for each in page.pacers]
            if (cursor := page.cursor) is None:
                return found


# ── Reading an answer ────────────────────────────────────────────────────────
def _status(answer: PacerAnswer) -> PacerStatus:
    return PacerStatus(**{name: getattr(answer, name) for name in PacerStatus.__struct_fields__})


def _row(answer: PacerAnswer) -> PacerRow:
    """Return the pacer's row, as far as its holders need it."""
    return PacerRow(
        round(answer.interval * 1e6),
        answer.burst,
        number=answer.number,
        shift_ms=round(answer.moved * 1000),
        paused_ms=_microseconds(answer.paused_at) // 1000 if answer.paused_at else 0,
        epoch=answer.epoch,
        rest_ms=round(answer.rest * 1000),
    )


def _microseconds(at: datetime) -> int:
    return (at - moment(0)) // timedelta(microseconds=1)
