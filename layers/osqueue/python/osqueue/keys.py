"""Job keys: UUIDs of version 7 (RFC 9562), drawn by the client, that sort by time and name their shard.

     48 bits milliseconds │ 4 version │ 12 bits counter │ 2 variant │ 54 bits random │ 8 bits shard

The client draws the key, so that a request repeated by a transport is the same job.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Iterator

from .clock import Machine
from .core.state import key_text
from .errors import Rejected, shown

_KEY_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_COUNTER_MAX = (1 << 12) - 1
_RANDOM_BYTES = 7
_RANDOM_MASK = (1 << 54) - 1
_LAYOUT = struct.Struct(">QQ").pack


class KeySource:
    """Draws keys that increase: in one process, a later key sorts after an earlier one."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = threading.Lock()
        self._ms = 0
        self._counter = 0

    def draw(self, shard: int, count: int = 1) -> list[bytes]:
        """``count`` new keys of one shard, in order."""
        chance = self._machine.bits(_RANDOM_BYTES * 8 * count)
        keys = []
        with self._lock:
            now = self._machine.now_ms()
            ms, counter = (now, 0) if now > self._ms else (self._ms, self._counter)
            for random in (chance,) if count == 1 else _cut(chance, count):
                if counter > _COUNTER_MAX:  # borrow from the next millisecond
                    ms, counter = ms + 1, 0
                high = ms << 16 | 7 << 12 | counter
                keys.append(_LAYOUT(high, 0b10 << 62 | (random & _RANDOM_MASK) << 8 | shard))
                counter += 1
            self._ms, self._counter = ms, counter
        return keys


def _cut(chance: int, count: int) -> Iterator[int]:
    """``count`` random numbers out of a large one."""
    data = chance.to_bytes(_RANDOM_BYTES * count, "big")
    for at in range(0, len(data), _RANDOM_BYTES):
        yield int.from_bytes(data[at : at + _RANDOM_BYTES], "big")


job_id = key_text  # the key as callers see it


def key_of(text: str) -> bytes:
    """The inverse; raises Rejected for what is no job id."""
    try:
        if len(text) == 36 and text[8] == text[13] == text[18] == text[23] == "-":
            return bytes.fromhex(text.replace("-", ""))
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
