"""The window of the group commit: what producers and workers do waits for company, and nothing else does."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from osqueue import AsyncQueue, NotSupported, Queue, Rejected
from osqueue.commit import group
from osqueue.stores.base import PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

LONG = 10.0  # seconds; no test waits for so long


class Counter(WrappedStore):
    """Counts the swaps of the head."""

    swaps = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        self.swaps += isinstance(request, PutIfMatch | PutIfAbsent) and request.key.endswith("/head")
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.fixture
def store() -> Counter:
    counter = Counter(MemoryStore())
    Queue[Any](counter, "mail").enqueue("first")
    counter.swaps = 0
    return counter


def test_callers_of_a_window_share_one_commit(store: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "WINDOW_ITEMS_MAX", 6)  # so that it ends when all have come
    q: Queue[Any] = Queue(store, "mail", window=LONG)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(q.enqueue, range(6)))
    assert {answer.status for answer in answers} == {"queued"}
    assert store.swaps == 1


def test_tasks_share_one_as_well(store: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "WINDOW_ITEMS_MAX", 6)

    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=LONG)

        async def enqueue(at: int) -> None:
            await asyncio.sleep(0.001 * at)
            assert (await q.enqueue(at)).status == "queued"

        await asyncio.gather(*map(enqueue, range(6)))

    asyncio.run(main())
    assert store.swaps == 1


def test_a_claim_shares_a_window_with_an_enqueue(store: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "WINDOW_ITEMS_MAX", 2)
    q: Queue[Any] = Queue(store, "mail", window=LONG)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(q.enqueue, "second")
        (lease,) = q.claim()
        assert lease.payload == "first"
        assert waiting.result().status == "queued"
    assert store.swaps == 1


def test_what_an_operator_changes_ends_a_window(store: Counter) -> None:
    q: Queue[Any] = Queue(store, "mail", window=LONG)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(q.enqueue, "second")
        while not q._commit_groups or q._commit_groups[0]._lingering is None:
            pass
        q.configure(max_running=7)
        assert waiting.result().status == "queued"
    assert store.swaps == 1


def test_it_ends_a_window_of_tasks_as_well(store: Counter) -> None:
    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=LONG)
        waiting = asyncio.create_task(q.enqueue("second"))
        while not q._commit_groups or q._commit_groups[0]._hurry is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        await q.configure(max_running=7)
        assert (await waiting).status == "queued"

    asyncio.run(main())
    assert store.swaps == 1


def test_a_window_is_at_most_a_quarter_of_a_lease(store: Counter) -> None:
    q: Queue[Any] = Queue(store, "mail", window=LONG)
    (lease,) = q.claim(lease=1)
    assert lease.payload == "first"
    assert q._commit_groups[0].window == 0.25


def test_who_is_alone_commits_when_the_window_is_over(store: Counter) -> None:
    q: Queue[Any] = Queue(store, "mail", window=0.01)
    assert q.enqueue("second").status == "queued"
    assert store.swaps == 1


@pytest.mark.parametrize(("window", "timeout"), [(-1, 25), ("2", 25), (11, 25), (3, 5)])
def test_a_window_that_is_none_is_refused(window: Any, timeout: float) -> None:
    with pytest.raises(Rejected, match=r"^window: ") as caught:
        Queue.connect("memory://", "mail", window=window, timeout=timeout)
    assert caught.value.field == "window"


def test_an_api_has_no_window() -> None:
    with pytest.raises(NotSupported, match=r"^window: "):
        Queue.connect("http://127.0.0.1:1", "mail", window=1)
