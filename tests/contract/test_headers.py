"""Headers go where their job goes, over every store and transport, for Queue and AsyncQueue alike."""

from __future__ import annotations

from typing import Any

HEADERS = {"traceparent": "00-4bf92f3577b34da6-00f067aa0ba902b7-01", "tenant": "größe 10", "empty": ""}


def test_headers_are_seen_by_everybody_who_looks_at_the_job_in_every_state(q: Any, clock: Any) -> None:
    job_id = q.enqueue(1, headers=HEADERS, delay=5, max_attempts=1).job_id
    (bare, also) = q.enqueue_many([{"payload": 2}, {"payload": 3, "headers": {"tenant": "b"}}])

    def seen(state: str) -> None:
        job = q.status(job_id)
        assert (job.state, job.headers) == (state, HEADERS)

    seen("scheduled")
    assert q.status(bare.job_id).headers == {}
    assert q.status(also.job_id).headers == {"tenant": "b"}
    for lease in q.claim(2):
        lease.complete()
    clock.shift_ms += 8_000
    q.reap()
    seen("queued")
    (lease,) = q.claim()
    assert lease.headers == HEADERS
    seen("processing")
    lease.fail("no")
    seen("failed")
    (letter,), _ = q.dead_letters()
    assert letter.headers == HEADERS
    assert q.redrive() == 1
    (lease,) = q.claim()
    assert lease.headers == HEADERS
    lease.complete()
    seen("completed")
    assert {each.job_id: each.headers for each in q.jobs()[0]}[job_id] == HEADERS


def test_a_duplicate_changes_no_header_of_the_job_that_is_there(q: Any) -> None:
    job_id = q.enqueue(1, id="a", headers={"tenant": "a"}).job_id
    assert q.enqueue(1, id="a", headers={"tenant": "b"}).status == "duplicate"
    assert q.status(job_id).headers == {"tenant": "a"}
