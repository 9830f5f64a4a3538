"""Queues of others on a Redis or Valkey server. Runs inside the peers' own environment and imports nothing of ours.

A worker of a crew (see ``crew.py``) whose orders are those of ``valkey_worker``: each library as its manual says, with
its own worker. arq's runs ten jobs at once, which is its default; rq's is the one that does not fork for each job.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import arq.worker
import rq
import rq.worker
from arq.connections import RedisSettings, create_pool
from redis import Redis

PAYLOAD = {"to": "somebody@example.com", "template": "welcome", "n": 12345}
RESULT_S = 60  # for which results stay, which both of them keep unless told otherwise
JOB = "valkey_peers.job"  # as a worker finds it


done: list[None] = []  # of this process, by rq


def job(payload: object) -> None:
    """What rq calls, in the module of this name."""
    done.append(None)


async def arq_job(context: object, payload: object) -> None:
    """What arq calls."""


class RqPeer:
    """rq, as it comes; ``batch`` above one uses its ``enqueue_many``."""

    def __init__(self, address: str) -> None:
        self.queue = rq.Queue("bench", connection=Redis.from_url(address))

    def enqueue(self, jobs: int, batch: int) -> int:
        if batch == 1:
            for _ in range(jobs):
                self.queue.enqueue(JOB, PAYLOAD, result_ttl=RESULT_S)
        else:
            data = [rq.Queue.prepare_data(JOB, (PAYLOAD,), result_ttl=RESULT_S)] * batch
            for _ in range(0, jobs, batch):
                self.queue.enqueue_many(data)
        return jobs

    def work(self) -> int:
        worker = rq.SimpleWorker([self.queue], connection=self.queue.connection)
        called = importlib.import_module(JOB.partition(".")[0]).done  # this module runs under another name
        called.clear()
        worker.work(burst=True, logging_level="CRITICAL")
        return len(called)


class ArqPeer:
    """arq, as it comes. It has no call for many jobs."""

    def __init__(self, address: str) -> None:
        self.settings = RedisSettings.from_dsn(address)

    def enqueue(self, jobs: int, batch: int) -> int:
        async def run() -> None:
            pool = await create_pool(self.settings)
            for _ in range(jobs):
                await pool.enqueue_job("arq_job", PAYLOAD)
            await pool.aclose()

        asyncio.run(run())
        return jobs

    def work(self) -> int:
        async def run() -> int:
            worker = arq.worker.Worker(
                functions=[arq_job],
                redis_settings=self.settings,
                burst=True,
                handle_signals=False,
                poll_delay=0.05,
                keep_result=RESULT_S,
            )
            await worker.async_run()
            done = int(worker.jobs_complete)
            await worker.close()
            return done

        return asyncio.run(run())


PEERS: dict[str, Any] = {"rq": RqPeer, "arq": ArqPeer}


def main() -> None:
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        order = json.loads(line)
        peer = PEERS[order["side"]](urlsplit(order["address"])._replace(scheme="redis").geturl())
        print("ready", flush=True)
        start = json.loads(sys.stdin.readline())["start"]
        time.sleep(max(0.0, start - time.monotonic()))
        begun = time.monotonic()
        done = peer.enqueue(order["jobs"], order["batch"]) if order["do"] == "enqueue" else peer.work()
        print(json.dumps({"done": done, "begun": begun, "ended": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main()
