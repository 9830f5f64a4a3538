"""The store as it really is: objects whose versions are those of their bytes, and a clock with ticks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from hashlib import blake2b

from osqueue.stores.base import (
    LIST_KEYS_MAX,
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Listed,
    Missing,
    PassTurn,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Unchanged,
    Written,
)

from .machine import EPOCH_MS, HasTime

Mourner = Callable[[str], None]  # told of a deletion after it happened: key
WriteWatcher = Callable[
    [StoreRequest, str, bytes], None
]  # told of a write after it happened: request, key, body


def version_of(body: bytes) -> str:
    """Equal for equal bytes, as the ETags of S3 are."""
    return blake2b(body, digest_size=16).hexdigest()


class Truth:
    """Strongly consistent, as S3 is: a reply describes the one moment at which the request took effect."""

    def __init__(self, world: HasTime, ahead_ms: int = 0) -> None:
        self._world = world
        self._ahead_ms = ahead_ms  # of its clock
        self.tick_ms = 1_000  # resolution of the times of objects
        self._objects: dict[str, Found] = {}
        self._keys: list[str] = []
        self.watchers: list[WriteWatcher] = []
        self.mourners: list[Mourner] = []
        self.damaged: set[str] = set()  # keys whose objects read as zeros; the checks know what was written

    def perform(self, request: StoreRequest) -> StoreReply:
        """Let a request take effect now."""
        match request:
            case Get(key=key):
                return self._get(request, self._objects.get(key))
            case Put(key=key, body=body):
                return self._write(request, key, body)
            case PutIfAbsent(key=key, body=body):
                return Refused() if key in self._objects else self._write(request, key, body)
            case PutIfMatch(key=key, body=body, version=version):
                return self._write(request, key, body) if self.matches(key, version) else Refused()
            case List():
                return self._list(request)
            case Delete(keys=keys):
                for key in keys:
                    self._remove(key)
                return Deleted()
            case DeleteIfMatch(key=key, version=version):
                if not self.matches(key, version):
                    return Refused()
                self._remove(key)
                return Deleted()
            case TakeTurn() | PassTurn():
                raise AssertionError("turns are the network's")

    def matches(self, key: str, version: str) -> bool:
        """Would a conditional write find its condition met now?"""
        found = self._objects.get(key)
        return found is not None and found.version == version

    def swap(self, key: str, body: bytes) -> None:
        """Write an object by compare-and-swap, at once: nobody comes between."""
        self.perform(PutIfMatch(key, body, self._objects[key].version))

    def read(self, key: str) -> bytes | None:
        """An object's bytes, for the checks."""
        found = self._objects.get(key)
        return None if found is None else found.body

    def keys(self, prefix: str) -> list[str]:
        """The keys under a prefix, for the checks."""
        first = bisect_left(self._keys, prefix)
        return self._keys[first : bisect_left(self._keys, prefix + "\U0010ffff")]

    def fingerprint(self) -> int:
        """The whole content as one number, so that two moments can be told to be the same."""
        return hash(tuple((key, self._objects[key].version) for key in self._keys))

    def seconds(self) -> float:
        """Virtual time."""
        return self._world.now

    def clock_ms(self) -> int:
        """The store's own time."""
        return EPOCH_MS + self._ahead_ms + int(self._world.now * 1000)

    def _get(self, request: Get, found: Found | None) -> StoreReply:
        if found is None:
            return Missing()
        if found.version == request.unless:
            return Unchanged()
        if request.key in self.damaged:
            found = Found(bytes(len(found.body)), found.version, found.modified_ms)
        if request.start is None and request.length is None:
            return found
        start = request.start or 0
        end = None if request.length is None else start + request.length
        return Found(found.body[start:end], found.version, found.modified_ms)

    def _write(self, request: StoreRequest, key: str, body: bytes) -> StoreReply:
        version = version_of(body)
        if key not in self._objects:
            insort(self._keys, key)
        self.damaged.discard(key)
        self._objects[key] = Found(body, version, self.clock_ms() // self.tick_ms * self.tick_ms)
        for watch in self.watchers:
            watch(request, key, body)
        return Written(version)

    def _list(self, request: List) -> Listed:
        limit = request.page(LIST_KEYS_MAX)
        first = max(bisect_left(self._keys, request.prefix), bisect_right(self._keys, request.after))
        page = [key for key in self._keys[first : first + limit + 1] if key.startswith(request.prefix)]
        return Listed(tuple(page[:limit]), more=len(page) > limit)

    def _remove(self, key: str) -> None:
        if self._objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
            for mourn in self.mourners:
                mourn(key)
            self.damaged.discard(key)
