"""``osqueue enqueue`` under ids of one's own, and waiting for what becomes of the job."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from osqueue import Queue
from osqueue.cli import output
from osqueue.cli.app import app

PATIENCE = 30  # seconds that a test waits for what must come

Run = Callable[..., Result]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


@pytest.fixture
def run(address: str) -> Run:
    def invoke(*args: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, args, input=stdin, env={"OSQUEUE_ADDRESS": address})

    return invoke


@pytest.fixture
def q(address: str) -> Queue[Any]:
    return Queue.connect(address, "emails")  # type: ignore[no-any-return]


def answer(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    return json.loads(line)


def error(result: Result) -> Any:
    return json.loads(result.stderr)["error"]


@contextmanager
def at_work(q: Queue[Any], act: Callable[[Any], object]) -> Iterator[None]:
    """Somebody who does this to the next job."""
    worker = threading.Thread(target=lambda: act(q.claim(wait=PATIENCE)[0]))
    worker.start()
    yield
    worker.join(PATIENCE)
    assert not worker.is_alive()


# ── Ids ──────────────────────────────────────────────────────────────────────
def test_a_second_job_under_an_id_is_a_duplicate_and_a_finished_one_answers(run: Run, q: Queue[Any]) -> None:
    first = answer(run("enqueue", "emails", "1", "--id", "order-7"))
    assert (first["status"], first["state"]) == ("queued", "queued")
    again = answer(run("enqueue", "emails", "2", "--id", "order-7"))
    assert again == {"status": "duplicate", "job_id": first["job_id"], "state": "queued"}
    q.claim()[0].complete({"sent": True})
    assert answer(run("enqueue", "emails", "3", "--id", "order-7")) == {
        "status": "completed",
        "job_id": first["job_id"],
        "state": "completed",
        "result": {"sent": True},
    }


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--id", "a"), "--id is for one job"),
        (("--wait", "5s"), "--wait is for one job"),
        (("1", "--id", ""), "1 to 256 printable characters"),
        (("1", "--wait", "2d"), "wait: "),
        (("1", "--wait", "long"), "no duration"),
        (("1", "--result-ttl", "31d"), "result_ttl: "),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_enqueued(
    run: Run, tmp_path: Path, args: tuple[str, ...], says: str
) -> None:
    result = run("enqueue", "emails", *args, stdin="1\n")
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "jobs/queues").exists()


# ── Waiting ──────────────────────────────────────────────────────────────────
def test_who_waits_gets_the_result(run: Run, q: Queue[Any]) -> None:
    with at_work(q, lambda lease: lease.complete({"to": lease.payload})):
        found = run("enqueue", "emails", '"ada"', "--wait", str(PATIENCE), "--result-ttl", "2h")
    assert answer(found) == {"to": "ada"}
    ((job,), _) = q.jobs(state="completed")
    assert (job.expires_at - job.finished_at).total_seconds() == 7200


def test_a_kept_result_answers_who_waits_at_once(run: Run, q: Queue[Any]) -> None:
    run("enqueue", "emails", "1", "--id", "a")
    q.claim()[0].complete([1, "zwei"])
    assert answer(run("enqueue", "emails", "1", "--id", "a", "--wait", "0")) == [1, "zwei"]


def test_a_failure_is_told_with_its_job_and_exit_code_1(run: Run, q: Queue[Any]) -> None:
    with at_work(q, lambda lease: lease.fail(ValueError("no mailbox"))):
        result = run("enqueue", "emails", "1", "--max-attempts", "1", "--wait", str(PATIENCE), "--json")
    assert result.exit_code == 1
    told = error(result)
    assert (told["code"], told["type"]) == ("job_failed", "ValueError")
    assert "no mailbox" in told["message"]
    assert q.status(told["job_id"]).state == "failed"  # type: ignore[union-attr]


def test_a_cancel_is_told_with_exit_code_1(run: Run, q: Queue[Any]) -> None:
    with at_work(q, lambda lease: lease.cancel("not wanted")):
        result = run("enqueue", "emails", "1", "--wait", str(PATIENCE), "--json")
    assert (result.exit_code, error(result)["code"]) == (1, "job_cancelled")


def test_patience_that_ends_is_told_with_the_job_that_goes_on_and_exit_code_3(
    run: Run, q: Queue[Any]
) -> None:
    result = run("enqueue", "emails", "1", "--wait", "0", "--json")
    assert result.exit_code == 3
    told = error(result)
    assert told["code"] == "wait_timeout"
    assert q.status(told["job_id"]).state == "queued"  # type: ignore[union-attr]


# ── Many lines ───────────────────────────────────────────────────────────────
@pytest.fixture
def some(run: Run, q: Queue[Any]) -> str:
    """Lines of which one is new, two are there already, one is done and two are refused."""
    q.enqueue(1, id="there")
    q.enqueue(1, id="done", priority=0)
    q.claim()[0].complete()
    items: list[dict[str, Any]] = [{"payload": 1, "id": each} for each in ("new", "there", "there", "done")]
    items += [{"payload": 1, "priority": 99}, {"payload": 1, "id": ""}]
    return "\n".join(map(json.dumps, items))


def test_jobs_that_were_there_already_are_counted_apart(run: Run, some: str) -> None:
    assert answer(run("enqueue", "emails", "--items", "--skip-bad", stdin=some)) == {
        "queue": "emails",
        "enqueued": 1,
        "queued": 1,
        "scheduled": 0,
        "duplicate": 2,
        "completed": 1,
        "rejected": 2,
    }


def test_jobs_that_were_there_already_are_counted_apart_on_a_terminal(
    run: Run, some: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.Output, "tables", True)
    shown = run("enqueue", "emails", "--items", "--skip-bad", stdin=some).stdout
    counts = dict(line.split() for line in shown.splitlines() if line.strip())
    assert counts == {
        "queue": "emails",
        "enqueued": "1",
        "queued": "1",
        "scheduled": "0",
        "duplicate": "2",
        "completed": "1",
        "rejected": "2",
    }


def test_every_line_tells_what_became_of_it(run: Run, some: str) -> None:
    result = run("enqueue", "emails", "--items", "--skip-bad", "--ids", stdin=some)
    assert [json.loads(line)["status"] for line in result.stdout.splitlines()] == [
        *("queued", "duplicate", "duplicate", "completed")
    ]


def test_a_kept_result_that_cannot_be_read_is_no_refused_line(
    run: Run, q: Queue[Any], tmp_path: Path
) -> None:
    q.enqueue(1, id="a")
    q.claim()[0].complete("x" * 5_000)
    for body in (tmp_path / "jobs").rglob("bodies/*"):
        body.unlink()
    found = answer(run("enqueue", "emails", "--items", stdin='{"payload": 1, "id": "a"}'))
    assert (found["completed"], found["rejected"]) == (1, 0)
