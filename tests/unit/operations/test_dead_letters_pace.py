"""A redrive with a rate takes its time, and may be stopped anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.stores.memory import MemoryStore


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue_many([{"payload": at, "max_attempts": 1} for at in range(60)])
    q.fail_many([{"job_id": e.job_id, "token": e.token, "error": f"row {e.payload}"} for e in q.claim(60)])
    machine.slept.clear()
    return q


def test_jobs_come_at_the_rate_that_was_asked_for(q: Queue[Any], machine: Any) -> None:
    assert q.redrive(rate=20) == 60
    assert machine.slept == [
        pytest.approx(1.0),
        pytest.approx(1.0),
    ]  # between the commits, not after the last
    assert [lease.payload for lease in q.claim(60)] == list(range(60))


def test_a_rate_below_one_a_second_waits_longer(q: Queue[Any], machine: Any) -> None:
    assert q.redrive(rate=0.5, limit=3) == 3
    assert machine.slept == [pytest.approx(2.0), pytest.approx(2.0)]


def test_a_redrive_that_is_stopped_loses_nothing_and_the_next_goes_on(
    q: Queue[Any], machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(machine, "sleep", stop)
        with pytest.raises(KeyboardInterrupt):
            q.redrive(rate=20)
    stats = q.stats()
    assert (stats["queued"], stats["failed"]) == (20, 40)
    assert q.redrive(rate=20) == 40
    assert len(q.claim(60)) == 60


def test_letters_that_others_redrive_at_the_same_time_are_not_missed(
    q: Queue[Any], machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other: Queue[Any] = Queue(q.store, "mail", machine=machine)
    moved = 0

    def meanwhile(seconds: float) -> None:
        nonlocal moved
        moved += other.redrive(limit=5)

    monkeypatch.setattr(machine, "sleep", meanwhile)
    assert q.redrive(rate=20) + moved == 60
    assert q.stats()["failed"] == 0


def test_only_counting_waits_for_nothing(q: Queue[Any], machine: Any) -> None:
    assert q.redrive(rate=1, dry_run=True) == 60
    assert machine.slept == []


def test_nothing_is_written_when_nothing_matches(q: Queue[Any]) -> None:
    puts = q.requests["put"]
    assert q.redrive(fingerprint="00000000") == 0
    assert q.requests["put"] == puts


# ── What a redrive leaves ────────────────────────────────────────────────────
BULK = 2_500


def dead(q: Queue[Any], machine: Any) -> Queue[Any]:
    """Dead letters that take several commits to go through, each hundred of which is a minute younger; in order."""
    many: Queue[Any] = Queue(q.store, "many", machine=machine)
    many.enqueue_many([{"payload": at, "max_attempts": 1} for at in range(BULK)])
    for start in range(0, BULK, 100):
        items = [
            {"job_id": each.job_id, "token": each.token, "error": "odd" if each.payload % 2 else "even"}
            for each in many.claim(100)
        ]
        assert len(items) == 100, start
        many.fail_many(items)
        machine.advance(60)
    return many


def ages(q: Queue[Any]) -> list[Any]:
    found, cursor = q.dead_letters(1_000)
    while cursor is not None:
        page, cursor = q.dead_letters(1_000, cursor)
        found += page
    return [each.failed_at for each in found]


@pytest.mark.parametrize("how", [{}, {"rate": 1_000}], ids=["at once", "paced"])
def test_a_redrive_to_the_end_leaves_the_others_in_their_order_and_none_overstays(
    q: Queue[Any], machine: Any, how: Any
) -> None:
    many = dead(q, machine)
    assert many.redrive(error="odd", **how) == BULK // 2
    left = ages(many)
    assert len(left) == BULK // 2
    assert left == sorted(left)
    machine.advance(many.stats()["settings"]["dead_ttl"] - 15 * 60)
    while many.reap().collected:
        pass
    told = many.stats()["failed"]
    assert 0 < told < BULK // 2
    assert min(ages(many)) > min(left)


def test_of_letters_that_a_limited_redrive_passed_over_none_is_lost_and_all_go_when_the_youngest_does(
    q: Queue[Any], machine: Any
) -> None:
    """It looks at the oldest first and puts what does not match behind the rest, so they may stay a little longer."""
    many = dead(q, machine)
    assert many.redrive(error="odd", limit=700) == 700
    left = ages(many)
    assert len(left) == BULK - 700
    assert left != sorted(left)
    machine.advance(many.stats()["settings"]["dead_ttl"] + 1)
    for _ in range(40):
        many.reap()
    assert many.stats()["failed"] == 0
