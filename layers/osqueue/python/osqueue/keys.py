"""Job keys: UUIDs of version 7 (RFC 9562), drawn by the client, that sort by time and name their shard.

     48 bits milliseconds │ 4 version │ 12 bits counter │ 2 variant │ 54 bits random │ 8 bits shard

The client draws the key, so that a request repeated by a transport is the same job.
"""

from __future__ import annotations

import threading

from .clock import Machine
from .core.state import key_text
from .errors import Rejected

_COUNTER_MAX = (1 << 12) - 1
_RANDOM_BYTES = 7


class KeySource:
    """Draws keys that increase: in one process, a later key sorts after an earlier one."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = threading.Lock()
        self._ms = 0
        self._counter = 0

    def draw(self, shard: int, count: int = 1) -> list[bytes]:
        """``count`` new keys of one shard, in order."""
        chance = self._machine.bits(_RANDOM_BYTES * 8 * count).to_bytes(_RANDOM_BYTES * count, "big")
        mask = (1 << 54) - 1
        keys = []
        with self._lock:
            now = self._machine.now_ms()
            ms, counter = (now, 0) if now > self._ms else (self._ms, self._counter)
            for at in range(0, len(chance), _RANDOM_BYTES):
                if counter > _COUNTER_MAX:  # borrow from the next millisecond
                    ms, counter = ms + 1, 0
                random = int.from_bytes(chance[at : at + _RANDOM_BYTES], "big") & mask
                low = (0b10 << 62) | (random << 8) | shard
                keys.append((((ms << 16 | 7 << 12 | counter) << 64) | low).to_bytes(16, "big"))
                counter += 1
            self._ms, self._counter = ms, counter
        return keys


job_id = key_text  # the key as callers see it


def key_of(text: str) -> bytes:
    """The inverse; raises Rejected for what is no job id."""
    try:
        if len(text) == 36 and text[8] == text[13] == text[18] == text[23] == "-":
            return bytes.fromhex(text.replace("-", ""))
    except (ValueError, TypeError, AttributeError):
        pass
    raise Rejected(
        f"job_id: {text!r} is not a job id. Pass the job_id that enqueue answered.", field="job_id"
    )


def shard_of(key: bytes) -> int:
    """The shard a key belongs to."""
    return key[15]


def drawn_ms(key: bytes) -> int:
    """When the key was drawn, by the client's clock."""
    return int.from_bytes(key[:6], "big")
