"""What a lease knows of its own end."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import LeaseLost, Queue
from osqueue.stores.memory import MemoryStore


@pytest.fixture
def lease(machine: Any) -> Any:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue("x")
    (lease,) = q.claim(lease=30)
    return lease


def ends_in(lease: Any, machine: Any) -> float:
    """Seconds until the lease ends, as the queue has it."""
    (job,), _ = lease._queue.jobs()
    return float(job.expires_at.timestamp() - machine.now_ms() / 1000)


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in a group"])
@pytest.mark.parametrize("length", [2, None, 300])
def test_a_heartbeat_tells_the_lease_its_new_end(
    lease: Any, machine: Any, length: float | None, many: bool
) -> None:
    machine.advance(5)
    if many:
        lease._queue.heartbeat_many([lease], lease=length)
    else:
        lease.heartbeat(length)
    machine.advance(1)
    left = (length or 30) - 1
    assert ends_in(lease, machine) == pytest.approx(left)
    assert lease.seconds_left == pytest.approx(left)
    assert lease.expires_at.timestamp() - machine.now_ms() / 1000 == pytest.approx(left)


def test_a_lease_whose_seconds_are_over_is_lost(lease: Any, machine: Any) -> None:
    lease._queue.heartbeat_many([lease], lease=2)
    machine.advance(2.1)
    assert lease.seconds_left < 0
    lease._queue.reap()
    with pytest.raises(LeaseLost):
        lease.complete()
