"""A queue and a lease that a pool of spawned processes is given."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from osqueue import Lease, Queue
from tests.support.patience import PATIENCE


def enqueue(q: Queue[Any], payload: Any) -> str:
    return q.enqueue(payload).status


def complete(lease: Lease[Any]) -> Any:
    lease.complete({"payload": lease.payload})
    return lease.seconds_left > 0


def test_a_spawned_process_works_on_the_queue_and_the_lease_that_it_is_given(tmp_path: Path) -> None:
    q: Queue[Any] = Queue.connect(f"file://{tmp_path}", "mail", serializer="msgpack")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(enqueue, q, "one").result(PATIENCE) == "queued"
        (lease,) = q.claim()
        assert pool.submit(complete, lease).result(PATIENCE)
    assert q.result(lease.job_id) == {"payload": "one"}
