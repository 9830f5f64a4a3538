"""``osqueue dlq``: dead letters are listed, grouped, redriven and purged."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from osqueue import Queue
from tests.support.commands import Run, answer, answers, dead


def test_dead_letters_are_listed_grouped_redriven_and_purged(run: Run, q: Queue[Any]) -> None:
    ids = dead(q, "row 1 is bad", "disk full", "row 2 is bad")
    rows, disk = answers(run("dlq", "groups", "emails"))
    assert (rows["count"], rows["error"], disk["count"]) == (2, "row <n> is bad", 1)
    page = answer(run("dlq", "ls", "emails", "--limit", "2"))
    assert [each["job_id"] for each in page["dead_letters"]] == ids[:2]
    rest = answer(run("dlq", "ls", "emails", "--cursor", page["cursor"]))
    assert ([each["job_id"] for each in rest["dead_letters"]], rest["cursor"]) == ([ids[2]], None)
    one = answer(run("dlq", "ls", "emails", "--fingerprint", disk["fingerprint"]))
    assert [each["error"] for each in one["dead_letters"]] == ["disk full"]
    which = ("--fingerprint", rows["fingerprint"])
    assert answer(run("dlq", "redrive", "emails", *which, "--dry-run"))["would_redrive"] == 2
    assert answer(run("dlq", "redrive", "emails", *which, "--limit", "1", "--rate", "100"))["redriven"] == 1
    result = run("dlq", "purge", "emails", *which)
    assert json.loads(result.stdout) == {"queue": "emails", "would_purge": 1}
    assert "--yes" in result.stderr
    told = answer(run("dlq", "purge", "emails", *which, "--yes"))
    assert (told["purged"], told["state"]) == (1, 2)  # the letter, and what the archive was to be told of it
    assert [each["job_id"] for each in answer(run("dlq", "ls", "emails"))["dead_letters"]] == [ids[1]]
    assert run("dlq", "ls", "emails", "--fingerprint", "7").exit_code == 2


def test_what_is_redriven_while_dead_letters_are_purged_is_left_alive(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = dead(q, "a", "b", "c")
    letters = sys.modules["osqueue.cli.dlq"]
    real = letters._all

    def then_redrive(*args: Any, **which: Any) -> Any:
        found = real(*args, **which)
        q.redrive(limit=2)
        return found

    monkeypatch.setattr(letters, "_all", then_redrive)
    told = answer(run("dlq", "purge", "emails", "--yes"))
    assert (told["purged"], told["cancelled"], told["no_longer_dead"]) == (1, 0, 2)
    assert [each.job_id for each in q.claim(9)] == jobs[:2]


def test_dead_letters_on_a_terminal(run: Run, q: Queue[Any], terminal: None) -> None:
    dead(q, "row 1 is bad", "row 2 is bad")
    result = run("dlq", "ls", "emails", "--limit", "1")
    assert "row 1 is bad" in result.stdout
    assert result.stderr.startswith("more: --cursor ")
    assert "row <n> is bad" in run("dlq", "groups", "emails").stdout
