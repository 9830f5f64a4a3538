"""The peer's side of every benchmark. Runs inside the peer's own environment and imports nothing of ours.

Prints ``ready``, waits for a line on standard input, works, and prints one line of JSON (see ``fleet.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections import Counter
from typing import Any

from jqueue import BrokerQueue, DirectQueue, InMemoryStorage, Job, LocalFileSystemStorage, QueueState
from jqueue.core import codec

ENTRYPOINT = "send_email"
PAYLOAD = json.dumps({"to": "somebody@example.com", "template": "welcome", "n": 12345}).encode()

Answer = dict[str, Any]


class SlowStorage:
    """Adds the same delay to every store request, half of it on the way there, and counts the requests."""

    def __init__(self, storage: Any, delay_s: float = 0.0) -> None:
        self.storage = storage
        self.half_s = delay_s / 2
        self.requests: Counter[str] = Counter()

    async def read(self) -> tuple[bytes, str | None]:
        self.requests["get"] += 1
        await self.travel()
        answer: tuple[bytes, str | None] = await self.storage.read()
        await self.travel()
        return answer

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        self.requests["put"] += 1
        await self.travel()
        try:
            answer: str = await self.storage.write(content, if_match)
        finally:
            await self.travel()
        return answer

    async def travel(self) -> None:
        if self.half_s:
            await asyncio.sleep(self.half_s)


def storage_at(place: str) -> Any:
    return InMemoryStorage() if place == "memory" else LocalFileSystemStorage(place)


async def gate() -> None:
    """Say that everything is imported and open, and wait for the others."""
    print("ready", flush=True)
    await asyncio.to_thread(input)


async def writer(arguments: argparse.Namespace) -> Answer:
    """One independent process, one job per call. What ends after the time is up does not count."""
    storage = SlowStorage(storage_at(arguments.place), arguments.delay)
    async with BrokerQueue(storage) as broker:
        queue = broker if arguments.api == "broker" else DirectQueue(storage, max_retries=arguments.retries)
        await gate()
        done, failures, waits = 0, Counter[str](), []
        start = time.monotonic()
        end = start + arguments.seconds
        while (begun := time.monotonic()) < end:
            try:
                await queue.enqueue(ENTRYPOINT, PAYLOAD)
            except Exception as error:  # noqa: BLE001 - whatever a caller would have seen counts as a failure
                failures[type(error).__name__] += 1
                continue
            if (now := time.monotonic()) <= end:
                done += 1
                waits.append(now - begun)
    return {"done": done, "failed": failures.total(), "failures": failures, "waits": waits}


async def cycle(arguments: argparse.Namespace) -> Answer:
    """Callers on one queue object, each enqueuing, claiming and completing ``batch`` jobs at a time."""
    storage = SlowStorage(storage_at(arguments.place))
    async with BrokerQueue(storage) as queue:
        await gate()
        start = time.monotonic()
        end = start + arguments.seconds

        async def caller() -> int:
            done = 0
            while time.monotonic() < end:
                if arguments.batch == 1:
                    await queue.enqueue(ENTRYPOINT, PAYLOAD)
                else:
                    await asyncio.gather(
                        *(queue.enqueue(ENTRYPOINT, PAYLOAD) for _ in range(arguments.batch))
                    )
                jobs = await queue.dequeue(ENTRYPOINT, batch_size=arguments.batch)
                await asyncio.gather(*(queue.ack(job.id) for job in jobs))
                done += len(jobs)
            return done

        done = sum(await asyncio.gather(*(caller() for _ in range(arguments.callers))))
        seconds = time.monotonic() - start
    return {"done": done, "seconds": seconds, "requests": storage.requests}


async def requests(arguments: argparse.Namespace) -> Answer:
    """What a warm operation and an empty claim ask of the store."""
    storage = SlowStorage(storage_at(arguments.place))
    answer: Answer = {}

    def asked(name: str) -> None:
        answer[name] = dict(storage.requests)
        storage.requests.clear()

    async with BrokerQueue(storage) as queue:
        await gate()
        for _ in ("cold", "warm"):
            storage.requests.clear()
            await queue.enqueue(ENTRYPOINT, PAYLOAD)
            asked("enqueue")
            [job] = await queue.dequeue(ENTRYPOINT)
            asked("claim")
            await queue.heartbeat(job.id)
            asked("heartbeat")
            await queue.ack(job.id)
            asked("complete")
            await queue.dequeue(ENTRYPOINT)
            asked("empty claim")
    return answer


async def depth(arguments: argparse.Namespace) -> Answer:
    """The median time of a commit with ``jobs`` waiting, and the size of what each commit writes."""
    waiting = tuple(Job.new(ENTRYPOINT, PAYLOAD) for _ in range(arguments.jobs))
    content = codec.encode(QueueState(jobs=waiting))
    async with BrokerQueue(InMemoryStorage(content)) as queue:
        await gate()
        times = []
        for _ in range(arguments.commits):
            begun = time.monotonic()
            await queue.enqueue(ENTRYPOINT, PAYLOAD)
            times.append(time.monotonic() - begun)
    return {"median_s": statistics.median(times), "bytes": len(content)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = parser.add_subparsers(required=True)
    program = programs.add_parser("writer")
    program.set_defaults(run=writer)
    program.add_argument("place")
    program.add_argument("--delay", type=float, default=0.03, help="added to every store request, seconds")
    program.add_argument("--seconds", type=float, default=8.0)
    program.add_argument("--api", choices=("broker", "direct"), default="broker")
    program.add_argument("--retries", type=int, default=10, help="of the direct queue; 10 is its default")
    program = programs.add_parser("cycle")
    program.set_defaults(run=cycle)
    program.add_argument("place")
    program.add_argument("--callers", type=int, default=8)
    program.add_argument("--batch", type=int, default=1, help="jobs per call")
    program.add_argument("--seconds", type=float, default=8.0)
    program = programs.add_parser("requests")
    program.set_defaults(run=requests)
    program.add_argument("place")
    program = programs.add_parser("depth")
    program.set_defaults(run=depth)
    program.add_argument("jobs", type=int)
    program.add_argument("--commits", type=int, default=9)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(arguments.run(arguments))), flush=True)


if __name__ == "__main__":
    main()
