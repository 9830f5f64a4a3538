"""``osqueue batch``, and jobs that others follow from the command line."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Next, Queue
from tests.support.commands import Run, answer, answers


@pytest.fixture
def q(address: str) -> Queue[Any]:
    return Queue.connect(address, "mail")


def test_a_batch_is_listed_shown_and_sealed(run: Run, q: Queue[Any]) -> None:
    made = q.open_batch("march", on_complete=Next("report"))
    q.enqueue(1, batch=made.batch_id)
    (row,) = answers(run("batch", "ls", "mail"))
    shown = answer(run("batch", "show", "mail", made.batch_id))
    assert row == shown
    assert (shown["name"], shown["state"], shown["left"], shown["on_complete"]) == (
        "march",
        "open",
        1,
        "report",
    )
    assert answer(run("batch", "seal", "mail", made.batch_id))["state"] == "sealed"


@pytest.mark.parametrize(("batch", "words"), [("march", "no id of a batch"), ("", "no id of a batch")])
def test_what_is_no_batch_is_refused(run: Run, q: Queue[Any], batch: str, words: str) -> None:
    q.enqueue(1)
    result = run("batch", "show", "mail", batch)
    assert result.exit_code == 2
    assert words in result.stderr


def test_one_that_is_not_there_is_not_found(run: Run, q: Queue[Any]) -> None:
    job_id = str(q.enqueue(1).job_id)
    result = run("batch", "seal", "mail", job_id)
    assert "osqueue batch ls" in result.stderr
    assert answers(run("batch", "ls", "mail")) == []


def test_what_follows_a_job_is_given_as_json(run: Run, q: Queue[Any]) -> None:
    run("enqueue", "mail", "1", "--then", '[{"kind": "notify", "payload": {"to": "ada"}}]')
    q.claim()[0].complete("done")
    (lease,) = q.claim()
    assert (lease.kind, lease.payload, lease.input) == ("notify", {"to": "ada"}, "done")
    result = run("enqueue", "mail", "1", "--then", '{"kind": 5}')
    assert "then[0].kind: " in result.stderr
    assert "--then" in run("enqueue", "mail", "1", "--then", "{oops").stderr


def test_a_job_joins_a_batch(run: Run, q: Queue[Any]) -> None:
    made = q.open_batch()
    run("enqueue", "mail", "1", "--batch", made.batch_id)
    assert q.batch_status(made.batch_id).total == 1


def test_a_batch_is_cancelled(run: Run, q: Queue[Any]) -> None:
    with q.batch("march") as batch:
        batch.enqueue_many({"payload": n} for n in range(3))
    q.enqueue(1)
    (lease,) = q.claim()
    seen = answer(run("batch", "cancel", "mail", batch.id, "--dry-run"))
    assert seen == {"queue": "mail", "batch_id": batch.id, "would_cancel": 2, "asked": 1, "waiting": 0}
    assert answer(run("batch", "cancel", "mail", batch.id))["cancelled"] == 2
    assert q.batch_status(batch.id).left == 1
    lease.complete()
    assert answer(run("batch", "show", "mail", batch.id))["state"] == "over"
    assert len(q.claim(10)) == 1
    for wrong, words in (("march", "no id of a batch"), (str(lease.job_id), "osqueue batch ls")):
        assert words in run("batch", "cancel", "mail", wrong).stderr
