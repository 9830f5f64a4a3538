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


def test_a_filter_that_makes_no_sense_is_refused(q: Any) -> None:
    for which in ({"older_than": -1}, {"id": ""}):
        (name,) = which
        with pytest.raises(Rejected) as caught:
            q.jobs(**which)
        assert caught.value.field == name
