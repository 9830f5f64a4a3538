"""What is lost is called lost, and stands in nobody else's way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from osqueue import Damaged, Queue
from osqueue.cli.app import app

BIG = "x" * 3_000


def lose(folder: Path, what: str) -> None:
    (found,) = folder.glob(f"*/mail/0/{what}/*")
    found.unlink()


def test_a_lost_result_is_damage_and_no_job_that_moved_on(tmp_path: Path) -> None:
    q: Queue[Any] = Queue.connect(f"file://{tmp_path}", "mail")
    job = str(q.enqueue(1, id="a").job_id)
    q.claim()[0].complete(BIG)
    lose(tmp_path, "bodies")
    for name in (job, "a"):
        with pytest.raises(Damaged, match="its result is lost"):
            q.result(name)


def test_a_claim_from_the_shell_goes_on_past_a_lost_payload(tmp_path: Path) -> None:
    address = f"file://{tmp_path}"
    q: Queue[Any] = Queue.connect(address, "mail")
    for payload in (1, BIG, 3):
        q.enqueue(payload, max_attempts=1)
    lose(tmp_path, "bodies")
    claimed = CliRunner().invoke(app, ["claim", address, "mail", "--limit", "10"])
    lines = [json.loads(line) for line in claimed.stdout.splitlines()]
    assert [each["payload"] for each in lines] == [1, None, 3]
    assert "error" in lines[1]
    CliRunner().invoke(app, ["complete", address, "mail"], input=claimed.stdout)
    stats = q.stats()
    assert (stats["counters"]["completed"], stats["failed"]) == (2, 1)


def test_a_head_that_was_begun_anew_is_older_than_its_backup(tmp_path: Path) -> None:
    address = f"file://{tmp_path}"
    q: Queue[Any] = Queue.connect(address, "mail")
    for payload in range(5):
        q.enqueue(payload)
    q.reap()
    (head,) = tmp_path.glob("*/mail/0/head")
    head.unlink()
    fresh: Queue[Any] = Queue.connect(address, "mail")
    fresh.enqueue("after")
    told = CliRunner().invoke(app, ["doctor", address, "mail"])
    assert told.exit_code != 0
    assert "lost and made again" in told.output


def test_methods_are_called_as_their_users_call_them() -> None:
    assert Queue.enqueue.__name__ == "enqueue"


def test_a_stray_file_among_the_registered_queues_stops_no_reap(tmp_path: Path) -> None:
    address = f"file://{tmp_path}"
    q: Queue[Any] = Queue.connect(address, "mail")
    q.enqueue(1)
    (tmp_path / "queues" / "BAD").write_text("?")
    assert CliRunner().invoke(app, ["reap", address]).exit_code == 0
    assert "mail" in CliRunner().invoke(app, ["queue", "ls", address]).output
