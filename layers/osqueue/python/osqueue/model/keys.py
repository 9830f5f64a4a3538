"""Job keys: UUIDs of version 7 (RFC 9562), drawn by the client, that sort by time and name their shard.

     48 bits milliseconds │ 4 version │ 12 bits counter │ 2 variant │ 54 bits random │ 8 bits shard

The client draws the key, so that a request repeated by a transport is the same job. Where nobody drew one, and the
request has an id that a repeat has as well, the key is made of that.
"""

from __future__ import annotations

import re
import struct
from hashlib import sha256

from .. import forks
from ..clock import Machine
from ..core.state import key_text
from ..errors import Rejected, shown

_KEY_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_COUNTER_BITS = 12
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_CHANCE_BITS = 64  # drawn for a key, of which it takes 54
_RANDOM_MASK = (1 << 54) - 1
_LAYOUT = struct.Struct(">QQ").pack


class KeySource:
    """Draws keys that increase: in one process, a later key sorts after an earlier one."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = forks.lock()
        self._next = 0  # the earliest moment that is free: milliseconds, then the counter

    def draw(self, shard: int, count: int = 1) -> list[bytes]:
        """``count`` new keys of one shard, in order."""
        chance = self._machine.bits(_CHANCE_BITS * count)
        with self._lock:
            first = max(self._machine.now_ms() << _COUNTER_BITS, self._next)
            self._next = first + count  # a full counter borrows from the next millisecond
        if count == 1:
            return [_key(first, chance, shard)]
        chances = struct.unpack(f">{count}Q", chance.to_bytes(_CHANCE_BITS // 8 * count, "big"))
        return [_key(at, each, shard) for at, each in enumerate(chances, first)]


def _key(moment: int, chance: int, shard: int) -> bytes:
    high = moment >> _COUNTER_BITS << 16 | 7 << 12 | moment & _COUNTER_MASK
    return _LAYOUT(high, 1 << 63 | (chance & _RANDOM_MASK) << 8 | shard)


def keys_of_request(request_id: str, at_ms: int, count: int) -> list[bytes]:
    """The keys of the jobs of one request, in order: the same ones whenever it comes, with the same moment."""
    chance = int.from_bytes(sha256(request_id.encode()).digest()[:8], "big")
    shard, first = chance & 0xFF, at_ms << _COUNTER_BITS
    return [_key(first + number, chance >> 8, shard) for number in range(count)]


def key_like(old: bytes, drawn: bytes) -> bytes:
    """A drawn key with the time and the shard of another one: it sorts where that one does."""
    return old[:6] + drawn[6:15] + old[15:]


def is_like(key: bytes, other: bytes) -> bool:
    """Have two keys the same time and shard, as those have that took the place of one another?"""
    return key[:6] == other[:6] and key[15] == other[15]


job_id = key_text  # the key as callers see it


def key_of(text: str) -> bytes:
    """The inverse; raises Rejected for what is no job id."""
    try:
        if len(text) == 36 and text[8] == text[13] == text[18] == text[23] == "-":
            key = bytes.fromhex(text.replace("-", ""))
            if len(key) == 16:  # white space is nothing to fromhex
                return key
    except (ValueError, TypeError, AttributeError):
        pass
    raise Rejected(
        f"job_id: {shown(text)} is not a job id. Pass the job_id that enqueue answered.", field="job_id"
    )


def is_key(text: object) -> bool:
    """Does this have the form of a job id that this library draws? A client's own id may have it, too."""
    return isinstance(text, str) and _KEY_TEXT.fullmatch(text) is not None


def shard_of(key: bytes) -> int:
    """The shard a key belongs to."""
    return key[15]


def drawn_ms(key: bytes) -> int:
    """When the key was drawn, by the client's clock."""
    return int.from_bytes(key[:6], "big")
