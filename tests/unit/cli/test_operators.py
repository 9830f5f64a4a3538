"""The commands of operators: why, dead letters, purge, the archive, upkeep in a loop."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from osqueue import OsqueueError, Queue, Unavailable
from osqueue.cli import output as printed
from osqueue.cli.app import app
from osqueue.cli.output import Output, OutputFailed
from osqueue.cli.reap import ELECTION, election_of, keep_reaping, passes
from osqueue.core.intents import INTENTS
from osqueue.election.blocking import Election
from osqueue.stores.base import Delete, Failed, List, StoreReply, StoreRequest
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore

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
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person looks at the answers."""
    monkeypatch.setattr(printed, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "140")


@pytest.fixture
def q(address: str) -> Queue[Any]:
    return Queue.connect(address, "emails")  # type: ignore[no-any-return]


def answers(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def answer(result: Result) -> Any:
    (found,) = answers(result)
    return found


def dead(q: Queue[Any], *errors: str) -> list[str]:
    ids = [str(q.enqueue(error, max_attempts=1).job_id) for error in errors]
    for lease in q.claim(len(errors)):
        lease.fail(lease.payload)
    return ids


# ── Why ──────────────────────────────────────────────────────────────────────
def test_why_tells_the_story(run: Run, q: Queue[Any]) -> None:
    done = q.enqueue({"to": "ada"}, id="order-7")
    q.claim(worker="w1")[0].fail("mailbox full", retry_in=60)
    story = answer(run("why", "emails", "order-7"))
    assert (story["job_id"], story["state"], story["source"]) == (done.job_id, "failing", "queue")
    assert [step["what"].partition(":")[0] for step in story["steps"]][1:] == ["lease 1", "lease 1"]
    assert story["now"].startswith("waiting for retry until")
    assert story["next"].startswith("attempt 2 of 3")


def test_why_is_text_for_people_with_nothing_a_terminal_acts_upon(
    run: Run, q: Queue[Any], terminal: None
) -> None:
    (job_id,) = dead(q, "x")
    q.redrive()
    q.claim()[0].fail("\x1b[31mred\nand more")
    text = run("why", "emails", job_id).stdout
    assert "\\x1b[31mred and more" in text
    assert "\x1b" not in text
    assert text.startswith(f"job {job_id} of queue emails: failed\n")
    assert "\nnow:  a dead letter since" in text
    assert "\nnext: kept until" in text


def test_why_knows_what_only_the_archive_knows_and_says_what_nobody_knows(run: Run, q: Queue[Any]) -> None:
    (job_id,) = dead(q, "x")
    other = f"{job_id[:-3]}{int(job_id[-3], 16) ^ 1:x}{job_id[-2:]}"  # never its own
    result = run("why", "emails", other)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "neither the queue nor its archive knows it" in result.stderr
    assert "no queue 'mails'" in run("why", "mails", job_id).stderr


# ── One job ──────────────────────────────────────────────────────────────────
def test_a_job_is_shown_with_or_without_the_word(run: Run, q: Queue[Any]) -> None:
    done = q.enqueue(1, id="order-7")
    assert answer(run("job", "emails", "order-7")) == answer(run("job", "show", "emails", str(done.job_id)))
    assert run("job").exit_code == 2 or "Usage" in run("job").stdout
    assert "show" in run("job", "--help").stdout


def test_a_result_is_read_and_kept_longer(run: Run, q: Queue[Any]) -> None:
    done = q.enqueue(1, result_ttl=60)
    result = run("job", "result", "emails", str(done.job_id))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: not_finished:")
    q.claim()[0].complete({"sent": True})
    assert answer(run("job", "result", "emails", str(done.job_id))) == {"sent": True}
    told = answer(run("job", "ttl", "emails", str(done.job_id), "2d"))
    assert told == {"job_id": done.job_id, "result_ttl": 172_800}
    found = q.status(str(done.job_id))
    assert found is not None
    assert found.expires_at is not None
    assert found.finished_at is not None
    assert (found.expires_at - found.finished_at).days == 2
    assert run("job", "ttl", "emails", str(done.job_id), "31d").exit_code == 2
    assert "no queue 'mails'" in run("job", "result", "mails", "x").stderr


def test_a_job_is_purged_only_when_it_is_meant(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1, id="order-7")
    result = run("job", "purge", "emails", "order-7")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    told = answer(run("job", "purge", "emails", "order-7", "--yes"))
    assert (told["purged"], told["cancelled"], told["ids"], told["left"]) == (1, 1, 1, [])
    assert q.status("order-7") is None
    assert run("job", "purge", "emails", "order-7", "--yes").exit_code == 1
    q.enqueue(1, id="order-8")
    q.claim()
    assert run("job", "purge", "emails", "order-8", "--yes").stderr.startswith("error: conflict:")


# ── Dead letters ─────────────────────────────────────────────────────────────
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


# ── The archive ──────────────────────────────────────────────────────────────
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


# ── Upkeep in a loop ─────────────────────────────────────────────────────────
class After:
    """A stop that comes after some pauses; each may do something."""

    def __init__(self, pauses: int, then: Callable[[int], object] = lambda count: None) -> None:
        self.left = pauses
        self.paused: list[float] = []
        self.then = then

    def is_set(self) -> bool:
        return self.left <= 0

    def wait(self, timeout: float) -> bool:
        self.left -= 1
        self.paused.append(timeout)
        self.then(len(self.paused))
        return self.is_set()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


def test_a_loop_reaps_until_it_is_stopped_and_tells_only_of_what_it_did(
    store: CountingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    q: Queue[Any] = Queue(store, "emails")
    q.enqueue(1)
    q.claim()[0].complete()
    stop = After(3)
    election = election_of(store, None, 60)
    keep_reaping(Output(), election, lambda: passes(store, None, 5), 60, stop)
    assert stop.paused == [60, 60, 60]
    (told,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told["queue"], told["archived"]) == ("emails", 1)
    assert not election.is_leader


def test_of_two_loops_one_works_and_the_other_takes_over_when_it_ends(store: CountingStore) -> None:
    first = election_of(store, None, 60)
    assert first.campaign() == "elected"
    done: list[int] = []

    def one_pass() -> Iterator[tuple[str, dict[str, Any] | OsqueueError]]:
        done.append(1)
        yield from ()

    stop = After(4, lambda count: first.resign() if count == 2 else None)
    keep_reaping(Output(), election_of(store, None, 60), one_pass, 60, stop)
    assert stop.paused == [20.0, 20.0, 60, 60]
    assert len(done) == 2


def test_loops_over_different_queues_do_not_wait_for_each_other(store: CountingStore) -> None:
    names = {election_of(store, queue, 60).name for queue in (None, "a", "b" * 64)}
    assert len(names) == 3
    assert ELECTION in names


def test_trouble_is_told_once_and_passes(store: CountingStore, capsys: pytest.CaptureFixture[str]) -> None:
    class Troubled(Election):
        calls = 0

        def lead(self, timeout: float | None = None) -> Any:
            Troubled.calls += 1
            if Troubled.calls < 4:
                raise Unavailable("the store is away.")
            return super().lead(timeout)

    def one_pass() -> Iterator[tuple[str, dict[str, Any] | OsqueueError]]:
        yield "emails", Unavailable("no answer.")

    keep_reaping(Output(), Troubled(store, "x", stale_after=600), one_pass, 9, After(4))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["error: unavailable: the store is away.", "error: unavailable: queue emails: no answer."]


def test_trouble_that_only_a_change_can_mend_ends_the_loop(store: CountingStore) -> None:
    class Refused(Election):
        def lead(self, timeout: float | None = None) -> Any:
            raise Unavailable("no such bucket.", permanent=True)

    with pytest.raises(Unavailable):
        keep_reaping(Output(), Refused(store, "x"), lambda: iter(()), 9, After(4))


@pytest.mark.parametrize("every", ["0.5", "2d"])
def test_a_pace_that_makes_no_sense_is_refused(run: Run, every: str) -> None:
    result = run("reap", "--every", every)
    assert result.exit_code == 2
    assert "--every" in result.stderr


@pytest.mark.parametrize("trouble", [OutputFailed("standard output takes no answer."), BrokenPipeError()])
def test_a_loop_goes_on_when_nobody_can_be_told_what_it_did(
    store: CountingStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    trouble: Exception,
) -> None:
    def full(*args: Any) -> None:
        raise trouble

    monkeypatch.setattr(Output, "document", full)
    q: Queue[Any] = Queue(store, "emails")

    def work(count: int = 0) -> None:
        q.enqueue(1)
        q.claim()[0].complete()

    work()
    stop = After(3, work)
    keep_reaping(Output(), election_of(store, None, 60), lambda: passes(store, None, 5), 60, stop)
    assert stop.paused == [60, 60, 60]
    assert capsys.readouterr().err.count("error: output:") == 3


# ── Bench ────────────────────────────────────────────────────────────────────
def test_a_bench_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    assert answers(run("bench", "--jobs", "40", "--payload-bytes", "2000", "--seconds", "5"))
    left = list((tmp_path / "jobs").rglob("osqueue-bench-*"))
    assert [path for folder in left for path in (folder, *folder.rglob("*")) if path.is_file()] == []


@pytest.mark.parametrize("refused", [Delete, List])
def test_a_bench_that_may_not_delete_ends_and_says_what_it_left(
    run: Run, monkeypatch: pytest.MonkeyPatch, refused: type[StoreRequest]
) -> None:
    asked: list[StoreRequest] = []

    def commits(request: StoreRequest) -> bool:
        """Does it belong to a commit? After half a second of them, one looks for announced requests."""
        return isinstance(request, List) and request.prefix.startswith(INTENTS)

    def perform(self: Any, request: StoreRequest) -> StoreReply:
        if isinstance(request, refused) and not commits(request):
            asked.append(request)
            assert len(asked) < 100, "it goes on and on"
            return Failed(Unavailable("s3:DeleteObject is refused", permanent=True))
        return real(self, request)

    real = CountingStore.perform
    monkeypatch.setattr(CountingStore, "perform", perform)
    result = run("bench", "--jobs", "5", "--seconds", "5")
    assert answers(result)
    assert "the bench's queue osqueue-bench-" in result.stderr
    assert "could not be removed: s3:DeleteObject is refused" in result.stderr
