"""``queue cancel``: many waiting jobs at once."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from tests.support.commands import Run, answer, dead


def states(q: Queue[Any]) -> dict[str, int]:
    return {name: count for name, count in q.stats().items() if name in ("queued", "scheduled") and count}


def test_waiting_jobs_of_a_kind_are_cancelled_and_no_others(run: Run, q: Queue[Any]) -> None:
    dead(q, "no")
    q.enqueue_many([{"payload": n, "kind": "ab"[n % 2]} for n in range(2_400)])
    q.enqueue(1, kind="a", delay=600)
    running = q.claim(3, kinds=["a"])
    seen = answer(run("queue", "cancel", "emails", "--kind", "a", "--dry-run"))
    assert seen["would_cancel"] + seen["waiting"] == 1_198
    assert (seen["queue"], seen["asked"]) == ("emails", 3)
    done = run("queue", "cancel", "emails", "--kind", "a")
    assert (done.exit_code, "at most 1,201 jobs would be cancelled: add --yes" in done.stderr) == (2, True)
    done = answer(run("queue", "cancel", "emails", "--kind", "a", "--yes"))
    assert done["cancelled"] + done["waiting"] == 1_198
    q.reap()
    assert states(q) == {"queued": 1_200}
    assert all(done.ok for done in q.complete_many(running))
    assert answer(run("queue", "cancel", "emails", "--kind", "a", "--yes"))["would_cancel"] == 0


def test_by_age_and_group(run: Run, q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": n, "group": "gh"[n % 2]} for n in range(6)])
    q.enqueue(1, delay=600)
    for before in ("1h", "2020-01-01T00:00:00Z"):
        done = answer(run("queue", "cancel", "emails", "--all", "--before", before, "--yes"))
        assert done["would_cancel"] == 0
    assert answer(run("queue", "cancel", "emails", "--group", "g", "--yes"))["cancelled"] == 3
    assert states(q) == {"queued": 3, "scheduled": 1}
    late = answer(run("queue", "cancel", "emails", "--all", "--before", "2099-01-01T00:00:00Z", "--yes"))
    assert late == {"queue": "emails", "cancelled": 4, "asked": 0, "waiting": 0}


def test_on_a_terminal_it_asks(run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osqueue.cli.cancel.is_terminal", lambda stream: True)
    q.enqueue(1)
    done = run("queue", "cancel", "emails", "--all", stdin="n\n")
    assert "Cancel 1 jobs of queue emails?" in done.stderr
    assert states(q) == {"queued": 1}
    assert '"cancelled":1' in run("queue", "cancel", "emails", "--all", stdin="y\n").stdout.replace(" ", "")


def test_it_has_to_be_said_which(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    for options in ((), ("--all", "--kind", "a"), ("--all", "--group", "g"), ("--before", "1h")):
        done = run("queue", "cancel", "emails", *options, "--yes")
        assert (done.exit_code, "which jobs?" in done.stderr) == (2, True)
    assert states(q) == {"queued": 1}
    assert "no time" in run("queue", "cancel", "emails", "--all", "--before", "soon", "--yes").stderr
