"""What a process knows of its queues without asking."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from osqueue.asgi.heads import HeadMemory, RecentHeads
from osqueue.server.app import ApiRequest
from osqueue.server.async_app import AsyncApi
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore


class Looking:
    """An API over a store, and another that looks at it through memory."""

    def __init__(self) -> None:
        self.store = CountingStore(MemoryStore())
        self.memory = HeadMemory(self.store)
        self.api = AsyncApi(self.memory)
        self.view = AsyncApi(RecentHeads(self.memory, self.memory))

    async def enqueue(self) -> None:
        request = ApiRequest("POST", "/v1/queues/mail/jobs", body=b'{"payload": 1}')
        assert (await self.api.answer(request)).status == 200

    async def waiting(self, api: AsyncApi) -> int:
        import json

        told = await api.answer(ApiRequest("GET", "/v1/queues/mail"))
        return int(json.loads(told.body)["queued"])

    @contextmanager
    def asking(self, **expected: int) -> Iterator[None]:
        before = self.store.requests
        yield
        made: dict[str, Any] = {kind: n - before[kind] for kind, n in self.store.requests.items()}
        assert {kind: n for kind, n in made.items() if n} == expected


def test_what_this_process_commits_is_seen_at_no_request() -> None:
    async def story() -> None:
        here = Looking()
        here.memory.begin()
        await here.enqueue()
        with here.asking():
            assert await here.waiting(here.view) == 1
        await here.enqueue()
        with here.asking():
            assert await here.waiting(here.view) == 2
        assert here.memory.changes["mail"] >= 2

    asyncio.run(story())


def test_what_is_forgotten_is_read_once() -> None:
    async def story() -> None:
        here = Looking()
        here.memory.begin()
        await here.enqueue()
        here.memory.forget("mail")
        with here.asking(get=1):
            assert await here.waiting(here.view) == 1
            assert await here.waiting(here.view) == 1

    asyncio.run(story())


def test_the_queues_of_others_are_not_forgotten_along() -> None:
    async def story() -> None:
        here = Looking()
        here.memory.begin()
        await here.enqueue()
        here.memory.forget("mai")
        with here.asking():
            await here.waiting(here.view)

    asyncio.run(story())


def test_who_does_not_look_through_memory_reads_the_store() -> None:
    async def story() -> None:
        here = Looking()
        here.memory.begin()
        await here.enqueue()
        with here.asking(get=2):
            assert await here.waiting(here.api) == 1

    asyncio.run(story())


def test_while_nobody_looks_nothing_is_kept() -> None:
    async def story() -> None:
        here = Looking()
        await here.enqueue()
        assert not here.memory.heads
        here.memory.begin()
        await here.enqueue()
        assert here.memory.heads
        here.memory.end()
        assert not here.memory.heads

    asyncio.run(story())
