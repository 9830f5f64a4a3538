"""An API elsewhere, answered for here: what the dashboard of an address such as ``https://…`` or ``lambda://…`` asks.

Requests go through the client's transport, with its credentials. Nothing is repeated: who looks, looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..client.transports.base import ApiCall, LostCall, Transport
from ..clock import MACHINE, Machine
from ..contract.error_codes import Forbidden, fault_of
from ..contract.operations import ROUTES
from ..contract.route import pattern, subject_of
from ..contract.schemas import Fault
from ..errors import OsqueueError
from ..server.app import JSON, ApiRequest, ApiResponse, failure
from ..server.reading import id_of, segment
from ..server.request import may_change


def _unheard(queue: str) -> None:
    pass


PATTERNS = [(route, pattern(route)) for route in ROUTES]


class ApiProxy:
    """Answers requests as the API at the other end of a transport does."""

    def __init__(self, transport: Transport, machine: Machine = MACHINE) -> None:
        self.transport = transport
        self.machine = machine
        self.on_change: Callable[[str], None] = (
            _unheard  # told of each queue that somebody here may have changed
        )

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer a request. Raises nothing."""
        notes: dict[str, Any] = {}
        try:
            call = self._call(request, notes)
            if call is None:
                return failure(Fault(code="no_route", message="no such path."), notes)
            reply = await self.transport.perform_async(call)
        except OsqueueError as error:
            return failure(fault_of(error), notes)
        if call.route.method != "GET" and "queue" in call.path:
            self.on_change(call.path["queue"])
        if isinstance(reply, LostCall):
            return failure(fault_of(reply.error), notes)
        return ApiResponse(
            reply.status, reply.body, {"content-type": JSON} if reply.body else {}, notes=notes
        )

    def _call(self, request: ApiRequest, notes: dict[str, Any]) -> ApiCall | None:
        for route, form in PATTERNS:
            match = form.fullmatch(request.path)
            if match is not None and route.method == request.method:
                path = {name: segment(text) for name, text in match.groupdict().items()}
                if "id" in path:
                    path["id"] = id_of(path["id"])
                notes["operation"] = route.name
                if request.permit is not None:
                    request.permit(route, subject_of(path))
                if route.name == "events" and not may_change(request.permit, path["queue"]):
                    raise Forbidden(
                        "events: this server only reads, and the API behind it may have them recorded. Read them from"
                        " that API.",
                        permanent=True,
                    )
                return ApiCall(route, path, tuple(request.query), request.body, timeout=request.deadline_s)
        return None

    def end_waits(self) -> None:
        """Nobody waits here."""

    async def close(self) -> None:
        """Release connections."""
        self.transport.close()
