"""Start deadlines, run-time limits and settings of kinds, as callers see them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import msgspec
import pytest

from osqueue import JobCancelled, Kind, Queue, Rejected, limits
from osqueue.bulk.writer import BulkWriter
from osqueue.commit.effects import Submit
from osqueue.commit.request_status import CommitResult
from osqueue.commit.retry import NOTHING_DONE, PART_DONE, before_commit
from osqueue.contract.admin_schemas import Settings
from osqueue.core.job_ops import JobSpec, record_of
from osqueue.core.ops import Code, Outcome
from osqueue.core.rows import BodyRef
from osqueue.core.settings import QueueSettings
from osqueue.core.state import State
from osqueue.errors import Unavailable
from osqueue.objects.lookup import JobLocation
from osqueue.server.flows import same_job
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "mail", machine=machine)


def pass_time(q: Queue[Any], machine: Any, seconds: float) -> None:
    """The head has to have seen it: another commit tells it."""
    machine.advance(seconds)
    q.enqueue("another", kind="other")


def test_a_job_that_was_not_started_in_time_is_cancelled_wherever_it_lies(
    q: Queue[Any], machine: Any
) -> None:
    job_id = q.enqueue(1, start_within=30).job_id or ""
    pass_time(q, machine, 31)
    job = q.status(job_id)
    assert job is not None
    assert job.state == "cancelled"
    assert job.start_by is not None
    assert job.payload_bytes == 1
    with pytest.raises(JobCancelled, match="not started by its deadline"):
        q.result(job_id)
    assert "not started by its deadline" in str(q.why(job_id))


def test_its_id_may_be_used_again_at_once(q: Queue[Any], machine: Any) -> None:
    first = q.enqueue(1, id="otp", start_within=30)
    assert q.enqueue(1, id="otp").status == "duplicate"
    pass_time(q, machine, 31)
    second = q.enqueue(2, id="otp", start_within=30)
    assert second.status == "queued"
    assert second.job_id != first.job_id
    leases = q.claim(10)
    assert [lease.payload for lease in leases] == ["another", 2]


def test_a_bulk_takes_the_settings_of_its_queue(q: Queue[Any]) -> None:
    q.configure(kinds={"send": Kind(priority=2, max_attempts=7, run_within=60)}, max_attempts=4)
    items = [
        {"payload": at, "kind": "send" if at % 2 else None} for at in range(limits.ITEMS_PER_REQUEST_MAX + 2)
    ]
    answers = q.enqueue_many(items)
    assert {answer.status for answer in answers} == {"queued"}
    first, *_ = q.claim(1)
    assert (first.kind, first.priority, first.max_attempts, first.run_within) == ("send", 2, 7, 60.0)
    other, *_ = q.claim(1, kinds=[""])
    assert (other.kind, other.max_attempts) == (None, 4)


def test_settings_of_kinds_are_told_and_dropped(q: Queue[Any]) -> None:
    q.configure(kinds={"send": Kind(max_attempts=7), "old": Kind(priority=1)}, shards=2)
    q.configure(kinds={"send": {"run_within": 60}, "old": None})
    assert q.stats()["settings"]["kinds"] == {"send": {"max_attempts": 7, "run_within": 60.0}}


def test_a_setting_of_a_kind_is_as_the_queue_says_again_where_it_is_none(q: Queue[Any]) -> None:
    own = {"max_attempts": 7, "run_within": 60.0, "max_running": 4, "rate": [5, 60.0], "burst": 2}
    q.configure(kinds={"send": own})
    q.configure(kinds={"send": Kind(max_attempts=None, burst=None, priority=1)})
    kept = {"priority": 1, "run_within": 60.0, "max_running": 4, "rate": [5, 60.0]}
    assert q.stats()["settings"]["kinds"] == {"send": kept}
    q.configure(kinds={"send": dict.fromkeys(kept)})
    assert q.stats()["settings"]["kinds"] == {}


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ("send", "kinds: 'send' is no mapping"),
        ({"send": 5}, "kinds: the settings of 'send' are 5"),
        ({"send": {"shards": 2}}, "kinds: 'send': shards: no such setting"),
        ({"send": Kind(max_attempts=0)}, "max_attempts: 0 is not"),
        ({5: Kind()}, "kinds: 5 is not 0 to"),
    ],
)
def test_what_is_wrong_is_named(q: Queue[Any], kinds: Any, words: str) -> None:
    with pytest.raises(Rejected) as caught:
        q.configure(kinds=kinds)
    assert words in str(caught.value)


def test_too_many_kinds_are_refused_with_a_remedy(q: Queue[Any]) -> None:
    q.configure(kinds={f"k{at}": Kind(priority=1) for at in range(limits.KINDS_MAX)})
    with pytest.raises(Rejected, match="Drop one"):
        q.configure(kinds={"more": Kind(priority=1)})


def test_why_tells_of_both_limits(q: Queue[Any], machine: Any) -> None:
    job_id = q.enqueue(1, start_within=600, run_within=45).job_id or ""
    assert "unless it starts by" in q.why(job_id)
    q.claim(lease=30)
    machine.advance(5)
    assert "its run-time limit of 45 s ends" in q.why(job_id)
    assert "front of the queue" in q.why(job_id)
    q.enqueue(2, run_within=20)
    q.claim(lease=30)
    second = q.jobs(state="processing")[0][-1].job_id
    assert "the attempt has failed" in q.why(second)


@pytest.mark.parametrize("payload", [b"1" * 8, BodyRef("bodies/1", 0, 8, crc32(b"1" * 8))])
def test_a_call_that_is_repeated_after_the_deadline_knows_its_job(payload: Any) -> None:
    new = JobSpec(bytes(16), payload, start_within_ms=5)
    location = JobLocation("queued", record_of(new, QueueSettings(), 10, 10, 0))
    late = location.at(State(bytes(16), 1, now_ms=16))
    assert (location.at(State(bytes(16), 1, now_ms=15)).state, late.state) == ("queued", "cancelled")
    assert same_job(JobSpec(bytes(16), b"1" * 8), late)
    assert not same_job(JobSpec(bytes(16), b"1" * 9), late)


def test_a_setting_that_no_kind_has_is_refused_by_the_api() -> None:
    with pytest.raises(msgspec.ValidationError, match="max_attemps"):
        msgspec.json.decode(b'{"kinds": {"send": {"max_attemps": 5}}}', type=Settings)


def test_a_claim_comes_past_any_number_of_late_jobs(q: Queue[Any], machine: Any) -> None:
    with limited({"DROPPED_PER_COMMIT_MAX": 3}):
        q.enqueue_many({"payload": at, "start_within": 1} for at in range(10))
        q.enqueue("fine")
        machine.advance(2)
        (lease,) = q.claim()
    assert lease.payload == "fine"


def test_a_bulk_goes_by_the_settings_as_they_are_now(machine: Any) -> None:
    store = MemoryStore(machine)
    mine: Queue[Any] = Queue(store, "mail", machine=machine)
    mine.enqueue("first", kind="other")
    Queue[Any](store, "mail", machine=machine).configure(kinds={"send": Kind(max_attempts=7)})
    mine.enqueue_many({"payload": at, "kind": "send"} for at in range(limits.ITEMS_PER_REQUEST_MAX + 1))
    (lease,) = mine.claim(kinds=["send"])
    assert lease.max_attempts == 7


def test_a_bulk_that_took_long_to_stage_is_not_late(machine: Any) -> None:
    store = MemoryStore(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    q.configure(start_within=60, kinds={"send": Kind(start_within=5)})
    bulks = BulkWriter(store, "mail", machine)
    stager = bulks.stager(bulks.plan(), 0)
    stager.add([JobSpec(key, b"1", kind="send") for key in stager.keys(3)])
    machine.advance(3_600)
    assert bulks.attach([stager.finish()]).jobs == 3
    assert len(q.claim(10)) == 3


def test_what_is_left_of_a_lease_knows_the_limit(q: Queue[Any], machine: Any) -> None:
    q.enqueue(1, run_within=20)
    (lease,) = q.claim(lease=30)
    assert lease.seconds_left <= 20
    machine.advance(10)
    lease.heartbeat()
    assert lease.seconds_left <= 10
    job = q.status(lease.job_id)
    assert job is not None
    assert job.expires_at == lease.expires_at


def test_a_late_job_is_not_run_now(q: Queue[Any], machine: Any) -> None:
    q.enqueue(1, id="otp", start_within=5)
    (lease,) = q.claim()
    lease.release(delay=60)
    machine.advance(6)
    q.configure(backoff_base=2)
    assert q.run_now("otp") == "cancelled"


def test_an_error_after_a_part_of_a_call_was_queued_does_not_state_that_nothing_was(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stage(shard: int) -> Iterator[Any]:
        """Stage once. Later the store is gone."""
        stages.append(shard)
        yield from ()
        return SimpleNamespace(bodies=bodies)

    def bodies(payloads: list[bytes]) -> Iterator[Any]:
        yield from ()
        if len(stages) > 1:
            raise before_commit(Unavailable("503 SlowDown", retry_after=7.0))
        return payloads

    stages: list[int] = []
    q.enqueue("first")
    flows: Any = q._flows
    monkeypatch.setattr(flows, "stage", stage)
    news = [JobSpec(key, b"x" * 2_000) for key in flows.keys.draw(0, 2)]
    flow = flows.commit_jobs(news, 0)
    assert isinstance(next(flow), Submit)
    with pytest.raises(Unavailable, match="503 SlowDown") as caught:
        flow.send(CommitResult((Outcome(((Code.QUEUED, 1), (Code.STALE, 1))),), 0))
    assert NOTHING_DONE not in caught.value.message
    assert PART_DONE in caught.value.message
    assert caught.value.retry_after == 7.0
