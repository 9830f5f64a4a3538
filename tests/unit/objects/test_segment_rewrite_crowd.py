"""Many who cancel at the same time: all are served, at about the cost of one after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osqueue import AsyncQueue
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore

GETS_PER_CANCEL_MAX = 15


@pytest.mark.parametrize(("bulks", "cancels", "at_once"), [(2, 140, 140), (20, 120, 120), (20, 140, 16)])
def test_all_of_a_crowd_cancel_their_jobs(bulks: int, cancels: int, at_once: int) -> None:
    """In some segments; in segments below an index; some at a time."""
    store = CountingStore(MemoryStore())

    async def run() -> list[str]:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail")
        jobs: list[Any] = []
        for _ in range(bulks):
            jobs += await q.enqueue_many([{"payload": "x" * 200} for _ in range(400)])
        chosen = jobs[len(jobs) * 45 // 100 :: 3][:cancels]
        before = store.requests["get"]
        turns = asyncio.Semaphore(at_once)

        async def cancel(job_id: str) -> str:
            async with turns:
                return await q.cancel(job_id)

        told = await asyncio.gather(*(cancel(job.job_id) for job in chosen))
        assert store.requests["get"] - before < GETS_PER_CANCEL_MAX * cancels
        return list(told)

    assert asyncio.run(run()) == ["cancelled"] * cancels
