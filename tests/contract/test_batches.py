"""Jobs whose common end makes another one, over every store and API."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Conflict, Next, NotFound, Rejected, Unique


def complete(q: Any, limit: int = 100) -> list[Any]:
    """Claim jobs and complete them; the leases."""
    leases = list(q.claim(limit))
    for lease in leases:
        lease.payload, lease.input  # noqa: B018
        lease.complete()
    return leases


def broken(wished: Any) -> None:
    with wished as batch:
        batch.enqueue(1)
        raise ZeroDivisionError


def test_what_waits_for_a_batch_comes_when_its_last_job_completes(q: Any) -> None:
    with q.batch("march", on_complete=Next("report", {"to": "ada"}), on_success=Next("publish")) as batch:
        batch.enqueue({"page": 0})
        batch.enqueue_many({"payload": {"page": at}} for at in range(1, 5))
        assert batch.status().state == "open"
    assert len(complete(q, 4)) == 4
    status = q.batch_status(batch.id)
    assert (status.state, status.total, status.left, status.completed) == ("sealed", 5, 1, 4)
    assert status.on_complete == Next("report", {"to": "ada"})
    assert complete(q, 1)[0].batch == batch.id
    found = {lease.kind: lease for lease in complete(q)}
    assert found.keys() == {"report", "publish"}
    assert found["report"].payload == {"to": "ada"}
    told = {"batch_id": batch.id, "name": "march", "total": 5, "completed": 5, "failed": 0, "cancelled": 0}
    assert found["report"].input == found["publish"].payload == told
    assert found["report"].parent == batch.id
    over = q.batch_status(batch.id)
    assert (over.state, over.on_complete, over.on_success) == ("over", None, None)
    assert over.ended_at is not None


def test_a_dead_letter_keeps_success_back(q: Any) -> None:
    with q.batch(on_complete=Next("report"), on_success=Next("publish")) as batch:
        batch.enqueue(1, max_attempts=1)
        batch.enqueue(2)
    bad, good = q.claim(2)
    bad.fail("no")
    good.complete()
    assert [lease.kind for lease in complete(q)] == ["report"]
    assert (q.batch_status(batch.id).failed, q.batch_status(batch.id).state) == (1, "over")
    q.redrive()
    assert q.batch_status(batch.id).state == "sealed"
    complete(q, 1)
    assert [lease.kind for lease in complete(q)] == ["publish"]


def test_a_cancelled_job_is_over_without_success(q: Any) -> None:
    with q.batch(on_complete=Next("report"), on_success=Next("publish")) as batch:
        batch.enqueue(1, id="stops")
        batch.enqueue(2)
    assert q.cancel("stops") == "cancelled"
    complete(q, 1)
    assert [lease.kind for lease in complete(q)] == ["report"]
    assert q.batch_status(batch.id).cancelled == 1


def test_an_empty_batch_is_over_when_it_is_sealed(q: Any) -> None:
    with q.batch(on_complete=Next("report")) as batch:
        pass
    (lease,) = complete(q)
    assert (lease.kind, lease.payload["total"]) == ("report", 0)
    assert q.batch_status(batch.id).state == "over"


def test_a_block_that_fails_leaves_the_batch_open(q: Any) -> None:
    wished = q.batch(on_complete=Next("report"))
    with pytest.raises(ZeroDivisionError):
        broken(wished)
    (batch,) = q.batches()
    complete(q)
    assert not q.claim()
    assert batch.state == "open"
    assert q.seal_batch(batch.batch_id).state == "over"
    assert complete(q)[0].kind == "report"


def test_a_running_job_adds_to_its_batch_and_nobody_does_when_it_is_over(q: Any) -> None:
    with q.batch(on_complete=Next("report")) as batch:
        batch.enqueue(1)
    (lease,) = q.claim()
    q.enqueue(2, batch=lease.batch)
    lease.complete()
    assert [each.kind for each in complete(q)] == [None]
    assert [each.kind for each in complete(q)] == ["report"]
    with pytest.raises(Conflict, match="batch: it is over"):
        q.enqueue(3, batch=batch.id)
    (late,) = q.enqueue_many([{"payload": 3, "batch": batch.id}])
    assert (late.status, late.error.code) == ("rejected", "conflict")
    bulk = q.enqueue_many([{"payload": at, "batch": batch.id} for at in range(1_100)])
    assert {each.status for each in bulk} == {"rejected"}
    assert not q.claim()


def test_nothing_takes_the_place_of_a_job_in_a_batch_that_is_over(q: Any) -> None:
    rule = Unique(on_duplicate="replace")
    with q.batch() as batch:
        pass
    first = q.enqueue(1, id="index", unique=rule)
    with pytest.raises(Conflict):
        q.enqueue(2, id="index", unique=rule, batch=batch.id)
    assert q.status("index").job_id == first.job_id
    with q.batch(on_complete=Next("report")) as batch:
        batch.enqueue(1, id="other", unique=rule)
        assert batch.enqueue(2, id="other", unique=rule).status == "replaced"
    status = q.batch_status(batch.id)
    assert (status.total, status.left, status.cancelled) == (1, 1, 0)


def test_follow_ups_of_its_jobs_are_of_it(q: Any) -> None:
    with q.batch(on_complete=Next("report")) as batch:
        batch.enqueue(1, then=[Next("second")])
    complete(q)
    assert q.batch_status(batch.id).total == 2
    assert [(lease.kind, lease.batch) for lease in complete(q)] == [("second", batch.id)]
    assert [lease.kind for lease in complete(q)] == ["report"]


def test_all_its_jobs_are_in_one_shard_and_batches_in_all(q: Any) -> None:
    q.configure(shards=4)
    shards = set()
    for _ in range(24):
        with q.batch() as batch:
            jobs = batch.enqueue_many({"payload": at} for at in range(3))
            jobs.append(batch.enqueue(4))
        assert {each.job_id[-2:] for each in jobs} == {batch.id[-2:]}
        shards.add(batch.id[-2:])
    assert len(shards) > 1
    assert len(q.batches()) == 24


def test_a_large_batch_is_counted_as_a_whole(q: Any) -> None:
    with q.batch(on_complete=Next("report")) as batch:
        batch.enqueue_many({"payload": at, "delay": 0 if at % 2 else 3_600} for at in range(1_500))
    status = q.batch_status(batch.id)
    assert (status.total, status.left) == (1_500, 1_500)
    leases = q.claim(100)
    q.complete_many(leases)
    assert q.batch_status(batch.id).left == 1_400


def test_a_group_of_another_shard_is_refused(q: Any) -> None:
    q.configure(shards=8)
    with q.batch() as batch:
        done = batch.enqueue_many({"payload": 1, "group": f"g{at}"} for at in range(64))
    refused = [each.error for each in done if each.error]
    assert "all jobs of a batch are in one shard" in refused[0].message
    assert {each.field for each in refused} == {"group"}


def test_what_is_no_batch_is_refused(q: Any) -> None:
    with pytest.raises(Rejected) as refused:
        q.enqueue(1, batch="march")
    assert refused.value.field == "batch"
    job = q.enqueue(1)
    with pytest.raises(Conflict):
        q.enqueue(1, batch=job.job_id)
    for ask in (q.batch_status, q.seal_batch):
        with pytest.raises(NotFound):
            ask(job.job_id)
        with pytest.raises(Rejected):
            ask("march")
    with pytest.raises(Rejected) as refused:
        q.open_batch(on_complete=Next("a", priority=11))
    assert refused.value.field == "on_complete.priority"
    with pytest.raises(Rejected) as refused:
        q.open_batch("n" * 65)
    assert refused.value.field == "name"


def test_the_queue_tells_its_batches_and_forgets_them_after_a_day(q: Any, clock: Any) -> None:
    assert q.batches() == []
    old = q.open_batch("old")
    assert q.seal_batch(old.batch_id).state == "over"
    clock.shift_ms += 1_000
    q.open_batch("new")
    assert [each.name for each in q.batches()] == ["old", "new"]
    clock.shift_ms += 86_400_000
    q.enqueue(1)
    assert [(each.name, each.state) for each in q.batches()] == [("new", "open")]


def test_why_tells_how_far_its_batch_is(q: Any) -> None:
    with q.batch("march", on_complete=Next("report")) as batch:
        jobs = batch.enqueue_many({"payload": at} for at in range(3))
    complete(q, 1)
    assert "in batch 'march': 2 of 3 left" in str(q.why(jobs[2].job_id))
    complete(q)
    (lease,) = q.claim()
    assert "made when batch 'march' was over" in str(q.why(lease.job_id))
