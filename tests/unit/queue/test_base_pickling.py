"""Public objects that are sent to other processes: opened there by the same address, with the same options."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from osqueue import AsyncPacer, AsyncQueue, NotSupported, Pacer, Queue
from osqueue.clock import MACHINE, Machine
from osqueue.election import AsyncElection, Election
from osqueue.queue.lease import Lease
from osqueue.stores.file import FileStore


class Reversed:
    """A serialiser of a caller's own."""

    name = "reversed"

    def dumps(self, value: Any) -> bytes:
        return str(value).encode()[::-1]

    def loads(self, data: bytes, type: Any) -> Any:
        return data[::-1].decode()


class Kept:
    """A sink."""

    name = "kept"

    def send(self, events: Any) -> None:
        pass


def sent(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}?fsync=off"


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_queue_arrives_with_its_options(kind: Any, address: str) -> None:
    q = kind.connect(
        address,
        "mail",
        serializer=Reversed(),
        result_serializer="msgpack",
        type=list[int],
        timeout=7,
        window=0.5,
        sinks=[Kept()],
    )
    there = sent(q)
    assert (type(there), there.name, there.store.place) == (kind, "mail", q.store.place)
    assert (there.timeout, there.window) == (7.0, 0.5)
    assert (there.codec.serializer.name, there.codec.payload_type) == ("reversed", list[int])
    assert there.codec.results.name == "msgpack"
    assert list(there.deliveries) == ["kept"]


def test_a_queue_sees_the_jobs_of_the_one_it_was_made_from(address: str) -> None:
    q = Queue[Any].connect(address, "mail", serializer=Reversed())
    q.enqueue("one")
    for other in (sent(q), copy.deepcopy(q), copy.copy(q)):
        assert other.enqueue("two").status == "queued"
    assert [each.payload for each in q.claim(9)] == ["one", "two", "two", "two"]


@pytest.mark.parametrize(
    "address", ["https://example.com/prod?auth=none", "lambda://osqueue-dev?region=eu-west-1"]
)
def test_a_queue_over_an_api_arrives(address: str) -> None:
    q = Queue[Any].connect(address, "mail", timeout=7)
    there = sent(q)
    assert (there.transport.place, there.timeout) == (q.transport.place, 7.0)


def test_a_relative_folder_is_the_same_one_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(Queue[Any].connect("file://jobs", "mail"))
    monkeypatch.chdir(os.sep)
    assert pickle.loads(data).store.place == ("file", os.path.realpath(tmp_path / "jobs"))  # noqa: S301


@pytest.mark.parametrize("kind", [Election, AsyncElection])
def test_a_candidate_arrives_without_its_leadership(kind: Any, address: str) -> None:
    there = sent(kind.connect(address, "reports", heartbeat=1, stale_after=5))
    assert (there.name, there.heartbeat, there.is_leader) == ("reports", 1.0, False)
    assert there.candidate == MACHINE.name()
    assert sent(kind.connect(address, "reports", "ada")).candidate == "ada"


@pytest.mark.parametrize("kind", [Pacer, AsyncPacer])
def test_a_pacer_arrives_and_a_reservation_does_not(kind: Any, address: str) -> None:
    pacer = kind.connect(address, "mail", timeout=7, grace=1)
    there = sent(pacer)
    assert (there.name, there.timeout, there._options["grace"]) == ("mail", 7.0, 1)
    if kind is Pacer:
        pacer.create(interval=1)
        with pytest.raises(NotSupported, match="reserve there"):
            pickle.dumps(pacer.reserve())


@pytest.mark.parametrize("address", ["memory://", "memory://name", ""])
def test_what_lives_in_one_process_is_refused_with_the_remedy(address: str, tmp_path: Path) -> None:
    q = Queue[Any].connect(address, "mail") if address else Queue[Any](FileStore(tmp_path), "mail")
    with pytest.raises(NotSupported, match="open it by an address"):
        pickle.dumps(q)


class Elsewhere(Machine):
    """A machine that was started later, and whose wall clock has gone on."""

    def __init__(self) -> None:
        self.monotonic_shift, self.passed = 0.0, 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return 1_000.0 + self.monotonic_shift + self.passed

    def now_ms(self) -> int:
        return 1_000_000 + round(self.passed * 1000)


def test_a_lease_arrives_with_the_time_that_it_has_left(address: str) -> None:
    q = Queue[Any].connect(address, "mail")
    q.enqueue({"to": "ada"})
    (lease,) = q.claim(lease=60)
    assert lease.payload == {"to": "ada"}
    there: Lease[Any] = sent(lease)
    assert (there.payload, there.job_id, there.token) == ({"to": "ada"}, lease.job_id, lease.token)
    assert 0 < there.seconds_left <= 60
    there.heartbeat()
    there.complete()


def test_the_way_of_a_lease_is_counted_by_the_wall_clock(address: str) -> None:
    q = Queue[Any].connect(address, "mail")
    q.enqueue(1)
    (lease,) = q.claim(lease=60)
    q.machine = machine = Elsewhere()
    lease._sent_at = lease._claimed_at = lease._given = 995.0
    assert lease.seconds_left == 55.0
    state = lease.__getstate__()
    machine.monotonic_shift, machine.passed = 5_000.0, 10.0
    there = object.__new__(type(lease))
    there.__setstate__(state)
    assert there.seconds_left == 45.0
