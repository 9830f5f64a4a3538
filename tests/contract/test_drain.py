"""Waiting until nothing is left, over every store and transport."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Rejected, WaitTimeout


def test_an_empty_queue_is_drained(q: Any) -> None:
    assert q.drain(timeout=0) is None


def test_what_waits_or_runs_is_named_when_the_time_is_over(q: Any) -> None:
    q.enqueue(1)
    q.enqueue(2, delay=600)
    with pytest.raises(WaitTimeout, match=r"1 queued, 1 scheduled"):
        q.drain(timeout=0)
    (lease,) = q.claim()
    with pytest.raises(WaitTimeout, match="1 processing, 1 scheduled"):
        q.drain(timeout=0)
    lease.fail("no", retry=False)
    q.run_now(q.jobs("scheduled")[0][0].job_id)
    q.claim()[0].complete()
    q.drain(timeout=0)  # a dead letter is nobody's work


def test_a_kind_is_drained_by_itself(q: Any) -> None:
    q.enqueue_many([{"payload": at, "kind": "send"} for at in range(3)])
    q.enqueue(1, kind="other", delay=600)
    with pytest.raises(WaitTimeout, match="a job of kind 'send' is queued"):
        q.drain("send", timeout=0)
    q.complete_many(q.claim(3, kinds=["send"]))
    q.drain("send", timeout=0)
    with pytest.raises(WaitTimeout, match="kind 'other' is scheduled"):
        q.drain("other", timeout=0)


def test_it_waits_for_workers(opened: Callable[..., Any]) -> None:
    q, other = opened(), opened()
    q.enqueue_many([{"payload": at} for at in range(5)])
    if hasattr(q, "_loop"):  # coroutines of one loop
        other.complete_many(other.claim(5))
        q.drain()
        return
    worker = threading.Thread(target=lambda: other.complete_many(other.claim(5)))
    worker.start()
    q.drain(timeout=30)
    worker.join()
    assert q.stats()["completed"] == 5


@pytest.mark.parametrize("timeout", [-1, "soon", 90_000])
def test_a_wrong_timeout_is_refused(q: Any, timeout: Any) -> None:
    with pytest.raises(Rejected, match=r"^timeout: "):
        q.drain(timeout=timeout)
