"""``queue cancel``: many waiting jobs at once."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from tests.support.commands import Run, answer, dead


def states(q: Queue[Any]) -> dict[str, int]:
    return {name: count for name, count in q.stats().items() if name in ("queued", "scheduled") and count}


def test_waiting_jobs_of_a_kind_are_cancelled_and_no_others(run: Run, q: Queue[Any]) -> None:
    dead(q, "no")
    q.enqueue_many([{"payload": n, "kind": "ab"[n % 2]} for n in range(2_400)])
    q.enqueue(1, kind="a", delay=600)
    running = q.claim(3, kinds=["a"])
    assert answer(run("queue", "cancel", "emails", "--kind", "a", "--dry-run")) == {
        "queue": "emails",
        "would_cancel": 1_198,
    }
    done = run("queue", "cancel", "emails", "--kind", "a")
    assert (done.exit_code, "1,198 jobs would be cancelled: add --yes" in done.stderr) == (2, True)
    assert answer(run("queue", "cancel", "emails", "--kind", "a", "--yes")) == {
        "queue": "emails",
        "cancelled": 1_198,
        "asked": 0,
        "over": 0,
    }
    assert states(q) == {"queued": 1_200}
    assert all(done.ok for done in q.complete_many(running))
    assert answer(run("queue", "cancel", "emails", "--kind", "a", "--yes"))["would_cancel"] == 0


def test_by_state_age_and_number(run: Run, q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": n} for n in range(5)])
    q.enqueue(1, delay=600)
    assert (
        answer(run("queue", "cancel", "emails", "--all", "--older-than", "1h", "--yes"))["would_cancel"] == 0
    )
    assert (
        answer(run("queue", "cancel", "emails", "--all", "--state", "scheduled", "--yes"))["cancelled"] == 1
    )
    assert answer(run("queue", "cancel", "emails", "--all", "--limit", "2", "--yes"))["cancelled"] == 2
    assert states(q) == {"queued": 3}


def test_it_has_to_be_said_which(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    for options in ((), ("--all", "--kind", "a")):
        done = run("queue", "cancel", "emails", *options, "--yes")
        assert (done.exit_code, "which jobs?" in done.stderr) == (2, True)
    assert states(q) == {"queued": 1}
