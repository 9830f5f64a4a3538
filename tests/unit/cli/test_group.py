"""``osqueue group``: one group has limits of its own, and lets go of them."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from tests.support.commands import Run, answer, answers


def test_a_group_gets_limits_of_its_own_and_lets_go_of_them(run: Run, q: Queue[Any]) -> None:
    q.configure(group_rate=(1, 60))
    told = answer(run("group", "configure", "emails", "a", "--rate", "50/60s", "--running", "5"))
    assert (told["group"], told["running"], told["rate"]) == ("a", 5, [50, 60.0])
    assert q.stats()["groups"]["a"].keys() == {"running", "rate"}
    run("group", "configure", "emails", "a", "--no-rate", "--no-running")
    assert q.stats()["groups"] == {}


def test_what_makes_no_sense_is_refused(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    assert "nothing to change" in run("group", "configure", "emails", "a").stderr
    assert (
        "--no-rate: --rate is given, too"
        in run("group", "configure", "emails", "a", "--rate", "1/s", "--no-rate").stderr
    )


def test_groups_that_run_or_are_paused_are_listed(run: Run, q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": at, "group": name} for at, name in enumerate("aab")])
    assert list(answers(run("group", "ls", "emails"))) == []
    q.claim()
    run("queue", "pause", "emails", "--group", "b")
    told = {
        row["group"]: (row["state"], row["running"], row["waiting"])
        for row in answers(run("group", "ls", "emails"))
    }
    assert told == {"a": ("full", 1, 1), "b": ("paused", 0, 1)}
    assert len(list(answers(run("group", "ls", "emails", "--limit", "1")))) == 1
    assert run("group", "ls", "emails", "--limit", "0").exit_code == 2
