"""The worker and signals: all workers of a loop hear each one, and what the program set up stays."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

from osqueue import AsyncQueue
from osqueue.worker import Signal
from osqueue.worker.loop import Worker
from tests.support.patience import PATIENCE


def test_a_signal_stops_every_worker_of_a_loop() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        queues = [AsyncQueue.connect("memory://", name) for name in ("a", "b", "c")]
        for q in queues:
            q.handler(lambda job: None)
        runs = [asyncio.create_task(q.run()) for q in queues]
        await asyncio.sleep(0.05)
        runs[1].cancel()  # one of them goes before
        await asyncio.wait({runs[1]})
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(runs[0], runs[2]), PATIENCE)

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_that_the_program_gave_its_loop_stays() -> None:
    async def main() -> None:
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        q.handler(lambda job: None)
        worker = Worker(q)
        run = asyncio.create_task(worker.serve())
        for _ in range(2):
            await asyncio.sleep(0.05)
            told.clear()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(told.wait(), PATIENCE)
            worker.stop()
            await asyncio.wait_for(run, PATIENCE)

    asyncio.run(main())


def test_a_signal_wakes_those_who_wait_and_those_who_come_later() -> None:
    happened = Signal()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(happened.wait(PATIENCE)))
    thread.start()
    assert not happened

    async def main() -> None:
        waiting = asyncio.ensure_future(asyncio.wait_for(happened, PATIENCE))
        await asyncio.sleep(0)
        await asyncio.to_thread(happened.set)
        await waiting
        await happened  # and at once when it has happened

    asyncio.run(main())
    thread.join(PATIENCE)
    assert woken == [True]
    assert happened.is_set()
