"""What a call of an AsyncQueue keeps while it is under way."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from osqueue import AsyncQueue
from osqueue.commit.effects import AwaitNews, Submit
from osqueue.commit.group import CommitWaiter
from osqueue.core.job_ops import ClaimJobs
from osqueue.operations.head_board import HeadWaiter, Pace
from osqueue.stores.memory import MemoryStore
from tests.support.patience import PATIENCE


def test_a_call_that_asks_again_and_again_keeps_nothing_of_what_brought_no_lease(machine: Any) -> None:
    def waiters() -> int:
        gc.collect()
        return sum(type(each) is CommitWaiter for each in gc.get_objects())

    async def run() -> tuple[int, list[Any]]:
        q: AsyncQueue[Any] = AsyncQueue(MemoryStore(machine), "mail", machine=machine)
        await q.enqueue("x")
        before = waiters()

        def flow() -> Any:
            for _ in range(50):
                yield Submit(0, (ClaimJobs(1, "w", 30_000, ("none of these",)),))
            yield Submit(0, (ClaimJobs(1, "w", 30_000),))
            yield Submit(0, ())
            kept.append(waiters() - before)
            yield AwaitNews(HeadWaiter(Pace(1, 1)), PATIENCE)

        kept: list[int] = []
        asking = asyncio.create_task(q._run(flow()))
        while not kept:  # noqa: ASYNC110 - the flow itself says how far it is
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return kept[0], [lease.payload for lease in await q.claim()]

    kept, given_back = asyncio.run(run())
    assert kept < 5
    assert given_back == ["x"]
