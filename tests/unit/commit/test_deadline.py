"""A server that refuses conditional writes although nothing changed: asked a few times, with pauses, and then named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Queue, Unavailable
from osqueue.commit.deadline import IDLE_REFUSALS_MAX
from osqueue.objects import id_index
from osqueue.stores.base import Found, PutIfAbsent, PutIfMatch, Refused, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

REQUESTS_MAX = 40


class Gateway(WrappedStore):
    """Compares ETags as some do that want them without quotes: no condition ever holds."""

    def __init__(self, store: MemoryStore, kinds: tuple[type, ...], times: int = 1 << 30) -> None:
        super().__init__(store)
        self.kinds = kinds
        self.left = times
        self.asked: Counter[str] = Counter()

    def perform(self, request: StoreRequest) -> StoreReply:
        self.asked[type(request).__name__] += 1
        if isinstance(request, self.kinds) and request.key.endswith(self.where) and self.left > 0:  # type: ignore[union-attr]
            self.left -= 1
            return Refused()
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)

    where = "head"


def queue(machine: Any, *kinds: type, used: bool = True, times: int = 1 << 30) -> tuple[Queue[Any], Gateway]:
    store = MemoryStore(machine)
    if used:
        Queue(store, "mail", machine=machine).enqueue("before")
    gateway = Gateway(store, kinds, times)
    return Queue(gateway, "mail", machine=machine), gateway


@pytest.mark.parametrize(("kind", "used"), [(PutIfMatch, True), (PutIfAbsent, False)])
def test_an_enqueue_ends_early_and_names_the_cause(machine: Any, kind: type, used: bool) -> None:
    q, gateway = queue(machine, kind, used=used)
    began = machine.monotonic()
    with pytest.raises(Unavailable, match=r"although nothing changed.*etag=bare") as caught:
        q.enqueue("after")
    assert caught.value.permanent
    assert gateway.asked.total() < REQUESTS_MAX
    assert 0 < machine.monotonic() - began < 15
    assert len(machine.slept) >= IDLE_REFUSALS_MAX - 2


def test_weak_etags_are_named_as_the_cause(machine: Any) -> None:
    q, gateway = queue(machine, PutIfMatch)
    perform = gateway.inner.perform

    def weakened(request: StoreRequest) -> StoreReply:
        reply = perform(request)
        return replace(reply, version=f'W/"{reply.version}"') if isinstance(reply, Found) else reply

    gateway.inner.perform = weakened  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"weak \(W/\): a proxy.*compression.*etag=bare does not help"):
        q.enqueue("after")


@pytest.mark.parametrize(("kind", "used"), [(PutIfMatch, True), (PutIfAbsent, False)])
def test_a_few_such_refusals_are_overcome(machine: Any, kind: type, used: bool) -> None:
    q, gateway = queue(machine, kind, used=used, times=IDLE_REFUSALS_MAX - 1)
    assert q.enqueue("after").status == "queued"
    assert gateway.asked.total() < REQUESTS_MAX


def test_an_id_that_cannot_be_registered_ends_early_and_names_the_cause(machine: Any) -> None:
    q, gateway = queue(machine, PutIfAbsent)
    gateway.where = id_index.entry_key("mail", "a")
    with pytest.raises(Unavailable, match=r"although nothing changed.*Nothing was enqueued.*etag=bare"):
        q.enqueue("after", id="a")
    assert gateway.asked["PutIfAbsent"] == IDLE_REFUSALS_MAX
    assert len(machine.slept) == IDLE_REFUSALS_MAX - 1


def test_an_id_is_registered_after_a_few_such_refusals(machine: Any) -> None:
    q, gateway = queue(machine, PutIfAbsent, times=IDLE_REFUSALS_MAX - 1)
    gateway.where = id_index.entry_key("mail", "a")
    assert q.enqueue("after", id="a").status == "queued"
