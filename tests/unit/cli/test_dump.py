"""The heads as JSON, how full they are, and one that is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osqueue import Damaged, Queue, limits
from osqueue.core.budgets import budgets
from osqueue.core.state import State
from osqueue.maintenance.head_checks import BUDGET_REMEDIES, FULL_SHARE
from tests.support.commands import Run, answer, answers


def head(folder: Path, shard: int = 0) -> Path:
    (found,) = (folder / "jobs").glob(f"*/emails/{shard}/head")
    return found


def test_a_head_is_shown_by_names_without_contents_and_secrets(run: Run, q: Queue[Any]) -> None:
    jobs = [q.enqueue(payload).job_id for payload in ("pss-one", "pss-two")]
    (lease,) = q.claim()
    found = answer(run("queue", "dump", "emails"))
    assert (found["queue"], found["shard"], found["bytes"] > 0) == ("emails", 0, True)
    ((row,),) = [lane["backlog"]["ready"] or lane["backlog"]["tail"] for lane in found["head"]["lanes"]]
    assert (row["key"], row["payload"]) == (jobs[1], {"bytes": 9})
    assert found["head"]["leases"][lease.job_id]["job"]["key"] == jobs[0]
    text = json.dumps(found)
    assert lease.token not in text
    assert "pss-" not in text
    assert "pss-two" in run("queue", "dump", "emails", "--payloads").stdout


def test_every_shard_is_a_line_and_one_may_be_picked(run: Run, q: Queue[Any]) -> None:
    q.configure(shards=3)
    assert [each["shard"] for each in answers(run("queue", "dump", "emails"))] == [0, 1, 2]
    assert answer(run("queue", "dump", "emails", "--shard", "1"))["shard"] == 1
    assert "shard 9 has no head" in run("queue", "dump", "emails", "--shard", "9").stderr


# ── How full ─────────────────────────────────────────────────────────────────
def change_ttls(q: Queue[Any], count: int) -> None:
    """Fill a part of the head that turns calls away when it is full."""
    for done in q.enqueue_many([{"payload": 1}] * count):
        assert done.job_id is not None
        q.update_result_ttl(done.job_id, 90)


def test_stats_tell_how_full_the_heads_are(run: Run, q: Queue[Any]) -> None:
    change_ttls(q, limits.RESULT_TTLS_MAX // 4)
    found = answer(run("queue", "stats", "emails"))
    assert found["budgets"]["result_ttls"] == 0.25
    assert found["head_bytes"] == answer(run("queue", "dump", "emails"))["bytes"]


@pytest.mark.usefixtures("terminal")
def test_people_read_the_shares_as_percents(run: Run, q: Queue[Any]) -> None:
    change_ttls(q, limits.RESULT_TTLS_MAX // 4)
    assert "25%" in run("queue", "stats", "emails").stdout


def test_the_doctor_warns_at_half_of_what_turns_calls_away(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned() -> list[str]:
        return [each["found"] for each in answers(run("doctor", "emails")) if each["check"] == "budget"]

    monkeypatch.setattr(limits, "RESULT_TTLS_MAX", 8)
    change_ttls(q, round(limits.RESULT_TTLS_MAX * FULL_SHARE) - 1)
    assert warned() == []
    change_ttls(q, 1)
    (said,) = warned()
    assert said.startswith("result_ttls: 50% of what a head holds")


def test_whatever_turns_calls_away_has_a_remedy() -> None:
    assert {each.name for each in budgets(State(b"", 1)) if each.refuses} == set(BUDGET_REMEDIES)


# ── A head that is missing ───────────────────────────────────────────────────
def test_a_missing_head_is_an_error_and_not_zeros(run: Run, q: Queue[Any], tmp_path: Path) -> None:
    q.enqueue(1)
    Queue[Any].connect(f"file://{tmp_path}/jobs?fsync=off", "texts").enqueue(1)
    head(tmp_path).unlink()
    with pytest.raises(Damaged, match="shard 0 has no head"):
        q.stats()
    assert (done := run("queue", "stats", "emails")).exit_code == 1
    assert "shard 0 has no head" in done.stderr
    listed = run("queue", "ls")
    assert listed.exit_code == 1
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [("error" in each, each["queue"]) for each in rows] == [(True, "emails"), (False, "texts")]


def test_so_is_that_of_a_further_shard(q: Queue[Any], tmp_path: Path) -> None:
    q.configure(shards=2)
    head(tmp_path, 1).unlink()
    with pytest.raises(Damaged, match="shard 1 has no head"):
        q.stats()


def test_a_queue_that_nobody_used_yet_has_zeros(q: Queue[Any], address: str) -> None:
    Queue[Any].connect(address, "emails-2").enqueue(1)
    assert q.stats()["queued"] == 0
