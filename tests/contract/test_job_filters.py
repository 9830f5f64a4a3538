"""Pages of jobs that are like this or that, over every store and transport."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue.errors import Rejected


def ids(q: Any, **which: Any) -> list[str]:
    found, cursor = q.jobs(**which)
    assert cursor is None
    return [each.job_id for each in found]


def test_jobs_are_picked_by_kind_own_id_worker_and_age(q: Any, clock: Any) -> None:
    old = q.enqueue(1, kind="a", id="order-7").job_id
    clock.shift_ms += 60_000
    new = q.enqueue(2, kind="b").job_id
    later = q.enqueue(3, delay=600).job_id
    (lease,) = q.claim(worker="host-3-abc", kinds=["b"])
    assert ids(q, kinds=["a"]) == [old]
    assert ids(q, kinds=["a", "b"]) == [new, old]
    assert ids(q, kinds=[""]) == [later]
    assert ids(q, id="order-7") == [old]
    assert ids(q, id="order-8") == []
    assert ids(q, worker="host-3") == [lease.job_id] == [new]
    assert ids(q, older_than=30) == [old]
    assert ids(q, state="queued", older_than=0) == [old]
    assert ids(q, kinds=["b"], id="order-7") == []


def test_jobs_are_picked_by_group_header_and_batch(q: Any) -> None:
    with q.batch() as batch:
        one = batch.enqueue(1, headers={"tenant": "acme", "origin": "web"}).job_id
    two = q.enqueue(2, group="order-1", headers={"tenant": "acme", "note": "a=b"}, delay=600).job_id
    three = q.enqueue(3, group="order-2", headers={"tenant": "globex"}).job_id
    assert ids(q, group="order-1") == [two]
    assert ids(q, group="order-2", state="queued") == [three]
    assert ids(q, group="order-3") == []
    assert sorted(ids(q, headers={"tenant": "acme"})) == sorted([one, two])
    assert ids(q, headers={"tenant": "acme", "origin": None}) == [one]
    assert ids(q, headers={"note": "a=b"}) == [two]
    assert len(ids(q, headers={"tenant": None})) == 3
    assert ids(q, headers={"nothing": None}) == []
    assert ids(q, batch=batch.id) == [one]
    assert ids(q, batch=batch.id, group="order-1") == []


def test_a_job_is_found_by_its_own_id_wherever_it_lies(q: Any) -> None:
    q.enqueue_many([{"payload": n, "kind": "a"} for n in range(2_890)])
    q.enqueue_many([{"payload": n, "kind": "a", "id": f"order-{n}"} for n in range(2_890, 3_000)])
    (found,), cursor = q.jobs(id="order-2900", kinds=["a"])
    assert (found.id, found.state, cursor) == ("order-2900", "queued", None)
    assert q.jobs(id="order-2900", state="failed") == ([], None)
    assert q.jobs(id="order-2900", kinds=["b"]) == ([], None)


def test_a_filter_that_makes_no_sense_is_refused(q: Any) -> None:
    for which in ({"older_than": -1}, {"id": ""}, {"group": ""}, {"batch": "none"}, {"headers": {"": "x"}}):
        (name,) = which
        with pytest.raises(Rejected) as caught:
            q.jobs(**which)
        assert caught.value.field == name
