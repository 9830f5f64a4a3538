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

from osqueue import Enqueued, OsqueueError, Queue, Throttled, Timeout, Unavailable, Unknown
from osqueue.cli import output
from osqueue.cli.app import app
from osqueue.stores.base import Failed, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.counting import CountingStore
from tests.support.patience import PATIENCE

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


def test_ctrl_c_while_it_waits_names_the_job_that_goes_on(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Queue, "_await", ctrl_c)
    result = run("enqueue", "emails", "1", "--wait", str(PATIENCE))
    ((job,), _) = q.jobs(state="queued")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.splitlines() == [
        f"The job is {job.job_id}.",
        "error: interrupted: stopped by Ctrl-C.",
    ]


def test_an_error_while_it_waits_names_the_job_that_goes_on(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: Any) -> None:
        raise Unavailable("the store refuses.", permanent=True)

    monkeypatch.setattr(Queue, "_await", refused)
    result = run("enqueue", "emails", "1", "--wait", str(PATIENCE), "--json")
    ((job,), _) = q.jobs(state="queued")
    assert (result.exit_code, result.stdout) == (3, "")
    assert error(result)["message"] == f"the store refuses. The job is {job.job_id}."


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


# ── Lines without an answer ──────────────────────────────────────────────────
QUEUED = Enqueued("queued", "a-job", "queued")
LATE = Timeout("no answer in time.")
UNSENT = Throttled("not sent: of the jobs before, no answer in time.")


def missed(error: OsqueueError) -> Enqueued:
    return Enqueued("rejected", None, error=error)


def stand_in(monkeypatch: pytest.MonkeyPatch, *results: Enqueued) -> None:
    monkeypatch.setattr(Queue, "enqueue_many", lambda self, jobs: list(results))


def jobs(*ids: str | None) -> str:
    return "\n".join(
        json.dumps({"payload": 1} if each is None else {"payload": 1, "id": each}) for each in ids
    )


def test_a_store_that_fails_between_two_commits_refuses_no_line(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines with ids go to the queue a thousand at a time, however many the command hands over."""
    lines = jobs(*(f"order-{at}" for at in range(2_500)))
    commits = 0

    def perform(self: Any, request: StoreRequest) -> StoreReply:
        nonlocal commits
        if isinstance(request, PutIfMatch | PutIfAbsent) and request.key.endswith("/head"):
            commits += 1
            if commits > 2:  # the first makes the head
                return Failed(Unavailable("the store is gone.", permanent=True))
        return real(self, request)

    real = CountingStore.perform
    with monkeypatch.context() as patch:
        patch.setattr(CountingStore, "perform", perform)
        result = run("enqueue", "emails", "--items", "--timeout", "1m", stdin=lines)
    enqueued = q.stats()["queued"]
    assert (result.exit_code, result.stdout, enqueued % 1_000) == (3, "", 0)
    assert f"Lines up to {enqueued:,} are enqueued, those up to 2,500 may be." in result.stderr
    assert f"Go on with --from-line {enqueued + 1}." in result.stderr
    assert "line 1" not in result.stderr
    again = run("enqueue", "emails", "--items", "--from-line", str(enqueued + 1), stdin=lines)
    assert answer(again)["rejected"] == 0
    assert q.stats()["queued"] == 2_500


@pytest.mark.parametrize(
    ("results", "code", "says"),
    [
        (
            [QUEUED, QUEUED, missed(LATE), missed(LATE), missed(UNSENT)],
            "timeout",
            "Lines up to 2 are enqueued, those up to 4 may be. Go on with --from-line 3.",
        ),
        (
            [QUEUED, *[missed(Unknown("nobody can tell."))] * 4],
            "unknown",
            "Lines up to 1 are enqueued, those up to 5 may be. Go on with --from-line 2.",
        ),
        (
            [QUEUED, *[missed(Throttled("too many calls (429)."))] * 4],
            "throttled",
            "Lines up to 1 are enqueued. Go on with --from-line 2.",
        ),
        (
            [missed(UNSENT)] * 5,
            "throttled",
            "No line is enqueued yet.",
        ),
        (
            [QUEUED, missed(LATE), QUEUED, QUEUED, QUEUED],
            "timeout",
            "Go on with --from-line 2. First take out what is enqueued, too, and has no id: 2 of the lines 3 to 5.",
        ),
    ],
)
def test_a_line_without_an_answer_ends_the_bulk_where_it_stands(
    run: Run, monkeypatch: pytest.MonkeyPatch, results: list[Enqueued], code: str, says: str
) -> None:
    stand_in(monkeypatch, *results)
    result = run("enqueue", "emails", "--items", stdin=jobs(None, None, None, "a", None))
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith(f"error: {code}: ")
    assert result.stderr.endswith(f"{says}\n")


def test_lines_that_were_refused_before_are_named_when_a_bulk_breaks_off(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Throttled("delay: too many delayed jobs are waiting.")
    stand_in(monkeypatch, QUEUED, missed(full), QUEUED, missed(LATE), missed(UNSENT))
    result = run("enqueue", "emails", "--ids", stdin="1\n2\n3\n4\n5\n")
    assert result.exit_code == 3
    assert [json.loads(line)["line"] for line in result.stdout.splitlines()] == [1, 2, 3]
    refused, broken = result.stderr.splitlines()
    assert refused == f"error: throttled: line 2: {full.message}"
    assert "Lines up to 3 are enqueued, but for the bad ones, those up to 4 may be." in broken


# ── Answers that nobody takes ────────────────────────────────────────────────
@pytest.mark.parametrize("ids", [True, False])
def test_a_bulk_whose_answer_cannot_be_printed_says_where_it_stands(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch, ids: bool
) -> None:
    def full(*args: Any) -> None:
        raise output.OutputFailed("standard output takes no answer.")

    monkeypatch.setattr(output.Output, "document", full)
    result = run("enqueue", "emails", *(["--ids"] if ids else []), stdin="1\n2\n3\n")
    assert result.exit_code == 4
    stands = "Lines up to 3 are enqueued. Go on with --from-line 4." if ids else "Of all lines 3 are enqueued"
    assert stands in result.stderr
    assert q.stats()["queued"] == 3


def test_a_result_that_cannot_be_printed_is_said_to_be_of_which_job(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise output.OutputFailed("standard output takes no answer.")

    job_id = q.enqueue(1, id="a").job_id
    q.claim()[0].complete(2)
    monkeypatch.setattr(output.Output, "document", full)
    result = run("enqueue", "emails", "1", "--id", "a", "--wait", "0")
    assert (result.exit_code, result.stdout) == (4, "")
    assert f"The job is {job_id}." in result.stderr
