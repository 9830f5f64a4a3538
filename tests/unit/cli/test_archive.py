"""``osqueue archive``: finished jobs by the hour, as records and summed up."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from osqueue import Queue, limits
from osqueue.stores.base import List, Put
from tests.support.commands import Run, answer, answers


@pytest.fixture
def archived(q: Queue[Any]) -> Queue[Any]:
    """A queue with five records: three completed, one dead, one cancelled."""
    for at in range(3):
        q.enqueue(at, kind="a" if at else None)
    for lease in q.claim(3):
        lease.complete()
    q.enqueue(9, id="order-7", max_attempts=1)
    q.claim()[0].fail("row 1 is bad")
    q.cancel(str(q.enqueue(5, delay=60).job_id))
    q.reap()
    return q


def test_the_archive_is_listed_by_the_hour(run: Run, archived: Queue[Any]) -> None:
    hour = answer(run("archive", "ls", "emails"))
    assert (hour["parts"], hour["records"]) == (1, 5)
    assert hour["bytes"] > 100
    (part,) = answers(run("archive", "ls", "emails", "--names"))
    assert part["part"].startswith("archive/queue=emails/date=")
    assert answers(run("archive", "ls", "emails", "--until", hour["hour"])) == []
    assert answers(run("archive", "ls", "emails", "--since", hour["hour"])) == [hour]
    assert answers(run("archive", "ls", "emails", "--since", "4000000000")) == []
    assert run("archive", "ls", "emails", "--since", "5", "--until", "4").exit_code == 2
    assert run("archive", "ls", "mails").exit_code == 1


def test_records_are_printed_as_the_archive_has_them(run: Run, archived: Queue[Any]) -> None:
    assert [each["state"] for each in answers(run("archive", "cat", "emails", "--state", "failed"))] == [
        "failed"
    ]
    assert len(answers(run("archive", "cat", "emails"))) == 5
    assert len(answers(run("archive", "cat", "emails", "--limit", "2"))) == 2
    assert len(answers(run("archive", "cat", "emails", "--kind", "a"))) == 2
    (record,) = answers(run("archive", "cat", "emails", "--job", "order-7"))
    assert (record["id"], record["attempts"][0]["error"]) == ("order-7", "row 1 is bad")
    assert answers(run("archive", "cat", "emails", "--job", record["job_id"])) == [record]
    assert answers(run("archive", "cat", "emails", "--since", "4000000000")) == []


def test_the_archive_is_summed_up(run: Run, archived: Queue[Any]) -> None:
    found = answer(run("archive", "query", "emails"))
    total = found["total"]
    assert (total["count"], total["completed"], total["failed"], total["cancelled"]) == (5, 3, 1, 1)
    assert sum(hour["count"] for hour in found["hours"]) == 5
    (failure,) = found["failures"]
    assert (failure["error"], failure["count"], failure["dead"]) == ("row <n> is bad", 1, 1)
    assert answer(run("archive", "query", "emails", "--kind", "a"))["total"]["count"] == 2


def test_the_archive_on_a_terminal(run: Run, archived: Queue[Any], terminal: None) -> None:
    assert "row 1 is bad" in run("archive", "cat", "emails", "--state", "failed").stdout
    text = run("archive", "query", "emails").stdout
    assert "all" in text
    assert "failures" in text
    assert "records" in run("archive", "ls", "emails").stdout


@pytest.mark.parametrize("command", ["archive ls", "archive cat", "doctor"])
def test_a_part_that_unpacks_without_end_is_named(
    run: Run, archived: Queue[Any], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = archived.store.list(List("archive/")).keys
    bomb = f"{part.rpartition('/')[0]}/00-ffffffffffff-000000000000.jsonl.gz"
    monkeypatch.setattr(limits, "ARCHIVE_PART_UNPACKED_BYTES_MAX", 100_000)
    archived.store.put(Put(bomb, gzip.compress(b" " * 1_000_000)))
    done = run(*command.split(), "emails")
    assert done.exit_code == 1
    assert bomb in done.stdout + done.stderr
    assert "unpacks to more than 100,000 bytes" in done.stdout + done.stderr
