"""The dashboard: its files, what its pages are told as it happens, and who looks.

The page asks the API for everything else, with the rights of whoever looks.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from .. import __version__
from ..contract.error_codes import fault_of
from ..contract.operations import BY_NAME, ROUTES
from ..errors import OsqueueError
from ..server.app import JSON, failure
from .admission import Admission
from .overview import Overview
from .tokens import Identity

FILES = {  # by path
    "/": ("index.html", "text/html; charset=utf-8"),
    "/dashboard/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/dashboard/app.css": ("app.css", "text/css; charset=utf-8"),
}
# The page loads what is beside it, talks to where it comes from, and stands in nobody's frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # it is asked for again, and mostly unchanged
}
STREAM_S = 600.0  # then a page connects again, and shows its token again
QUIET_S = 10.0  # after which a page is told that there is nothing new, so that it knows somebody is there

log = logging.getLogger("osqueue.serve")


class StaticFile(Struct, frozen=True):
    """A file as it is sent."""

    body: bytes
    packed: bytes  # by gzip
    tag: str


@cache
def static_file(name: str) -> StaticFile:
    """One of the files that the wheel brings."""
    body = (files(__package__) / "static" / name).read_bytes()
    tag = hashlib.sha256(body).hexdigest()[:32]
    return StaticFile(body, gzip.compress(body, 9, mtime=0), f'"{tag}"')


class Dashboard:
    """What a server answers beside the API, for people. ``place`` tells them what they see."""

    def __init__(self, overview: Overview, admission: Admission, place: str) -> None:
        self.overview = overview
        self._admission = admission
        self._place = place

    def routes(self) -> list[StarletteRoute]:
        """All of it."""
        return [
            *(StarletteRoute(path, self._file, methods=["GET"]) for path in FILES),
            StarletteRoute("/dashboard/me", self._me, methods=["GET"]),
            StarletteRoute("/dashboard/live", self._live, methods=["GET"]),
        ]

    async def _file(self, request: Request) -> Response:
        name, kind = FILES[request.url.path]
        file = static_file(name)
        headers = {**HEADERS, "etag": file.tag, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, media_type=kind, headers={**headers, "content-encoding": "gzip"})
        return Response(file.body, media_type=kind, headers=headers)

    async def _me(self, request: Request) -> Response:
        """Return the caller's name and rights; where the store is only if the caller manages all of it."""
        try:
            caller = self._admission.caller(request.scope)
        except OsqueueError as error:
            return _refusal(error)
        return _json(
            {
                "version": __version__,
                "place": self._place if caller.manages_all else None,
                "name": caller.name,
                "queues": ["*"] if caller.token is None else caller.token.queues,
                "operations": [route.name for route in ROUTES if caller.may(route)],
                "read_only": caller.read_only,
            }
        )

    async def _live(self, request: Request) -> Response:
        """The queues as they change, and one of them in detail, as server-sent events."""
        queue = request.query_params.get("queue") or None
        try:
            caller = self._admission.caller(request.scope)
            if queue is not None:
                caller.permit(BY_NAME["stats"], queue)
        except OsqueueError as error:
            return _refusal(error)
        headers = {
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-content-type-options": "nosniff",
        }
        return StreamingResponse(self._events(caller, queue), media_type="text/event-stream", headers=headers)

    async def _events(self, caller: Identity, queue: str | None) -> AsyncIterator[bytes]:
        overview = self.overview
        overview.come(queue)
        told = parts_told = 0
        series_told = 0.0
        before: tuple[str, ...] | None = None
        until = overview.machine.monotonic() + STREAM_S
        try:
            while not overview.closing and overview.machine.monotonic() < until:
                number = overview.number
                names = tuple(name for name in overview.trends if _sees(caller, name))
                news = [overview.trends[name].row() for name in names if overview.trends[name].number > told]
                message: dict[str, Any] = {
                    "queues": news,
                    "trouble": overview.trouble,
                    "bill": overview.bill(),
                    "listed": overview.listed,
                }
                if names != before:
                    message["names"] = before = names
                yield _event("queues", message)
                told = number
                trend = None if queue is None else overview.trends.get(queue)
                if trend is not None and not trend.stats:
                    trend = None  # it could never be read; its line says why
                if trend is not None and not trend.parts:
                    await overview.look_into(trend)
                if trend is not None and (trend.parts_number > parts_told or not parts_told):
                    samples = [each for each in trend.samples if each.at > series_told]
                    series_told = samples[-1].at if samples else series_told
                    parts_told = trend.parts_number
                    yield _event(
                        "queue", {"queue": queue, "stats": trend.stats, "samples": samples, **trend.parts}
                    )
                await overview.news(QUIET_S)
        finally:
            overview.go(queue)


def _sees(caller: Identity, queue: str) -> bool:
    try:
        caller.permit(BY_NAME["stats"], queue)
    except OsqueueError:
        return False
    return True


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


def _json(told: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type=JSON, headers={"cache-control": "no-store"})


def _refusal(error: OsqueueError) -> Response:
    answer = failure(fault_of(error))
    return Response(answer.body, answer.status, {**answer.headers, "cache-control": "no-store"})
