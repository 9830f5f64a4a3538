"""A limiter that queues share: over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osqueue import Kind, NotFound, Pacer, Rejected
from tests.contract.conftest import Moved, Shifted

HOUR_S = 3_600
SOON_S = 10.0  # by more the clocks of shards and of limiters do not differ


@pytest.fixture
def pacer(behind: Any, clock: Shifted) -> Iterator[Pacer]:
    """One at the store itself: no API makes any."""
    store = Moved(behind, clock) if behind.clock_ms() is None else behind
    with Pacer(store, "stripe", machine=clock) as found:
        yield found


@pytest.fixture
def claim(clock: Shifted) -> Callable[..., Any]:
    """Claims, and once more where a slot comes as soon as clocks agree."""

    def claims(q: Any, limit: int = 10) -> Any:
        leases = q.claim(limit)
        if not leases and leases.retry_after is not None and leases.retry_after < SOON_S:
            clock.shift_ms += round(leases.retry_after * 1000) + 1
            leases = q.claim(limit)
        return leases

    return claims


def test_a_limiter_that_is_not_there_is_refused_with_the_command_that_creates_it(
    opened: Callable[..., Any],
) -> None:
    q = opened()
    with pytest.raises(Rejected, match="osqueue pacer create ADDRESS stripe --interval"):
        q.configure(limiter="stripe")
    with pytest.raises(Rejected, match=r"^limiter: .* is not the name of a pacer"):
        q.configure(limiter="No Name")


def test_queues_and_shards_share_it(
    opened: Callable[..., Any], pacer: Pacer, claim: Callable[..., Any], clock: Shifted
) -> None:
    pacer.create(HOUR_S, burst=3)
    queues = [opened("mail"), opened("calls")]
    queues[0].configure(limiter="stripe", shards=2)
    queues[1].configure(limiter="stripe")
    for q in queues:
        assert not q.claim(10)
    assert pacer.status().number == 0  # nothing is borrowed for nobody
    for q in queues:
        for at in range(6):
            q.enqueue(at)
    started = sum(len(claim(q, 1)) for _ in range(5) for q in queues)
    assert started == 3
    refused = queues[0].claim(10)
    assert (refused.reason, refused.scope) == ("rate_limited", "queue")
    assert 0 < refused.retry_after <= HOUR_S
    before = pacer.status().number
    assert not queues[0].claim(10)
    assert pacer.status().number == before
    clock.shift_ms += HOUR_S * 1000
    assert sum(len(claim(q)) for q in queues) == 1


def test_it_holds_beside_the_rate_of_the_queue(
    opened: Callable[..., Any], pacer: Pacer, claim: Callable[..., Any]
) -> None:
    pacer.create(HOUR_S, burst=5)
    q = opened()
    q.configure(limiter="stripe", rate=(1, HOUR_S))
    q.enqueue_many([{"payload": at} for at in range(9)])
    assert len(claim(q)) == 1
    q.configure(rate=None)
    assert len(claim(q)) == 4


def test_a_paused_limiter_lets_nothing_start_until_somebody_resumes_it(
    opened: Callable[..., Any], pacer: Pacer, claim: Callable[..., Any], clock: Shifted
) -> None:
    pacer.create(0.001, burst=10)
    q = opened()
    q.configure(limiter="stripe")
    job = q.enqueue(1).job_id
    pacer.pause()
    refused = q.claim()
    assert (list(refused), refused.reason, refused.retry_after) == ([], "rate_limited", 2.0)
    assert "limiter 'stripe' is paused since" in q.why(job)
    assert "osqueue pacer resume ADDRESS stripe" in q.why(job)
    assert q.flow().limiter.paused_at is not None
    pacer.resume()
    clock.shift_ms += 2_000
    assert len(claim(q)) == 1


def test_without_it_nothing_starts_and_everybody_is_told_what_to_do(
    opened: Callable[..., Any], pacer: Pacer, claim: Callable[..., Any]
) -> None:
    pacer.create(1)
    q = opened()
    q.configure(limiter="stripe")
    job = q.enqueue(1).job_id
    pacer.remove()
    with pytest.raises(NotFound, match=r"limiter stripe: there is no pacer .*--no-limiter"):
        q.claim()
    assert "limiter stripe: there is no pacer of this name" in q.why(job)
    assert q.flow().limiter.missing
    q.configure(limiter=None)
    assert len(q.claim()) == 1
    assert q.flow().limiter is None


def test_what_is_used_of_it_is_told(
    opened: Callable[..., Any], pacer: Pacer, claim: Callable[..., Any]
) -> None:
    pacer.create(HOUR_S, burst=4)
    q = opened()
    q.configure(limiter="stripe", shards=2)
    jobs = [q.enqueue(at).job_id for at in range(8)]
    while claim(q, 2):
        pass
    told = q.flow()
    assert (told.limiter.name, told.limiter.interval, told.limiter.burst) == ("stripe", HOUR_S, 4)
    assert told.limiter.next_at is not None
    assert told.limiter.lent == sum(each.lent for each in told.shards) == 0
    assert told.running == 4
    words = "".join(q.why(job) for job in jobs)
    assert "limiter 'stripe' gives slots to all that share it: 4 at once, and one in 60 min" in words
    assert q.stats()["settings"]["limiter"] == "stripe"


def test_slots_that_are_left_serve_the_next_claim(
    opened: Callable[..., Any], pacer: Pacer, claim: Callable[..., Any]
) -> None:
    pacer.create(HOUR_S, burst=4)
    q = opened()
    q.configure(limiter="stripe")
    q.enqueue_many([{"payload": at, "kind": "one"} for at in range(4)])
    q.configure(kinds={"one": Kind(max_running=1)})
    (lease,) = claim(q, 3)
    assert (pacer.status().number, q.flow().limiter.lent) == (3, 2)
    lease.complete()
    assert len(q.claim(3)) == 1
    assert (pacer.status().number, q.flow().limiter.lent) == (3, 1)


def test_a_job_of_many_units_uses_as_many_slots(
    opened: Callable[..., Any], pacer: Pacer, claim: Callable[..., Any], clock: Shifted
) -> None:
    pacer.create(HOUR_S, burst=3)
    q = opened()
    q.configure(limiter="stripe")
    q.enqueue("large", units=5)
    small = q.enqueue("small").job_id
    (lease,) = claim(q)
    assert lease.payload == "large"
    lease.complete()
    assert not claim(q)
    clock.shift_ms += HOUR_S * 1000
    assert not claim(q)
    assert "owed for what started" in q.why(small)
    clock.shift_ms += HOUR_S * 1000
    assert not claim(q)
    clock.shift_ms += HOUR_S * 1000
    assert [lease.payload for lease in claim(q)] == ["small"]
