"""``osqueue queue consumers``: attaches, lists and detaches."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from tests.support.commands import Run, answer, answers


def test_a_consumer_is_attached_listed_and_detached(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    told = answer(
        run(
            *("queue", "consumers", "emails", "--attach", "mailer", "--target", "arn:mailer"),
            *("--kind", "a", "--kind", "b", "--batch", "5", "--max-concurrency", "3", "--lease", "60s"),
        )
    )
    assert told == {
        "consumer": "mailer",
        "target": "arn:mailer",
        "held": 0,
        "fired": 0,
        "most": 3,
        "since": None,
        "tries": 0,
    }
    settings = q.stats()["settings"]["consumers"]["mailer"]
    assert (settings["kinds"], settings["batch"], settings["lease"]) == (["a", "b"], 5, 60.0)
    assert [row["consumer"] for row in answers(run("queue", "consumers", "emails"))] == ["mailer"]
    assert list(answers(run("queue", "consumers", "emails", "--detach", "mailer"))) == []
    assert q.stats()["settings"]["consumers"] == {}


def test_what_makes_no_sense_is_refused(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    assert "--target says what" in run("queue", "consumers", "emails", "--attach", "mailer").stderr
    assert "--attach NAME says" in run("queue", "consumers", "emails", "--target", "x").stderr
    assert "--attach NAME says" in run("queue", "consumers", "emails", "--batch", "3").stderr
    unknown = run("queue", "consumers", "other", "--attach", "mailer", "--target", "x")
    assert unknown.exit_code != 0
    created = run("queue", "consumers", "other", "--create", "--attach", "mailer", "--target", "x")
    assert answer(created)["consumer"] == "mailer"
