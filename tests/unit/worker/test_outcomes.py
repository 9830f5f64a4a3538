"""What a handler may ask for: later, at a time, and a rest for others like its job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osqueue import Queue, Rejected, Snooze, Throttle, WorkerJob


@pytest.fixture
def q() -> Queue[Any]:
    return Queue.connect("memory://", "emails")


def test_a_job_is_snoozed_until_a_time(q: Queue[Any]) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    q.handler(lambda job: Snooze(until=until))
    q.enqueue(1)
    assert q.run(until_empty=True).released == 1
    due = q.jobs()[0][0].due_at
    assert due is not None
    assert abs(due - until) < timedelta(milliseconds=1)


@pytest.mark.parametrize("raises", [False, True], ids=["returned", "raised"])
@pytest.mark.parametrize("scope", ["kind", "queue"])
def test_a_throttle_uses_no_attempt_and_lets_others_wait(q: Queue[Any], raises: bool, scope: Any) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> Any:
        if raises:
            raise Throttle(60, scope, "429")
        return Throttle(timedelta(minutes=1), scope, "429")

    for at in range(3):
        q.enqueue(at, kind="send", max_attempts=1)
    assert q.run(until_empty=True, concurrency=1).released == 1
    assert {job.state for job in q.jobs()[0]} == {"queued"}
    none = q.claim(kinds=["send"])
    assert (none.reason, none.scope) == ("paused", scope)
    q.resume("send" if scope == "kind" else None)
    assert [lease.attempt for lease in q.claim(5)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (lambda: Throttle(0), "seconds"),
        (lambda: Throttle(1, "group"), "scope"),  # type: ignore[arg-type]
        (lambda: Snooze(5, until=1e9), "until"),
        (lambda: Snooze(until="soon"), "until"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_directive_is_refused_by_name(made: Any, field: str) -> None:
    with pytest.raises(Rejected) as caught:
        made()
    assert caught.value.field == field
