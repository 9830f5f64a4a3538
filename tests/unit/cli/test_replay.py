"""``osqueue archive replay``: archived jobs come back, once, with what they were enqueued with."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from osqueue import Queue, Unavailable, limits
from osqueue.bulk import replay as replaying
from osqueue.bulk.writer import BulkWriter
from tests.support.commands import Run, answer

REPLAY = ("archive", "replay", "emails", "--into", "again")


@pytest.fixture
def again(address: str) -> Queue[Any]:
    return Queue.connect(address, "again")  # type: ignore[no-any-return]


@pytest.fixture
def archived(q: Queue[Any]) -> list[str]:
    """The ids of six jobs in the archive: four completed, one dead, one cancelled."""
    q.configure(archive_payloads=True)
    jobs = [q.enqueue({"n": at}, kind="a" if at else None, priority=at, id=f"id{at}") for at in range(4)]
    for lease in q.claim(4):
        lease.complete("done")
    jobs.append(q.enqueue("x" * 9_000, max_attempts=1, headers={"to": "ada"}, run_within=60, result_ttl=90))
    q.claim()[0].fail("row 1 is bad")
    jobs.append(q.enqueue(5, delay=60))
    q.cancel(str(jobs[-1].job_id))
    q.reap()
    return [str(each.job_id) for each in jobs]


def waiting(q: Queue[Any]) -> dict[str, Any]:
    """The payloads of the jobs that wait, by id."""
    found, _ = q.jobs(limit=1_000)
    return {each.job_id: q.status(each.job_id, include=["payload"]).payload for each in found}  # type: ignore[union-attr]


# ── What comes back ──────────────────────────────────────────────────────────
def test_all_jobs_of_the_archive_wait_again_under_new_ids(
    run: Run, again: Queue[Any], archived: list[str]
) -> None:
    told = answer(run(*REPLAY))
    assert (told["jobs"], told["enqueued"], told["repeated"], told["without_payload"]) == (6, 6, 0, 0)
    found = waiting(again)
    assert not found.keys() & set(archived)
    payloads = [json.dumps(each) for each in found.values()]
    assert sorted(payloads) == sorted(map(json.dumps, [*({"n": at} for at in range(4)), "x" * 9_000, 5]))


def test_a_job_keeps_its_options_and_neither_its_id_nor_its_delay(
    run: Run, again: Queue[Any], archived: list[str]
) -> None:
    assert answer(run(*REPLAY, "--state", "failed"))["enqueued"] == 1
    (job,), _ = again.jobs()
    assert (job.state, job.id, job.max_attempts, job.headers) == ("queued", None, 1, {"to": "ada"})
    assert (job.run_within, job.priority) == (60, limits.PRIORITY_DEFAULT)
    (lease,) = again.claim()
    lease.complete()
    assert again.status(job.job_id).expires_at - lease.enqueued_at < timedelta(seconds=120)  # type: ignore[union-attr,operator]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--kind", "a"), 3),
        (("--state", "completed"), 4),
        (("--state", "completed", "--kind", "a"), 3),
        (("--since", "4000000000"), 0),
        (("--until", "5"), 0),
    ],
)
def test_kind_state_and_time_choose(
    run: Run, again: Queue[Any], archived: list[str], options: tuple[str, ...], count: int
) -> None:
    assert answer(run(*REPLAY, "--dry-run", *options))["would_enqueue"] == count
    assert waiting(again) == {}
    assert answer(run(*REPLAY, *options))["enqueued"] == count
    assert len(waiting(again)) == count


def test_a_queue_may_get_its_own_jobs_again(run: Run, q: Queue[Any], archived: list[str]) -> None:
    assert answer(run("archive", "replay", "emails", "--into", "emails", "--kind", "a"))["enqueued"] == 3
    assert q.stats()["queued"] == 3


def test_a_job_with_several_records_comes_back_once(run: Run, q: Queue[Any], again: Queue[Any]) -> None:
    q.configure(archive_payloads=True)
    q.enqueue("twice")
    for end in ("fail", "complete"):
        (lease,) = q.claim()
        lease.complete() if end == "complete" else lease.fail("no", retry=False)
        q.reap()
        q.redrive()
    assert answer(run(*REPLAY))["enqueued"] == 1
    assert list(waiting(again).values()) == ["twice"]


def test_the_record_that_has_the_payload_is_the_one_that_counts(
    run: Run, q: Queue[Any], again: Queue[Any]
) -> None:
    q.enqueue("first without")
    q.claim()[0].fail("no", retry=False)
    q.reap()
    q.configure(archive_payloads=True)
    q.redrive()
    for end in ("fail", "complete"):
        (lease,) = q.claim()
        lease.complete() if end == "complete" else lease.fail("no", retry=False)
        q.reap()
        q.redrive()
    told = answer(run(*REPLAY))
    assert (told["jobs"], told["without_payload"], told["enqueued"]) == (1, 0, 1)
    assert list(waiting(again).values()) == ["first without"]


def test_the_archive_of_a_queue_that_was_removed_comes_back(
    run: Run, again: Queue[Any], archived: list[str]
) -> None:
    answer(run("queue", "rm", "emails", "--yes"))
    assert answer(run(*REPLAY, "--dry-run"))["would_enqueue"] == 6
    assert answer(run(*REPLAY))["enqueued"] == 6
    assert len(waiting(again)) == 6


def test_a_removed_queue_whose_archive_has_no_payloads_says_so(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    q.claim()[0].complete()
    q.reap()
    answer(run("queue", "rm", "emails", "--yes"))
    ended = run(*REPLAY)
    assert ended.exit_code == 2
    assert "1 of 1 jobs have no payload in the archive" in ended.stderr
    assert "the queue is gone" in ended.stderr


def test_other_serialisers_come_back_as_they_were(run: Run, address: str) -> None:
    q: Queue[Any] = Queue.connect(address, "emails", serializer="msgpack")
    q.configure(archive_payloads=True)
    q.enqueue(b"\x00\xff")
    q.enqueue(b"\x01\xff", id="named")
    for lease in q.claim(2):
        lease.complete()
    q.reap()
    assert answer(run(*REPLAY, "--keep-ids"))["enqueued"] == 2
    again: Queue[Any] = Queue.connect(address, "again", serializer="msgpack")
    assert {lease.payload for lease in again.claim(2)} == {b"\x00\xff", b"\x01\xff"}


def test_a_queue_of_several_shards_gets_them_all(run: Run, again: Queue[Any], archived: list[str]) -> None:
    again.configure(shards=3)
    assert answer(run(*REPLAY))["enqueued"] == 6
    assert len(waiting(again)) == 6


# ── Once ─────────────────────────────────────────────────────────────────────
def test_a_second_run_adds_nothing_and_says_so(run: Run, again: Queue[Any], archived: list[str]) -> None:
    first = answer(run(*REPLAY))
    second = answer(run(*REPLAY))
    assert (second["enqueued"], second["repeated"], second["batch_id"]) == (0, 6, first["batch_id"])
    assert len(waiting(again)) == 6


def test_other_options_and_other_batch_ids_are_other_replays(
    run: Run, again: Queue[Any], archived: list[str]
) -> None:
    assert answer(run(*REPLAY, "--kind", "a"))["enqueued"] == 3
    assert answer(run(*REPLAY))["enqueued"] == 6
    assert answer(run(*REPLAY, "--keep-ids"))["enqueued"] == 6
    told = answer(run(*REPLAY, "--batch-id", "monday"))
    assert (told["enqueued"], told["batch_id"]) == (6, "monday")
    assert run(*REPLAY, "--batch-id", "").exit_code == 2


def test_a_run_that_died_before_it_was_attached_left_nothing_and_the_next_makes_it(
    run: Run, again: Queue[Any], archived: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(BulkWriter, "attach", _dies)
        assert run(*REPLAY).exit_code == 3
    assert waiting(again) == {}
    assert answer(run(*REPLAY))["enqueued"] == 6


def test_a_run_that_died_once_it_was_attached_is_known_by_the_next(
    run: Run, again: Queue[Any], archived: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = BulkWriter.attach

    def attach(self: BulkWriter, *args: Any) -> Any:
        real(self, *args)
        _dies()

    with monkeypatch.context() as patched:
        patched.setattr(BulkWriter, "attach", attach)
        assert run(*REPLAY).exit_code == 3
    assert answer(run(*REPLAY))["repeated"] == 6
    assert len(waiting(again)) == 6


def _dies(*args: Any) -> Any:
    raise Unavailable("no answer")


# ── Under the clients' ids ───────────────────────────────────────────────────
def test_ids_are_kept_where_they_are_free(run: Run, again: Queue[Any], archived: list[str]) -> None:
    taken = again.enqueue("mine", id="id2").job_id
    told = answer(run(*REPLAY, "--keep-ids"))
    assert (told["enqueued"], told["repeated"]) == (5, 1)
    found = {each.id: each for each in again.jobs(limit=100)[0]}
    assert set(found) == {"id0", "id1", "id2", "id3", None}
    assert found["id2"].job_id == taken
    assert (found["id3"].priority, found["id3"].kind) == (3, "a")
    again_told = answer(run(*REPLAY, "--keep-ids"))
    assert (again_told["enqueued"], again_told["repeated"]) == (0, 6)
    assert len(waiting(again)) == 6


@pytest.mark.parametrize("options", [(), ("--until", "4000000000")])
def test_jobs_that_fail_again_beside_a_replay_into_their_own_queue_are_not_met_by_it_again(
    run: Run, q: Queue[Any], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    q.configure(archive_payloads=True)
    for at in range(3):
        q.enqueue(at, id=f"id{at}", max_attempts=1)
    _fail_all(q)
    monkeypatch.setattr(replaying, "GROUP_BYTES", 1)  # so that each job is a request of its own
    real = Queue.enqueue_many
    enqueued: list[str] = []

    def enqueue_many(self: Queue[Any], items: list[dict[str, Any]]) -> Any:
        enqueued.extend(each["id"] for each in items)
        assert len(enqueued) < 10, "it does not end"
        answers = real(self, items)
        _fail_all(q)
        return answers

    monkeypatch.setattr(Queue, "enqueue_many", enqueue_many)
    told = answer(run("archive", "replay", "emails", "--into", "emails", "--keep-ids", *options))
    assert (told["enqueued"], sorted(enqueued)) == (3, ["id0", "id1", "id2"])


def _fail_all(q: Queue[Any]) -> None:
    """A worker and a reaper at work: whatever waits fails, and its record goes to the archive."""
    for lease in q.claim(10):
        lease.fail("no")
    q.reap()


# ── Without payloads ─────────────────────────────────────────────────────────
def test_an_archive_without_payloads_names_the_setting(run: Run, q: Queue[Any], again: Queue[Any]) -> None:
    q.enqueue(1)
    q.claim()[0].complete()
    q.reap()
    ended = run(*REPLAY)
    assert ended.exit_code == 2
    assert "1 of 1 jobs have no payload in the archive (none of them has one)" in ended.stderr
    assert "queue configure ADDRESS emails --archive-payloads" in ended.stderr
    counted = run(*REPLAY, "--dry-run")
    assert (answer(counted)["without_payload"], answer(counted)["would_enqueue"]) == (1, 0)
    assert "archive_payloads is off" in counted.stderr
    assert waiting(again) == {}


def test_it_says_from_when_on_there_are_payloads_and_others_may_be_left_out(
    run: Run, q: Queue[Any], again: Queue[Any]
) -> None:
    q.enqueue("early")
    q.claim()[0].complete()
    q.configure(archive_payloads=True)
    q.enqueue("late")
    q.claim()[0].complete()
    q.reap()
    ended = run(*REPLAY)
    late = max(q.history(), key=lambda each: each.finished_at)  # type: ignore[arg-type,return-value]
    assert late.finished_at is not None
    assert f"the first one that has one finished at {late.finished_at.isoformat()}" in ended.stderr
    assert "archive_payloads is on now" in ended.stderr
    told = answer(run(*REPLAY, "--skip-missing"))
    assert (told["jobs"], told["without_payload"], told["enqueued"]) == (2, 1, 1)
    assert list(waiting(again).values()) == ["late"]


def test_what_is_asked_wrongly_is_refused(run: Run, archived: list[str]) -> None:
    assert run("archive", "replay", "emails").exit_code == 2
    assert run("archive", "replay", "mails", "--into", "again").exit_code == 1
    assert run(*REPLAY, "--since", "5", "--until", "4").exit_code == 2
    assert run("archive", "replay", "emails", "--into", "a/b").exit_code == 2


# ── Groups ───────────────────────────────────────────────────────────────────
def test_groups_hold_as_many_as_one_request_takes(
    q: Queue[Any], archived: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(replaying.select(q.store, replaying.ReplaySelection("emails")))
    assert [len(each) for each in replaying.groups(found)] == [6]
    monkeypatch.setattr(replaying, "GROUP_BYTES", 20)
    assert max(len(each) for each in replaying.groups(found)) <= 3
    assert [record for group in replaying.groups(found) for record in group] == found
    assert list(replaying.groups([])) == []
