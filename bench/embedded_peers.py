"""The embedded queues of others, on SQLite. Runs inside the peers' own environment and imports nothing of ours.

A worker of a crew (see ``crew.py``): enqueues, claims and completes jobs, each call a transaction of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from huey.storage import SqliteStorage
from litequeue import LiteQueue
from persistqueue import Empty, SQLiteAckQueue

PAYLOAD = {"to": "somebody@example.com", "template": "welcome", "n": 12345}
LOCK_S = 60  # how long a call waits for the database's lock: long enough that none fails


class PeerQueue(Protocol):
    """What each of them is used for."""

    def put(self) -> None: ...

    def take(self) -> str | None:
        """The claimed job's id; None when there is none."""
        ...

    def done(self, job: str) -> None: ...

    def close(self) -> None: ...


class LiteQueuePeer:
    """As it comes: write-ahead log, cache of 256 MB. Its own ``synchronous`` is NORMAL, which flushes no commit."""

    def __init__(self, folder: Path, flushed: bool) -> None:
        self.queue = LiteQueue(folder / "litequeue.db", timeout=LOCK_S)
        self.queue.conn.execute(f"PRAGMA synchronous = {'FULL' if flushed else 'OFF'}")

    def put(self) -> None:
        self.queue.put(json.dumps(PAYLOAD))

    def take(self) -> str | None:
        message = self.queue.pop()
        if message is None:
            return None
        json.loads(message.data)
        return str(message.message_id)

    def done(self, job: str) -> None:
        self.queue.done(job)

    def close(self) -> None:
        self.queue.close()


class HueyPeer:
    """Its storage without its tasks: write-ahead log, and ``fsync``. A claim deletes the job; its end is a result."""

    def __init__(self, folder: Path, flushed: bool) -> None:
        self.storage = SqliteStorage(filename=str(folder / "huey.db"), fsync=flushed, timeout=LOCK_S)
        self.number = 0

    def put(self) -> None:
        self.storage.enqueue(json.dumps(PAYLOAD).encode())

    def take(self) -> str | None:
        data = self.storage.dequeue()
        if data is None:
            return None
        json.loads(data)
        self.number += 1
        return f"{os.getpid()}-{self.number}"  # it gives none out; a task carries its own

    def done(self, job: str) -> None:
        self.storage.put_data(job, b"null", is_result=True)

    def close(self) -> None:
        self.storage.close()


class PersistQueuePeer:
    """Write-ahead log. It selects a job and marks it in two steps, so several processes may be given the same one."""

    def __init__(self, folder: Path, flushed: bool) -> None:
        self.queue = SQLiteAckQueue(str(folder), auto_resume=False, timeout=LOCK_S)
        self.queue._putter.execute(f"PRAGMA synchronous = {'FULL' if flushed else 'OFF'}")

    def put(self) -> None:
        self.queue.put(PAYLOAD)

    def take(self) -> str | None:
        try:
            return str(self.queue.get(block=False, raw=True)["pqid"])
        except Empty:
            return None

    def done(self, job: str) -> None:
        self.queue.ack(id=int(job))

    def close(self) -> None:
        self.queue.close()


PEERS: dict[str, Callable[[Path, bool], PeerQueue]] = {
    "litequeue": LiteQueuePeer,
    "huey": HueyPeer,
    "persist-queue": PersistQueuePeer,
}


def cycle(queue: PeerQueue, start: float, seconds: float) -> dict[str, Any]:
    """Jobs one by one. A step counts when its call returned before the time was up."""
    steps, taken, longest, end = 0, [], 0.0, start + seconds
    time.sleep(max(0.0, start - time.monotonic()))
    while True:
        begun = time.monotonic()
        queue.put()
        if time.monotonic() > end:
            break
        steps += 1
        job = queue.take()
        taken += [] if job is None else [job]
        if time.monotonic() > end:
            break
        if job is not None:
            steps += 1
            queue.done(job)
            longest = max(longest, time.monotonic() - begun)
            if time.monotonic() > end:
                break
            steps += 1
    return {"steps": steps, "taken": taken, "longest_s": max(longest, time.monotonic() - begun)}


def main() -> None:
    cold = set(PEERS)
    for line in sys.stdin:
        order = json.loads(line)
        queue = PEERS[order["peer"]](Path(order["folder"]), order["flushed"])
        if order["creates"] or order["peer"] in cold:
            queue.put()
            if (job := queue.take()) is not None:
                queue.done(job)
            cold.discard(order["peer"])
        print("ready", flush=True)
        answer = cycle(queue, **json.loads(sys.stdin.readline()))
        queue.close()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
