"""Small things for whoever writes jobs and handlers, over every store and transport."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from osqueue.errors import Rejected


def test_the_callers_own_id_is_at_hand_where_the_work_is_done(q: Any) -> None:
    q.enqueue(1, id="order-7")
    q.enqueue(2)
    assert [lease.id for lease in q.claim(2)] == ["order-7", None]


def test_durations_of_a_job_may_be_timedeltas(q: Any) -> None:
    (many,) = q.enqueue_many([{"payload": 1, "delay": timedelta(minutes=1, milliseconds=30_500)}])
    for job_id in (q.enqueue(1, delay=timedelta(seconds=90.5)).job_id, many.job_id):
        job = q.status(job_id)
        assert job.state == "scheduled"
        # A store whose clock has whole seconds may tell another millisecond.
        assert abs((job.due_at - job.enqueued_at) - timedelta(seconds=90.5)) < timedelta(seconds=30)
    done = q.enqueue(2, result_ttl=timedelta(days=2)).job_id
    q.claim()[0].complete()
    job = q.status(done)
    assert job.expires_at - job.finished_at == timedelta(days=2)
    q.configure(dead_ttl=timedelta(days=3))
    assert q.stats()["settings"]["dead_ttl"] == 3 * 86_400


def test_a_timedelta_out_of_bounds_is_refused(q: Any) -> None:
    with pytest.raises(Rejected, match=r"delay: -1\.0 is not a number of seconds"):
        q.enqueue(1, delay=timedelta(seconds=-1))


@pytest.mark.parametrize("large", [False, True])
def test_results_may_have_a_serialiser_of_their_own(opened: Any, large: bool) -> None:
    q = opened(result_serializer="msgpack")
    reader = opened()
    result = {"a": b"bytes" * (1_000 if large else 1)}
    job = q.enqueue({"payload": "json"}).job_id
    (lease,) = reader.claim()
    assert lease.payload == {"payload": "json"}
    q.complete_many([{"job_id": lease.job_id, "token": lease.token, "result": result}])
    for each in (q, reader):  # MessagePack is known everywhere
        assert each.result(job) == result
        assert each.status(job, include="result").result == result
    second = q.enqueue(2).job_id
    q.claim()[0].complete(result)
    assert reader.result(second) == result


class Spaced:
    """JSON, and yet another serialiser."""

    name = "json"

    def dumps(self, value: Any) -> bytes:
        return msgspec.json.format(msgspec.json.encode(value))

    def loads(self, data: bytes, type: Any) -> Any:
        return msgspec.json.decode(data, type=type)


def test_two_serialisers_of_one_name_are_refused(opened: Any) -> None:
    with pytest.raises(Rejected, match="it is named 'json', as the serializer is"):
        opened(result_serializer=Spaced())
    with pytest.raises(Rejected, match="result_serializer: 'pickle' is not known"):
        opened(result_serializer="pickle")
