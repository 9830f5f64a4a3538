"""Bulks staged by tests, and a store that meddles with their requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osqueue import Queue, Unavailable
from osqueue.bulk.writer import BulkWriter, StagedJobs
from osqueue.core.job_ops import JobSpec
from osqueue.stores.base import Failed, List, Listed, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

LOST = Failed(Unavailable("the reply was lost"))


class Meddled(WrappedStore):
    """Does something of the test's own with each request."""

    def __init__(
        self, inner: Any, meddle: Callable[[StoreRequest, Callable[[StoreRequest], StoreReply]], StoreReply]
    ) -> None:
        super().__init__(inner)
        self._meddle = meddle

    def perform(self, request: StoreRequest) -> StoreReply:
        return self._meddle(request, self.inner.perform)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


class Crash(BaseException):
    """The process ends here."""


def stage(bulks: BulkWriter, jobs: int, shard: int = 0, **fields: Any) -> StagedJobs:
    stager = bulks.stager(bulks.plan(), shard)
    stager.add([JobSpec(key, b"%d" % at, **fields) for at, key in enumerate(stager.keys(jobs))])
    return stager.finish()


def waiting(store: Any, queue: str = "q") -> int:
    return int(Queue(store, queue).stats()["queued"])


def head_writes(store: MemoryStore, run: Callable[[Any], Any]) -> int:
    """How many heads a call writes."""
    seen: list[str] = []

    def note(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        if isinstance(request, PutIfAbsent | PutIfMatch | Put) and request.key.endswith("/head"):
            seen.append(request.key)
        return perform(request)

    run(Meddled(store, note))
    return len(seen)


def store_keys(store: MemoryStore) -> list[str]:
    listed = store.perform(List(""))
    assert isinstance(listed, Listed)
    return list(listed.keys)
