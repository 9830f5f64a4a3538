"""Writers that collide on one head: each still gets its answer, long before its deadline."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from osqueue import Queue

WRITERS = 4
CALLS = 25
TIMEOUT_S = 60  # an announced request that nobody applies would wait for all of it


def test_writers_that_collide_are_all_answered(tmp_path: Path) -> None:
    address = f"file://{tmp_path}?fsync=off&latency_ms=2"
    together = threading.Barrier(WRITERS, timeout=TIMEOUT_S)

    def write(writer: int) -> list[str | None]:
        queue: Queue[int] = Queue.connect(address, "crowded", timeout=TIMEOUT_S)
        together.wait()
        return [queue.enqueue(call).job_id for call in range(CALLS)]

    with ThreadPoolExecutor(WRITERS) as pool:
        ids = [job_id for found in pool.map(write, range(WRITERS)) for job_id in found]
    stats = Queue.connect(address, "crowded").stats()
    assert len(set(ids)) == stats["queued"] == WRITERS * CALLS
    assert stats["commits"] < WRITERS * CALLS, "no request was ever announced: this test tests nothing"
