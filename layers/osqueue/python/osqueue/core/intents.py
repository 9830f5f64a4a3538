"""Announced requests: their keys, of which one LIST tells a thousand, and the objects under them.

    intents/<root><born>.<env>.<n>.<mark>.<epoch>.<format>.<sealed operations, where they fit>

Keys reach logs and inventories, where payloads, tokens and error texts must not stand. So operations ride in a key
*sealed* with a secret of the head: encrypted and authenticated together with who asks, deterministically, as SIV does
(P. Rogaway, T. Shrimpton, 2006), with SHAKE-256 (FIPS 202) for both of its functions. The head draws a secret about
once an hour of use and keeps the last two. Who asks, and how long the operations are, stays readable; not the nonce,
of which lease tokens are made: a hash of it, the ``mark``, stands for it.

The object holds the whole request too. It is read where the key has no operations, or the head no longer their secret.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from hashlib import shake_256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..errors import Damaged, NewerFormat
from .encoding import FORMAT, FORMATS_READ, encode, frame, unframe
from .ops import Op, Request, nonce_digest

INTENTS = "intents/"  # those of all shards lie below it, where one lifecycle rule of a bucket can name them
PUBLICATION = "publication."  # sorts behind all announcements, which begin with a hexadecimal digit
DOORS = ("door-a", "door-b")  # a writer's name has only hexadecimal digits
_TAG_BYTES = 8
_NUMBER = "(0|[1-9a-f][0-9a-f]{0,15})"  # below 2^64, as everything in a head
_KEY = re.compile(
    rf"([0-9a-f]{{12,16}})\.([0-9A-Za-z_-]{{1,64}})\.{_NUMBER}\.([0-9a-f]{{16}})\.{_NUMBER}\.{_NUMBER}\.([0-9A-Za-z_-]*)"
)

_decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_sealed = msgspec.msgpack.Decoder(tuple[int, tuple[Op, ...]]).decode


class IntentName(Struct, frozen=True):
    """What an intent's key tells."""

    key: str
    request: Request  # who asks, as ``public_identity`` makes it


def intents_prefix(root: str) -> str:
    """Where a shard's announced requests lie: the prefix of their keys."""
    return INTENTS + root


def publications_prefix(root: str) -> str:
    """Return where the writers of a shard publish: the prefix of their names."""
    return f"{INTENTS}{root}{PUBLICATION}"


def intent_key(request: Request, name_bytes_max: int, seals: Sequence[bytes]) -> str:
    """The request's own key, after ``intents_prefix``, in at most ``name_bytes_max`` bytes.

    It is drawn once and kept for every retry: another head may hold other ``seals``.
    """
    stem = _stem(request)
    if seals:
        packed = encode((request.nonce, request.ops))
        sealed = base64.urlsafe_b64encode(_seal(packed, seals[-1], stem)).decode().rstrip("=")
        if len(stem) + 1 + len(sealed) <= name_bytes_max:
            return f"{stem}.{sealed}"
    return f"{stem}."


def parse_intent_key(key: str) -> IntentName | None:
    """Read a key; None for one that this release cannot read (it is then left alone, never rejected)."""
    fields = _KEY.fullmatch(key)
    if fields is None:
        return None
    born, env, n, mark, epoch, form, _ = fields.groups()
    if int(form, 16) not in FORMATS_READ:
        return None
    return IntentName(key, Request(env, int(n, 16), int(mark, 16), int(born, 16), int(epoch, 16), ()))


def public_identity(request: Request) -> Request:
    """What everybody may know of a request: who asks, with the nonce's mark in its place."""
    return replace(request, nonce=nonce_digest(request.nonce), ops=())


def request_in_key(name: IntentName, seals: Sequence[bytes]) -> Request | None:
    """The request of a key; None when its operations are not in it, or sealed with another secret."""
    stem, _, sealed = name.key.rpartition(".")
    try:
        text = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
        for secret in reversed(seals):
            if (packed := _unseal(text, secret, stem)) is not None:
                nonce, ops = _decode_sealed(packed)
                return replace(name.request, nonce=nonce, ops=ops)
    except (ValueError, msgspec.MsgspecError, RecursionError):  # no base64, or no operations of this release
        pass
    return None


def intent_body(request: Request) -> bytes:
    """The object under the intent's key."""
    return frame(b"OSQI", encode(request))


def decode_intent(data: bytes, key: str) -> Request:
    """The inverse of ``intent_body``; raises Damaged or NewerFormat."""
    try:
        return _decode_request(unframe(b"OSQI", data, key))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Damaged(f"{key} cannot be decoded: {error}") from error


def read_intent(name: IntentName, data: bytes) -> Request | None:
    """The request in the object; None when this release cannot read it, or it is not what its key says."""
    try:
        request = decode_intent(data, name.key)
    except (Damaged, NewerFormat):
        return None
    return request if public_identity(request) == name.request else None


def writer_of_publication(name: str) -> str | None:
    """Return the writer or the door of a publication by what stands after ``intents_prefix``, or None."""
    return name.removeprefix(PUBLICATION) if name.startswith(PUBLICATION) else None


def read_publication(key: str, data: bytes) -> Request | None:
    """Return the request in a publication. None: this release cannot read it."""
    try:
        return decode_intent(data, key)
    except (Damaged, NewerFormat):
        return None


def within_bytes(requests: Sequence[Request]) -> list[Request]:
    """The oldest requests that together stay within one commit's budget; the first always, however large."""
    kept: list[Request] = []
    size = 0
    for request in sorted(requests, key=lambda each: (each.born, each.env, each.n)):
        size += len(intent_body(request))
        if kept and size > limits.INTENT_BYTES_PER_COMMIT_MAX:
            break
        kept.append(request)
    return kept


def _stem(request: Request) -> str:
    """The part of a key that everybody may read. It sorts by birth."""
    born, env, n, mark, epoch = (
        request.born,
        request.env,
        request.n,
        nonce_digest(request.nonce),
        request.epoch,
    )
    return f"{born:012x}.{env}.{n:x}.{mark:016x}.{epoch:x}.{FORMAT:x}"


def _seal(packed: bytes, secret: bytes, stem: str) -> bytes:
    """Its tag tells one who asks from another and a text from all others, so it may stand for a nonce."""
    tag = _drawn(b"tag", secret, stem, packed, _TAG_BYTES)
    return tag + _xor(packed, _drawn(b"key", secret, stem, tag, len(packed)))


def _unseal(text: bytes, secret: bytes, stem: str) -> bytes | None:
    tag, hidden = text[:_TAG_BYTES], text[_TAG_BYTES:]
    packed = _xor(hidden, _drawn(b"key", secret, stem, tag, len(hidden)))
    return packed if _drawn(b"tag", secret, stem, packed, _TAG_BYTES) == tag else None


def _drawn(use: bytes, secret: bytes, stem: str, text: bytes, count: int) -> bytes:
    """``count`` bytes that nobody can foretell without the secret."""
    return shake_256(b".".join((use, secret, stem.encode(), text))).digest(count)


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
