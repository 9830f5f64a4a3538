"""Payloads and results that no request of an API holds: over every store and API they are like any others."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Rejected
from osqueue.contract.functions import CONTENT_BYTES_MAX, PAYLOAD_BYTES_MAX

SIZES = (PAYLOAD_BYTES_MAX - 2, PAYLOAD_BYTES_MAX - 1, 1_000_000, 5_000_000)


@pytest.mark.parametrize("size", SIZES)
def test_a_large_payload_reaches_its_worker_and_a_large_result_its_caller(q: Any, size: int) -> None:
    done = q.enqueue("p" * size)
    (lease,) = q.claim()
    assert lease.payload == "p" * size
    lease.complete("r" * size)
    assert q.result(done.job_id) == "r" * size


def test_what_is_no_json_is_as_large(opened: Any) -> None:
    q = opened(serializer="msgpack")
    done = q.enqueue(bytes(5_000_000))
    (lease,) = q.claim()
    assert lease.payload == bytes(5_000_000)
    lease.complete(bytes(4_500_000))
    assert q.result(done.job_id) == bytes(4_500_000)


def test_large_jobs_and_small_ones_keep_their_order(q: Any) -> None:
    sizes = [10, 1_000_000, 20, 300_000, 1_000]
    done = q.enqueue_many([{"payload": "x" * size} for size in sizes])
    assert [each.status for each in done] == ["queued"] * 5
    found: list[int] = []
    while leases := q.claim(10):
        found += [len(lease.payload) for lease in leases]
        for lease in leases:
            lease.complete()
    assert found == sizes


def test_a_large_result_is_given_to_whoever_enqueues_under_its_id_again(q: Any) -> None:
    q.enqueue("x" * 1_000_000, id="order-7", result_ttl=3_600)
    (lease,) = q.claim()
    lease.complete("r" * 5_000_000)
    again = q.enqueue("x" * 1_000_000, id="order-7")
    assert (again.status, again.result) == ("completed", "r" * 5_000_000)


def test_jobs_of_several_shards_and_groups_are_as_large(q: Any) -> None:
    q.configure(shards=4)
    done = [q.enqueue("x" * 300_000 + str(at), group=f"customer-{at}") for at in range(4)]
    leases = [lease for _ in range(4) for lease in q.claim()]
    assert {lease.job_id for lease in leases} == {each.job_id for each in done}
    for lease in leases:
        lease.complete(lease.payload)
    for at, each in enumerate(done):
        assert q.result(each.job_id) == "x" * 300_000 + str(at)


def test_a_worker_is_given_large_jobs_and_answers_large_results(q: Any) -> None:
    done = [q.enqueue("x" * size) for size in (5_000_000, 10, 1_000_000)]
    q.handler(lambda job: job.payload + "!")
    q.run(until_empty=True, poll=0.01, signals=False)
    assert [len(q.result(each.job_id)) for each in done] == [5_000_001, 11, 1_000_001]


def test_over_an_api_a_payload_has_at_most_so_many_bytes(q: Any, address: str) -> None:
    if not address.startswith(("http", "lambda")):
        pytest.skip("a store takes more")
    q.enqueue("x" * (CONTENT_BYTES_MAX - 2))
    (lease,) = q.claim()
    assert len(lease.payload) == CONTENT_BYTES_MAX - 2
    with pytest.raises(Rejected, match="33,554,433 bytes; over an API the most is 33,554,432") as caught:
        q.enqueue("x" * (CONTENT_BYTES_MAX - 1))
    assert (caught.value.code, caught.value.field) == ("too_large", "payload")
