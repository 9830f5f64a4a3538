"""What a folder's store promised, what its callers rely on, and whether what is left keeps it."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from osqueue.stores.base import (
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    Put,
    PutIfAbsent,
    PutIfMatch,
    StoreReply,
    StoreRequest,
    Unchanged,
    Written,
)
from osqueue.stores.file import FileStore
from osqueue.stores.wrapped import WrappedStore

from .ledger import Violation


class Value(Struct, frozen=True):
    """What was under a key for a while."""

    body: bytes | None  # None: nothing
    flushed: bool  # its content was flushed before it got its name


NOTHING = Value(None, True)


class KeyHistory:
    """What every key has stood for since the machine was started, and the earliest of it that may be left."""

    def __init__(self, head: str) -> None:
        self.head = head  # the key of the queue's head
        self.values: dict[str, list[Value]] = {}
        self.floor: Counter[str] = Counter()
        self.by: dict[str, str] = {}  # by what answer that was promised
        self.at: dict[tuple[str, str], int] = {}  # where the value of a version is
        self.names: dict[bytes, frozenset[str]] = {}  # what each head refers to

    def add(self, key: str, value: Value, version: str | None) -> None:
        """From now on it stands for this."""
        values = self.values.setdefault(key, [NOTHING])
        values.append(value)
        if version is not None:
            if (key, version) in self.at:
                raise Violation(f"the version {version} of {key} comes twice")
            self.at[key, version] = len(values) - 1

    def latest(self, key: str) -> int:
        """Where the value is that the key stands for now."""
        return len(self.values.get(key, (NOTHING,))) - 1

    def check_read(self, key: str, version: str, since: int) -> None:
        """Was this version current at some moment since then?"""
        at = self.at.get((key, version))
        if at is None or at < since:
            raise Violation(
                f"a read of {key} brought {version}, which had been replaced before, or never was"
            )

    def promise(self, key: str, version: str, by: str, later: int = 0) -> None:
        """Nothing before this version may come back, since somebody was told of it."""
        at = self.at.get((key, version), 0) + later
        if at > self.floor[key]:
            self.floor[key], self.by[key] = at, by

    def judge(self, found: dict[str, bytes]) -> None:
        """Is this what may be left?"""
        for key, values in self.values.items():
            body, may_be = found.get(key), values[self.floor[key] :]
            if not any(each.body == body or not each.flushed for each in may_be):
                what = "nothing" if body is None else "another"
                raise Violation(f"after a power cut {what} is at {key}, of which {self.by.get(key)} told")
        head = found.get(self.head)
        for name in self.names.get(head, ()) if head is not None else ():
            if found.get(name) is None or all(each.body != found[name] for each in self.values[name]):
                raise Violation(
                    f"{name} is not whole after a power cut, and the head that is left refers to it"
                )


class PromiseStore(WrappedStore):
    """A process's store: notes what it promises, and what its process relies on."""

    def __init__(self, inner: FileStore, history: KeyHistory) -> None:
        super().__init__(inner)
        self.turns = False  # they change nothing that a power cut may take
        self.history = history
        self.relied: list[tuple[str, str]] = []  # objects and versions that were read for the call under way

    @property
    def place(self) -> object:
        return self  # each process has one of its own

    def perform(self, request: StoreRequest) -> StoreReply:
        since = self.history.latest(request.key) if isinstance(request, Get) else 0
        reply = self.inner.perform(request)
        promise = self.history.promise
        match request, reply:
            case (PutIfAbsent() | PutIfMatch() | Put(durable=True) as put, Written(version=version)):
                promise(put.key, version, "a write")
            case (DeleteIfMatch(key=key, version=version), Deleted()):
                promise(key, version, "a deletion", later=1)
            case (Get() as get, Found(version=version)) | (Get(unless=str(version)) as get, Unchanged()):
                self.history.check_read(get.key, version, since)
                self.relied.append((get.key, version))
                if get.flushed:
                    promise(get.key, version, "a read of what is flushed")
        return reply

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        raise AssertionError("these processes have no event loop")

    def answered(self, call: str) -> None:
        """The call was answered: what it read is relied on."""
        for key, version in self.relied:
            self.history.promise(key, version, call)
