"""The operations on pacers: their bodies, and the rows of ``operations`` about interval queues."""

from __future__ import annotations

from datetime import datetime

from .. import limits
from ..model.pacer import PacerStatus
from .route import PACER, PACERS, Query, Repeat, Route
from .schemas import RequestBody, ResponseBody

PACERS_MAX = 1_000  # on a page


class NewPacer(RequestBody, frozen=True, kw_only=True):
    """A pacer to create: slots ``interval`` seconds apart, ``burst`` of them at once after a rest."""

    interval: float
    burst: int = 1
    if_exists: str = "keep"  # "keep", "reset" or "fail"


class PacerChange(RequestBody, frozen=True, kw_only=True):
    """Whether the pacer is paused."""

    paused: bool


class PacerAnswer(PacerStatus, frozen=True, kw_only=True):
    """A pacer, and how its own time follows the store's: slots are moments of that time, and every pause moves them.

    A slot of another epoch is void. A slot of the own time T is at T + moved.
    """

    now: datetime  # the store's time when this was made, at the earliest
    epoch: int  # another number after each reset
    moved: float  # seconds by which all pauses that are over have moved the slots
    rest: float = 0.0  # seconds that a paused pacer stands still after it is resumed


class Pacers(ResponseBody, frozen=True, kw_only=True):
    """One page of the pacers, by name, and the cursor of the next."""

    pacers: list[PacerAnswer]
    cursor: str | None = None


class NewReservation(RequestBody, frozen=True, kw_only=True):
    """A slot to take, by how many starts it stands for and when it may be (seconds from now)."""

    units: int = 1
    max_ahead: float = limits.PACER_AHEAD_MS_DEFAULT / 1000
    lead: float = 0.0  # seconds: no slot is sooner


class ReservationAnswer(ResponseBody, frozen=True, kw_only=True):
    """The slot that was taken, or the next free one if that is further ahead than ``max_ahead``."""

    reserved: bool
    number: int
    units: int
    epoch: int  # of the slot: void if the pacer has another one by now
    at: datetime  # by the store's time; of a paused pacer, if it were resumed now
    seconds_left: float  # until the slot, if the pacer is not paused meanwhile
    pacer: PacerAnswer


class SlotReturn(RequestBody, frozen=True, kw_only=True):
    """A slot to give back: what its reservation returned."""

    number: int
    units: int = 1
    epoch: int


class SlotReturned(ResponseBody, frozen=True, kw_only=True):
    """Whether the slot is free again. False if a later one has been reserved since."""

    returned: bool


PACER_ROUTES: tuple[Route, ...] = (
    Route(
        name="list_pacers",
        method="GET",
        path=PACERS,
        what="List the pacers.",
        function="queues",
        module="pacers",
        answer=Pacers,
        query=(
            Query("limit", int, "how many at most"),
            Query("cursor", str, "where to go on: the cursor of the page before"),
        ),
    ),
    Route(
        name="put_pacer",
        method="PUT",
        path=PACER,
        what="Create a pacer. If it exists, if_exists decides: keep it, reset it, or fail with 409.",
        function="queues",
        module="pacers",
        request=NewPacer,
        answer=PacerAnswer,
        faults=(409,),
        repeat=Repeat.UNAPPLIED,
    ),
    Route(
        name="get_pacer",
        method="GET",
        path=PACER,
        what="Return one pacer.",
        function="jobs",
        module="pacers",
        answer=PacerAnswer,
        faults=(404,),
    ),
    Route(
        name="change_pacer",
        method="PATCH",
        path=PACER,
        what="Pause a pacer, or resume it. The response to a pause comes when no caller starts any more.",
        function="queues",
        module="pacers",
        request=PacerChange,
        answer=PacerAnswer,
        faults=(404,),
    ),
    Route(
        name="delete_pacer",
        method="DELETE",
        path=PACER,
        what="Remove a pacer. Callers that wait for its slots get an error.",
        function="queues",
        module="pacers",
        faults=(404,),
    ),
    Route(
        name="reserve_slot",
        method="POST",
        path=PACER + "/reservations",
        what="Take the next free slot of a pacer, at once, unless it is too far ahead.",
        function="jobs",
        module="pacers",
        request=NewReservation,
        body_optional=True,
        answer=ReservationAnswer,
        faults=(404,),
        repeat=Repeat.UNAPPLIED,
    ),
    Route(
        name="return_slot",
        method="POST",
        path=PACER + "/returns",
        what="Give a slot back that will not be used.",
        function="jobs",
        module="pacers",
        request=SlotReturn,
        answer=SlotReturned,
        repeat=Repeat.UNAPPLIED,
    ),
)
