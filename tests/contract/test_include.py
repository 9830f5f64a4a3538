"""Payload, result and traceback beside a job, on request, over every store and transport."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from osqueue.errors import Rejected

LARGE = {"to": "ada@example.com", "body": "x" * 5_000}  # lies in an object of its own


def failed(q: Any, payload: Any, **options: Any) -> str:
    job = q.enqueue(payload, max_attempts=1, **options).job_id
    (lease,) = q.claim()
    try:
        raise OSError("mailbox full")
    except OSError as error:
        lease.fail(error)
    return str(job)


def test_a_job_is_shown_without_its_contents_unless_they_are_asked_for(q: Any) -> None:
    job = q.status(q.enqueue({"a": 1}).job_id)
    assert (job.payload, job.traceback, job.result, job.left_out) == (UNSET,) * 4


@pytest.mark.parametrize("payload", [{"to": "ada"}, LARGE, None])
def test_payload_and_traceback_of_a_dead_letter(q: Any, payload: Any) -> None:
    job = failed(q, payload, id="order-7")
    for name in (job, "order-7"):
        found = q.status(name, include=["payload", "traceback"])
        assert (found.payload, found.result) == (payload, UNSET)
        assert found.traceback.splitlines()[-1] == "OSError: mailbox full"
    (letter,), _ = q.dead_letters(include="payload,traceback")
    assert (letter.job_id, letter.payload, letter.left_out) == (job, payload, UNSET)
    assert letter.traceback == found.traceback
    ((bare,), _) = q.dead_letters()
    assert (bare.payload, bare.traceback) == (UNSET, UNSET)


@pytest.mark.parametrize("result", [{"sent": True}, "y" * 5_000, None])
def test_the_result_of_a_finished_job_comes_with_its_status(q: Any, result: Any) -> None:
    job = q.enqueue(1).job_id
    early = q.status(job, include="result")
    assert (early.result, early.left_out) == (UNSET, {"result": "the job is queued: it has none."})
    q.claim()[0].complete(result)
    done = q.status(job, include=["result", "payload"])
    assert (done.result, done.payload) == (result, UNSET)
    assert done.left_out == {"payload": "a job that is over keeps none."}


def test_many_jobs_are_asked_for_at_once_in_any_order_under_either_id(q: Any) -> None:
    first = q.enqueue(LARGE, id="a").job_id
    q.claim()[0].complete(LARGE)
    second = q.enqueue({"b": 2}).job_id
    found = q.status_many([second, "nobody", "a", second, first], include=["payload", "result"])
    assert [each and each.job_id for each in found] == [second, None, first, second, first]
    assert (found[0].payload, found[2].result, found[4].result) == ({"b": 2}, LARGE, LARGE)
    assert q.status_many([]) == []
    assert [each.payload for each in q.status_many([first, second])] == [UNSET, UNSET]


def test_what_cannot_be_included_is_refused_by_name(q: Any) -> None:
    job = q.enqueue(1).job_id
    for ask in (lambda: q.status(job, include="payloads"), lambda: q.status_many([job], include=["x"])):
        with pytest.raises(Rejected, match="is none of payload, traceback, result") as caught:
            ask()
        assert caught.value.field == "include"
    with pytest.raises(Rejected, match="is none of payload, traceback"):
        q.dead_letters(include=["result"])


def test_cancelling_a_dead_letter_says_that_it_failed(q: Any) -> None:
    assert q.cancel(failed(q, 1)) == "failed"
    assert q.cancel("nobody") == "not_found"
