"""Operations on pacers."""

from __future__ import annotations

from typing import Any

from ..commit.effects import Flow, QueueFlow, together
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
from ..core.pacing import Slot
from ..core.state import PacerRow
from ..errors import NotFound, Rejected
from ..limits import PACER_AHEAD_MS_MAX, PACER_BURST_MAX, PACER_LEAD_MS_MAX, PACER_NUMBER_MAX
from ..model.fields import moment
from ..model.pacer import PacerStatus, slot_moment, status_of
from ..model.validation import is_queue_name, microseconds, whole_number
from ..operations.lending import limiter_writer
from ..operations.pacer_access import StoreAccess, missing, pacers
from .answers import StatusAnswer
from .jobs import PAGE_DEFAULT
from .request import RequestContext

PACERS_AT_ONCE = 32  # heads that are read together


def list_pacers(request: RequestContext) -> QueueFlow[Pacers]:
    """Return one page of the pacers, by name."""
    limit = whole_number(request.query.get("limit", PAGE_DEFAULT), "limit", 1, PACERS_MAX)
    after = request.query.get("cursor", "")
    if after and not is_queue_name(after):
        raise Rejected(
            "cursor: it is not the name of a pacer. Pass the cursor of the page before, or leave it out.",
            field="cursor",
        )
    names = sorted(name for name in (yield from pacers()) if name > after)
    page, more = names[:limit], len(names) > limit
    found: list[PacerAnswer] = []
    for start in range(0, len(page), PACERS_AT_ONCE):
        group = page[start : start + PACERS_AT_ONCE]
        answers = yield from together([_if_any(_unkept(request, name)) for name in group])
        found += [each for each in answers if each is not None]
    return Pacers(pacers=found, cursor=page[-1] if more else None)


def put_pacer(request: RequestContext) -> QueueFlow[PacerAnswer]:
    """Create a pacer."""
    body: NewPacer = request.read()
    yield from request.pacer.create(body.interval, body.burst, body.if_exists)
    return (yield from _current(request.pacer))


def get_pacer(request: RequestContext) -> QueueFlow[PacerAnswer]:
    """Return one pacer."""
    return _current(request.pacer)


def change_pacer(request: RequestContext) -> QueueFlow[PacerAnswer]:
    """Pause a pacer, or resume it."""
    body: PacerChange = request.read()
    yield from request.pacer.pause(body.paused)
    return (yield from _current(request.pacer))


def delete_pacer(request: RequestContext) -> QueueFlow[StatusAnswer]:
    """Remove a pacer."""
    yield from request.pacer.remove()
    return StatusAnswer(204)


def reserve_slot(request: RequestContext) -> QueueFlow[ReservationAnswer]:
    """Take the next free slot."""
    body: NewReservation = request.read()
    units = whole_number(body.units, "units", 1, PACER_BURST_MAX)
    ahead_us = microseconds(body.max_ahead, "max_ahead", 0, PACER_AHEAD_MS_MAX)
    lead_us = microseconds(body.lead, "lead", 0, PACER_LEAD_MS_MAX)
    access = request.pacer
    grant = yield from access.reserve(units, ahead_us, lead_us, remote=True)
    status = status_of(access.name, grant.row, grant.now_ms)
    if status is None:  # it was removed since
        raise missing(access.name)
    return ReservationAnswer(
        reserved=grant.taken,
        number=grant.slot.number,
        units=units,
        epoch=grant.slot.epoch,
        at=slot_moment(grant.row, grant.slot.at_us, grant.now_ms),
        seconds_left=grant.left_us / 1e6,
        pacer=_answer_of(status, grant.row, grant.now_ms),
    )


def return_slot(request: RequestContext) -> QueueFlow[SlotReturned]:
    """Give a slot back."""
    body: SlotReturn = request.read()
    slot = Slot(
        whole_number(body.number, "number", 1, PACER_NUMBER_MAX),
        0,
        whole_number(body.units, "units", 1, PACER_BURST_MAX),
        whole_number(body.epoch, "epoch", 0, PACER_NUMBER_MAX),
    )
    return SlotReturned(returned=(yield from request.pacer.give_back(slot)))


def _unkept(request: RequestContext, name: str) -> StoreAccess:
    """Return a pacer that is only looked at."""
    writer = limiter_writer(name, request.machine, request.store)
    return StoreAccess(name, request.machine, lambda: writer)


def _current(access: StoreAccess) -> Flow[PacerAnswer]:
    return _answer_of(*(yield from access.details()))


def _if_any(access: StoreAccess) -> Flow[PacerAnswer | None]:
    try:
        return (yield from _current(access))
    except NotFound:  # removed, and its name is remembered
        return None


def _answer_of(status: PacerStatus, row: PacerRow, now_ms: int) -> PacerAnswer:
    fields: dict[str, Any] = {name: getattr(status, name) for name in status.__struct_fields__}
    return PacerAnswer(
        **fields,
        now=moment(now_ms),
        epoch=row.epoch,
        moved=row.shift_ms / 1000,
        rest=row.rest_ms / 1000,
    )
