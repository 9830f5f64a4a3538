"""The loop that looks at all queues: what it sees, and how often it asks for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from osqueue.asgi.heads import HeadMemory, RecentHeads
from osqueue.asgi.overview import (
    LOOKS_A_MINUTE,
    RATE_S,
    SAVED_MAX,
    WORKERS_A_MINUTE,
    WORKERS_S,
    Overview,
)
from osqueue.clock import Machine
from osqueue.errors import Unavailable
from osqueue.server.app import ApiRequest
from osqueue.server.async_app import AsyncApi
from osqueue.stores.base import Failed, List, StoreReply, StoreRequest
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.prices import EXPRESS, STANDARD, StorePrices


class Handmade(Machine):
    """A machine whose time goes on when a test says so."""

    def __init__(self) -> None:
        self.at = 1_000.0
        self.monotonic = lambda: self.at

    def now_ms(self) -> int:
        return int((1_900_000_000 + self.at) * 1000)


class Dying(MemoryStore):
    """A store that may stop to answer."""

    dead = False

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if self.dead:
            return Failed(Unavailable("the store is gone.", permanent=True))
        return await super().perform_async(request)


class Watched:
    """A store of some queues, and an overview of them whose ticks a test makes."""

    def __init__(self, elsewhere: bool = False, prices: StorePrices | None = STANDARD) -> None:
        self.machine = Handmade()
        self.inner = Dying()
        self.store = CountingStore(self.inner)
        self.memory = HeadMemory(self.store, self.machine)
        view = AsyncApi(
            self.store if elsewhere else RecentHeads(self.memory, self.memory), machine=self.machine
        )
        memory = None if elsewhere else self.memory
        dollars = None if prices is None else lambda: prices.requests(self.store.requests)
        self.overview = Overview(view, memory, lambda: self.store.requests, dollars)
        self.others = AsyncApi(self.store, machine=self.machine)  # another process
        self.memory.begin()

    async def enqueue(self, queue: str, **more: Any) -> None:
        body = json.dumps({"payload": 1, **more}).encode()
        told = await self.others.answer(ApiRequest("POST", f"/v1/queues/{queue}/jobs", body=body))
        assert told.status == 200, told.body

    async def ticks(self, count: int) -> None:
        for _ in range(count):
            await self.overview._look()
            self.machine.at += 1.0

    @property
    def requests(self) -> int:
        return sum(self.store.requests.values())


def told(story: Callable[[Watched], Awaitable[None]], prices: StorePrices | None = STANDARD) -> None:
    async def run() -> None:
        await story(Watched(prices=prices))

    asyncio.run(run())


def test_it_finds_the_queues_and_what_is_in_them() -> None:
    async def story(here: Watched) -> None:
        await here.enqueue("mail")
        await here.enqueue("mail", delay=60)
        await here.enqueue("bills")
        await here.ticks(1)
        rows = {name: trend.row() for name, trend in here.overview.trends.items()}
        assert rows.keys() == {"mail", "bills"}
        assert (rows["mail"]["queued"], rows["mail"]["scheduled"]) == (1, 1)
        assert here.overview.listed

    told(story)


def test_it_hears_what_others_commit_and_takes_rates_of_it() -> None:
    async def story(here: Watched) -> None:
        await here.enqueue("mail")
        await here.ticks(1)
        for _ in range(6):
            await here.enqueue("mail")
        await here.ticks(10)
        row = here.overview.trends["mail"].row()
        assert row["queued"] == 7
        assert 0 < row["rates"]["in"] <= 6
        assert row["rates"]["out"] == 0

    told(story)


@pytest.mark.parametrize("queues", [1, 7, 30])
@pytest.mark.parametrize("shown", [False, True])
def test_however_many_queues_there_are_it_asks_for_no_more_than_its_allowance(
    queues: int, shown: bool
) -> None:
    async def story(here: Watched) -> None:
        names = [f"queue-{n}" for n in range(queues)]
        for name in names:
            await here.enqueue(name)
        if shown:
            here.overview.shown[names[0]] = 1
        await here.ticks(5)  # the first reads all of them once
        before = here.requests
        await here.ticks(600)
        lists = 10  # one a minute
        workers = WORKERS_A_MINUTE * 10 if shown else 0
        assert here.requests - before <= LOOKS_A_MINUTE * 10 + lists + workers + SAVED_MAX
        seen = [trend.seen for trend in here.overview.trends.values()]
        assert here.machine.at - min(seen) <= 60 * 8  # and leaves none out
        if shown:
            assert here.machine.at - here.overview.trends[names[0]].seen <= 30

    told(story)


@pytest.mark.parametrize("queues", [1, 30])
def test_an_api_elsewhere_is_not_made_to_ask_for_more_either(queues: int) -> None:
    async def run() -> None:
        here = Watched(elsewhere=True)
        names = [f"queue-{n}" for n in range(queues)]
        for name in names:
            await here.enqueue(name)
        here.overview.shown[names[0]] = 1
        await here.ticks(70)
        before = here.requests
        await here.ticks(600)
        assert here.requests - before <= 30 * 10  # for lists, too, of which each reads all heads
        shown = here.overview.trends[names[0]]
        assert here.machine.at - shown.seen <= 60
        assert shown.parts.keys() == {"flow", "groups", "schedules", "running", "workers"}

    asyncio.run(run())


@pytest.mark.parametrize("workers", [1, 20, 200])
@pytest.mark.parametrize("shown", [1, 3])
def test_workers_of_queues_that_are_shown_are_looked_at_within_an_allowance_of_their_own(
    workers: int, shown: int
) -> None:
    async def story(here: Watched) -> None:
        names = [f"queue-{n}" for n in range(shown)]
        for name in names:
            await here.enqueue(name)
            here.overview.shown[name] = 1
            for at in range(workers):
                path = f"/v1/queues/{name}/workers/w-{at}"
                told = await here.others.answer(ApiRequest("PUT", path, body=b'{"name": "mailer"}'))
                assert told.status == 204
        await here.ticks(5 + shown)
        before = here.requests
        minutes = 60
        await here.ticks(60 * minutes)
        looks = (LOOKS_A_MINUTE + WORKERS_A_MINUTE + 1) * minutes  # and a list of the queues, each minute
        assert here.requests - before <= looks + SAVED_MAX + shown * (1 + workers)
        for name in names:
            trend = here.overview.trends[name]
            assert trend.workers == workers
            most = max(WORKERS_S, (1 + workers) * shown * 60 / WORKERS_A_MINUTE)
            assert here.machine.at - trend.workers_at <= most + 15

    told(story)


def test_what_was_changed_here_is_looked_at_next() -> None:
    async def run() -> None:
        here = Watched(elsewhere=True)
        for n in range(30):
            await here.enqueue(f"queue-{n}")
        await here.ticks(3)
        await here.enqueue("queue-17")
        here.overview.hurry("queue-17")
        await here.ticks(1)
        assert here.overview.trends["queue-17"].row()["queued"] == 2

    asyncio.run(run())


def test_a_queue_of_many_shards_is_looked_at_less_often() -> None:
    async def story(here: Watched) -> None:
        await here.enqueue("wide")
        body = b'{"shards": 8}'
        assert (await here.others.answer(ApiRequest("PATCH", "/v1/queues/wide", body=body))).status == 200
        await here.ticks(5)
        before = here.requests
        await here.ticks(600)
        assert here.requests - before <= LOOKS_A_MINUTE * 10 + 10 + 9  # what a look costs, and one more

    told(story)


def test_a_queue_that_is_gone_is_not_shown() -> None:
    async def story(here: Watched) -> None:
        await here.enqueue("mail")
        await here.ticks(1)
        listed = await here.store.perform_async(List("", limit=100))
        from osqueue.stores.base import Delete

        await here.store.perform_async(Delete(tuple(listed.keys)))  # type: ignore[union-attr]
        here.memory.heads.clear()
        await here.ticks(61)
        assert not here.overview.trends

    told(story)


def test_a_queue_that_this_process_begins_is_there_at_once() -> None:
    async def story(here: Watched) -> None:
        await here.ticks(1)
        api = AsyncApi(here.memory, machine=here.machine)
        body = b'{"payload": 1}'
        assert (await api.answer(ApiRequest("POST", "/v1/queues/new/jobs", body=body))).status == 200
        await here.ticks(1)
        assert here.overview.trends["new"].row()["queued"] == 1
        before = here.store.requests["list"]
        await here.ticks(30)
        assert here.store.requests["list"] == before  # and is not looked for any more

    told(story)


def test_a_store_that_does_not_answer_is_told_of_until_it_does() -> None:
    async def story(here: Watched) -> None:
        await here.enqueue("mail")
        await here.ticks(1)
        here.inner.dead = True
        await here.ticks(8)
        assert here.overview.trouble == "the store is gone."
        assert here.overview.trends["mail"].row()["queued"] == 1  # what was seen last
        here.inner.dead = False
        await here.ticks(8)
        assert here.overview.trouble is None

    told(story)


@pytest.mark.parametrize(
    ("prices", "get", "listing"), [(STANDARD, 0.4, 5), (EXPRESS, 0.03, 1.13), (None, 0, 0)]
)
def test_requests_are_counted_and_cost_what_the_bucket_asks(
    prices: StorePrices | None, get: float, listing: float
) -> None:
    async def story(here: Watched) -> None:
        await here.enqueue("mail")
        here.overview._count()
        assert here.overview.bill() is None  # one count says nothing
        await here.ticks(1)
        before = here.requests
        await here.ticks(round(RATE_S))
        bill = here.overview.bill()
        assert bill is not None
        assert sum(bill["per_minute"].values()) == pytest.approx(here.requests - before, abs=1.5)
        gets, lists = bill["per_minute"]["get"], bill["per_minute"]["list"]
        if prices is None:
            assert "dollars_a_day" not in bill
        else:
            assert bill["dollars_a_day"] == pytest.approx((gets * get + lists * listing) * 1440 / 1e6)

    told(story, prices=prices)


def test_the_loop_runs_while_a_page_is_open() -> None:
    async def story(here: Watched) -> None:
        await here.enqueue("mail")
        here.overview.come("mail")
        while not here.overview.listed:
            await here.overview.news(1)
        task = here.overview._task
        here.overview.come(None)
        assert here.overview._task is task  # one, for all pages
        here.overview.go(None)
        assert here.overview.shown == {"mail": 1}
        here.overview.go("mail")
        assert here.overview._task is None
        assert not here.overview.shown
        assert not here.memory.heads

    told(story)
