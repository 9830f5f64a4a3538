"""A store in this process's memory: for tests, for trying things out, and for the benchmarks.

One dict behind one lock, so every operation is one step for every thread. Nothing survives the process.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any

from .. import forks
from ..clock import MACHINE, Machine
from .base import (
    LIST_KEYS_MAX,
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Listed,
    LookPace,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    StoreReply,
    StoreRequest,
    Unchanged,
    Written,
)

_MISSING = Missing()
_UNCHANGED = Unchanged()
_DELETED = Deleted()
_REFUSED = Refused()


class MemoryStore(Store):
    """Objects in a dict. The version counts all writes, so that it survives deletions without repeating."""

    remote = False
    shared = False
    # Each write of this process wakes the waiters. No other process claims what becomes due.
    look_pace = LookPace(1.0, spread=0.0, free=True)
    clock_tick_ms = 1

    def __init__(self, machine: Machine = MACHINE) -> None:
        self._machine = machine
        self._lock = forks.lock()
        self._objects: dict[str, Found] = {}
        self._keys: list[str] = []  # sorted; code point order of str is the byte order of its UTF-8
        self._writes = 0
        # One look-up by type instead of the port's chain of comparisons: benchmarks run through here.
        self._methods: dict[type, Callable[[Any], StoreReply]] = {
            Get: self.get,
            Put: self.put,
            PutIfAbsent: self.put_if_absent,
            PutIfMatch: self.put_if_match,
            List: self.list,
            Delete: self.delete,
            DeleteIfMatch: self.delete_if_match,
        }

    def get(self, request: Get) -> Found | Missing | Unchanged:
        found = self._objects.get(request.key)
        if found is None:
            return _MISSING
        if found.version == request.unless:
            return _UNCHANGED
        if request.start is None and request.length is None:
            return found
        start = request.start or 0
        end = None if request.length is None else start + request.length
        return Found(found.body[start:end], found.version, found.modified_ms)

    def put(self, request: Put) -> Written:
        with self._lock:
            return self._write(request.key, request.body)

    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        with self._lock:
            if request.key in self._objects:
                return _REFUSED
            return self._write(request.key, request.body)

    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        with self._lock:
            current = self._objects.get(request.key)
            if current is None or current.version != request.version:
                return _REFUSED
            return self._write(request.key, request.body)

    def list(self, request: List) -> Listed:
        prefix, limit = request.prefix, request.page(LIST_KEYS_MAX)
        with self._lock:
            keys = self._keys
            first = max(bisect_left(keys, prefix), bisect_right(keys, request.after))
            page = keys[first : first + limit + 1]
        matching = [key for key in page if key.startswith(prefix)]
        return Listed(tuple(matching[:limit]), more=len(matching) > limit)

    def delete(self, request: Delete) -> Deleted:
        with self._lock:
            for key in request.keys:
                self._remove(key)
        return _DELETED

    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused:
        with self._lock:
            current = self._objects.get(request.key)
            if current is None or current.version != request.version:
                return _REFUSED
            self._remove(request.key)
        return _DELETED

    def clock_ms(self) -> int:
        return self._machine.now_ms()

    def perform(self, request: StoreRequest) -> StoreReply:
        return self._methods[type(request)](request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self._methods[type(request)](request)  # nothing here waits: a thread would only cost

    def _write(self, key: str, body: bytes) -> Written:
        self._writes += 1
        version = str(self._writes)
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = Found(body, version, self._machine.now_ms())
        return Written(version)

    def _remove(self, key: str) -> None:
        if self._objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]


_named: dict[str, MemoryStore] = {}
_named_lock = forks.lock()


def named(name: str, machine: Machine = MACHINE) -> MemoryStore:
    """The store called ``name`` in this process: the same one every time, made at the first call."""
    with _named_lock:
        store = _named.get(name)
        if store is None:
            store = _named[name] = MemoryStore(machine)
        return store
