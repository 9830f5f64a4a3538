"""Asking about jobs: results that are nothing, and callers who may only read."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.errors import Unavailable
from osqueue.operations.results import CLOCK_REFUSED_SECONDS
from osqueue.stores.base import Failed, Get, Put, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore


class Plain:
    """A serialiser that makes nothing of an empty text."""

    name = "plain"

    def dumps(self, value: Any) -> bytes:
        return str(value).encode()

    def loads(self, data: bytes, type: Any) -> Any:
        return data.decode()


# ── Results that are nothing ─────────────────────────────────────────────────
def results(q: Queue[Any], values: list[Any]) -> list[Any]:
    """What is read of results that were given one by one, and of those given together, from the head and a table."""
    jobs = [q.enqueue("p").job_id for _ in values] + [q.enqueue("p").job_id for _ in values]
    for value in values:
        q.claim()[0].complete(value)
    held = [{"job_id": each.job_id, "token": each.token} for each in q.claim(len(values))]
    q.complete_many([{**each, "result": value} for each, value in zip(held, values, strict=True)])
    found = [q.result(str(job)) for job in jobs]
    q.reap()
    return found + [q.result(str(job)) for job in jobs]


def test_none_is_told_from_a_result_that_takes_no_bytes() -> None:
    values = ["", None, "r"]
    q: Queue[Any] = Queue(MemoryStore(), "mail", serializer=Plain())
    assert results(q, values) == values * 4


def test_none_is_told_from_a_result_that_takes_no_bytes_where_payloads_are_of_another_serialiser() -> None:
    store = MemoryStore()
    writer: Queue[Any] = Queue(store, "mail", serializer=Plain())
    reader: Queue[Any] = Queue(store, "mail")
    jobs = [str(reader.enqueue("p").job_id) for _ in range(2)]
    first, second = writer.claim(2)
    writer.complete_many(
        [{"job_id": x.job_id, "token": x.token, "result": r} for x, r in ((first, ""), (second, None))]
    )
    assert [writer.result(job) for job in jobs] == ["", None]
    assert reader.result(jobs[1]) is None


# ── Who may only read ────────────────────────────────────────────────────────
class ReadOnly(WrappedStore):
    """Refuses every PUT, for good or for the moment, and has no clock that can be read without one."""

    def __init__(self, inner: MemoryStore, permanent: bool) -> None:
        super().__init__(inner)
        self.permanent = permanent
        self.refused = 0

    def clock_ms(self) -> int | None:
        return None

    def perform(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, Get):
            return self.inner.perform(request)
        self.refused += isinstance(request, Put)
        return Failed(Unavailable("AccessDenied: s3:PutObject", permanent=self.permanent))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.fixture
def jobs(machine: Any) -> tuple[MemoryStore, str]:
    store = MemoryStore(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    job = str(q.enqueue(1).job_id)
    q.claim()[0].complete("r")
    return store, job


def test_a_refused_clock_is_not_asked_for_at_every_question(
    jobs: tuple[MemoryStore, str], machine: Any
) -> None:
    inner, job = jobs
    store = ReadOnly(inner, permanent=True)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    for _ in range(10):
        assert q.result(job) == "r"
        assert q.status(job) is not None
    assert store.refused == 1
    machine.advance(CLOCK_REFUSED_SECONDS + 1)
    q.result(job)
    assert store.refused == 2


def test_a_clock_that_was_silent_is_asked_for_again(jobs: tuple[MemoryStore, str], machine: Any) -> None:
    inner, job = jobs
    store = ReadOnly(inner, permanent=False)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    assert [q.result(job), q.result(job)] == ["r", "r"]
    assert store.refused == 2


def test_a_refused_clock_keeps_nobody_from_reading_on(jobs: tuple[MemoryStore, str], machine: Any) -> None:
    inner, job = jobs
    q: Queue[Any] = Queue(ReadOnly(inner, permanent=True), "mail", machine=machine)
    assert q.result(job) == "r"
    assert q.stats()["completed"] == 1
