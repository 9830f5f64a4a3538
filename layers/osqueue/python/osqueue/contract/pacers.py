"""The operations on pacers: the rows of ``operations`` about interval queues."""

from __future__ import annotations

from . import pacer_schemas
from .route import PACER, PACERS, Query, Repeat, Route

PACERS_MAX = 1_000  # on a page

PACER_ROUTES: tuple[Route, ...] = (
    Route(
        name="list_pacers",
        method="GET",
        path=PACERS,
        what="The pacers there are.",
        function="queues",
        module="pacers",
        answer=pacer_schemas.Pacers,
        query=(
            Query("limit", int, "how many at most"),
            Query("cursor", str, "where to go on: the cursor of the page before"),
        ),
    ),
    Route(
        name="put_pacer",
        method="PUT",
        path=PACER,
        what="Create a pacer. One that exists is kept, reset, or a conflict, as if_exists says.",
        function="queues",
        module="pacers",
        request=pacer_schemas.NewPacer,
        answer=pacer_schemas.PacerAnswer,
        faults=(409,),
        repeat=Repeat.UNAPPLIED,
    ),
    Route(
        name="get_pacer",
        method="GET",
        path=PACER,
        what="One pacer as it is now.",
        function="jobs",
        module="pacers",
        answer=pacer_schemas.PacerAnswer,
        faults=(404,),
    ),
    Route(
        name="change_pacer",
        method="PATCH",
        path=PACER,
        what="Pause a pacer, or resume it. A pause is answered when no caller starts any more.",
        function="queues",
        module="pacers",
        request=pacer_schemas.PacerChange,
        answer=pacer_schemas.PacerAnswer,
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
        what="Take the next free slot of a pacer, at once. May answer that it is too far ahead.",
        function="jobs",
        module="pacers",
        request=pacer_schemas.NewReservation,
        body_optional=True,
        answer=pacer_schemas.ReservationAnswer,
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
        request=pacer_schemas.SlotReturn,
        answer=pacer_schemas.SlotReturned,
        repeat=Repeat.UNAPPLIED,
    ),
)
