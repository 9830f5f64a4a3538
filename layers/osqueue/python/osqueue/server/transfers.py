"""Contents that are too large for a request or an answer: they pass beside it, by requests that are signed here.

What somebody uploads lies in a place of its own until a request names it: then it is read, and becomes a payload or a
result like any other. Nothing else ever refers to it, and the collector deletes it a day later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from ..clock import Machine
from ..commit.effects import Flow
from ..commit.retry import OBJECT, ask
from ..contract.error_codes import TooLarge
from ..contract.functions import CONTENT_BYTES_MAX
from ..contract.route import QUEUES
from ..contract.schemas import Download
from ..core.rows import BodyRef
from ..errors import NotSupported, OsqueueError, Rejected
from ..model.fields import moment
from ..objects.layout import root_of, unavailable
from ..objects.staging import UPLOADS, UPLOADS_SHARD
from ..stores.base import AnnouncedPut, Found, Get, Missing, PresignedRequest, Store

if TYPE_CHECKING:
    from ..stores.relay import Relay

SECONDS = 900  # for which a signed request may be sent

_NAME = re.compile(r"[0-9a-f]{12}-[0-9a-f]{16}-([0-9a-f]{1,16})")


class Transfers:
    """Signs requests of a store's objects. ``presigns``: callers reach the store itself, if it signs."""

    def __init__(self, store: Store, machine: Machine, presigns: bool) -> None:
        self._store = store
        self._machine = machine
        self._presigns = presigns
        self._relay: Relay | None = None

    def signed(self, request: Get | AnnouncedPut) -> Flow[tuple[PresignedRequest, datetime]]:
        """The request to send, and until when. Raises Unavailable, and NotSupported where nobody could carry it out."""
        until = moment(self._machine.now_ms() + SECONDS * 1000)
        found = self._store.presigned(request, SECONDS) if self._presigns else None
        if found is None and self._presigns and not self._store.ordered:  # a directory bucket, at AWS
            raise NotSupported(
                "a payload or result that is too large for a request or an answer does not pass through this API: its"
                " store signs no requests for others. Remedy: keep it elsewhere, or connect to the store itself."
            )
        if found is None:
            if self._relay is None:
                from ..stores.relay import Relay  # here, because a function over S3 needs none

                self._relay = Relay(self._machine)
            found = yield from self._relay.presigned(request, SECONDS)
        return found, until

    def download(self, root: str, body: BodyRef, codec: str) -> Flow[Download]:
        """How to get a content that lies beside the head."""
        get = Get(root + body.name, start=body.start, length=body.length)
        signed, until = yield from self.signed(get)
        return Download(
            url=signed.url,
            headers=signed.headers,
            bytes=body.length,
            crc32=body.crc,
            codec=codec,
            expires_at=until,
        )


def _missing(what: str) -> Rejected:
    return Rejected(
        f"upload: {what}. Ask for a place with POST {QUEUES}/{{queue}}/uploads, PUT the bytes to its url, and name it.",
        field="upload",
    )


def nothing_there() -> Rejected:
    """One of its own for each request: an error that is raised remembers where."""
    return _missing("nothing lies under this name: it was never sent, or is more than a day old")


def uploaded(queue: str, names: Iterable[str]) -> Flow[dict[str, bytes | OsqueueError]]:
    """What was uploaded to a queue under these names, or what is wrong with one. Raises Unavailable."""
    found: dict[str, bytes | OsqueueError] = {}
    room = CONTENT_BYTES_MAX  # a function holds all of them
    for name in dict.fromkeys(names):
        match = _NAME.fullmatch(name)
        size = 0 if match is None else int(match[1], 16)
        if match is None:
            found[name] = _missing("this is no name that the API gave")
        elif size > room:
            found[name] = TooLarge(
                f"upload: what one request names has at most {CONTENT_BYTES_MAX:,} bytes together. Send it in another"
                " request.",
                field="upload",
            )
        else:
            room -= size
            found[name] = yield from _read(queue, name, size)
    return found


def _read(queue: str, name: str, size: int) -> Flow[bytes | OsqueueError]:
    get = Get(f"{root_of(queue, UPLOADS_SHARD)}{UPLOADS}/{name}", start=0, length=size + 1)
    reply = yield from ask(get, OBJECT)
    if isinstance(reply, Missing):
        return nothing_there()
    if not isinstance(reply, Found):
        raise unavailable(reply, "what was uploaded")
    if len(reply.body) != size:
        return _missing(f"what lies under this name has not the {size:,} bytes that were announced")
    return reply.body
