"""Presigned requests for stores that give none: a server carries them out for whoever has the signed path.

``PATH`` and a ticket are the path. The ticket says what is read or written, and until when, and is signed with a secret
that lies in the store: so all servers of one store, and the functions of a local stack, accept one another's tickets.

Who may read the store can read that secret, and sign. So a signature is not enough: a ticket reads a payload or result
and writes an upload, each in its folder of a shard, and no other key is read or written for it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Generator

import msgspec
from msgspec import Struct

from ..clock import Machine
from ..errors import Unavailable
from .base import (
    AnnouncedPut,
    Failed,
    Found,
    Get,
    Missing,
    PresignedRequest,
    PutIfAbsent,
    Refused,
    Store,
    StoreReply,
    StoreRequest,
    Written,
)

PATH = "/transfers/"
SIGNER = "relay/signer"  # the object that the secret lies in
SECRET_BITS = 256
_SHARD = r"[0-9a-f]{4}/[^/]+/[0-9]+"  # what the keys of a shard begin with
PLACES = {
    "GET": re.compile(rf"{_SHARD}/bodies/[^/]+"),
    "PUT": re.compile(rf"{_SHARD}/uploads/[^/]+"),
}  # by method

Signing = Generator[StoreRequest, StoreReply, PresignedRequest]


class RelayTicket(Struct, frozen=True, array_like=True):
    """What somebody may do, once it is signed."""

    method: str
    key: str
    start: int  # first byte
    length: int  # bytes
    sha256: str  # of what is written, in hexadecimal
    until_ms: int


class RelayAnswer(Struct, frozen=True):
    """An answer of HTTP; what is no content is a line for people."""

    status: int
    body: bytes = b""


class RelayRefusal(Exception):
    """The request is not carried out."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.answer = RelayAnswer(status, f"{why}\n".encode())


class Relay:
    """Signs tickets, and carries out what they allow. Any number of threads may use one object."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._secret = b""

    def presigned(self, request: Get | AnnouncedPut, seconds: int) -> Signing:
        """The request as its sender has to send it; its URL begins where the API does. Raises Unavailable."""
        until = self._machine.now_ms() + seconds * 1000
        if isinstance(request, Get):
            assert request.length is not None, "a range has an end"
            ticket = RelayTicket("GET", request.key, request.start or 0, request.length, "", until)
        else:
            ticket = RelayTicket("PUT", request.key, 0, request.length, request.sha256, until)
        assert _may(ticket), "no other key is signed"
        text = urlsafe_b64encode(msgspec.json.encode(ticket)).rstrip(b"=")
        secret = yield from self._known_secret()
        return PresignedRequest(ticket.method, f"{PATH}{text.decode()}.{_signature(secret, text)}")

    def open(self, store: Store, method: str, path: str) -> RelayTicket:
        """What a request of this path may do. Raises RelayRefusal, and Unavailable."""
        text, _, signature = path.removeprefix(PATH).partition(".")
        told = _run(self._known_secret(), store)
        if not hmac.compare_digest(_signature(told, text.encode()).encode(), signature.encode()):
            raise RelayRefusal(403, "the path is not signed as it should be: send it as the API gave it.")
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        ticket = msgspec.json.decode(data, type=RelayTicket)
        if ticket.method != method:
            raise RelayRefusal(405, f"this path takes {ticket.method}.")
        if not _may(ticket):
            raise RelayRefusal(403, "the path leads to no payload, result or upload.")
        if ticket.until_ms < self._machine.now_ms():
            raise RelayRefusal(403, "the path has expired: ask the API for another one.")
        return ticket

    def carry_out(self, store: Store, ticket: RelayTicket, body: bytes = b"") -> RelayAnswer:
        """Do what a ticket allows. Blocks."""
        if ticket.method == "PUT":
            if len(body) != ticket.length or hashlib.sha256(body).hexdigest() != ticket.sha256:
                return RelayAnswer(400, b"these are not the bytes that were announced.\n")
            reply = store.perform(PutIfAbsent(ticket.key, body))
        else:
            reply = store.perform(Get(ticket.key, start=ticket.start, length=ticket.length))
        match reply:
            case Found():
                return RelayAnswer(200, reply.body)
            case Written():
                return RelayAnswer(200)
            case Refused():
                return RelayAnswer(412, b"the bytes are there already.\n")
            case Missing():
                return RelayAnswer(404, b"there is nothing any more: ask the API again.\n")
            case _:
                return RelayAnswer(503, b"the store did not answer. Repeat the request.\n")

    def _known_secret(self) -> Generator[StoreRequest, StoreReply, bytes]:
        if self._secret:
            return self._secret
        read = yield Get(SIGNER)  # first: a reader may not be allowed to write
        if isinstance(read, Missing):
            drawn = self._machine.bits(SECRET_BITS).to_bytes(SECRET_BITS // 8, "big")
            written = yield PutIfAbsent(SIGNER, drawn)
            read = Found(drawn, "", 0) if isinstance(written, Written) else (yield Get(SIGNER))
        if not isinstance(read, Found):
            raise read.error if isinstance(read, Failed) else Unavailable(f"{SIGNER} cannot be read")
        self._secret = read.body
        return self._secret


def _may(ticket: RelayTicket) -> bool:
    """Return whether the key of a ticket lies where its method may read or write."""
    place = PLACES.get(ticket.method)
    return place is not None and place.fullmatch(ticket.key) is not None


def _signature(secret: bytes, text: bytes) -> str:
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def _run(steps: Generator[StoreRequest, StoreReply, bytes], store: Store) -> bytes:
    try:
        request = next(steps)
        while True:
            request = steps.send(store.perform(request))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
