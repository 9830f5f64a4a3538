"""What workers left in the store: read whatever it is, and removed once it is old."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.core.encoding import encode, frame
from osqueue.model.worker import WorkerEntry
from osqueue.objects import worker_registry
from osqueue.objects.worker_registry import KEPT_MS, MAGIC, folder_of
from osqueue.stores.base import DeleteIfMatch, List, Put
from osqueue.stores.memory import MemoryStore
from tests.support.stepping import Call

FOLDER = folder_of("mail")


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def write(q: Queue[Any], worker_id: str, **entry: Any) -> None:
    q._run(worker_registry.write("mail", worker_id, WorkerEntry(**{"name": "mailer", **entry})))


def names(store: MemoryStore) -> list[str]:
    return [key.removeprefix(FOLDER) for key in store.list(List(FOLDER)).keys]


def test_what_was_written_is_read_with_the_stores_time(q: Queue[Any], machine: Any) -> None:
    write(q, "w-1", busy=3, kinds=["a"], draining=True)
    (found,) = q._run(worker_registry.entries("mail"))
    assert (found.id, found.seen_ms) == ("w-1", machine.now_ms())
    assert found.entry == WorkerEntry(name="mailer", busy=3, kinds=["a"], draining=True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"something else",
        frame(b"OSQX", encode(WorkerEntry(name="x"))),
        frame(MAGIC, encode(WorkerEntry(name="x")))[:-1],
        frame(MAGIC, b"\x01"),
        frame(MAGIC, encode({"name": 7})),
        frame(MAGIC, encode({"name": "x", "uptime": 1e300})),
        frame(MAGIC, encode({"name": "x", "uptime": float("nan")})),
        frame(MAGIC, encode({"name": "\x1b[2J"})),
        MAGIC + b"\xff\xff" + frame(MAGIC, encode(WorkerEntry(name="x")))[6:],  # of a format to come
    ],
)
def test_an_entry_that_cannot_be_read_hides_no_other_and_is_removed_in_time(
    q: Queue[Any], store: MemoryStore, machine: Any, body: bytes
) -> None:
    store.put(Put(f"{FOLDER}bad", body))
    machine.advance(1)
    write(q, "w-1")
    assert [each.id for each in q._run(worker_registry.entries("mail"))] == ["w-1"]
    machine.advance(KEPT_MS / 1000)
    assert q._run(worker_registry.forget("mail", machine.now_ms())) == 1
    assert names(store) == ["w-1"]


def test_a_later_release_may_say_more(q: Queue[Any], store: MemoryStore) -> None:
    store.put(Put(f"{FOLDER}w-1", frame(MAGIC, encode({"name": "x", "mood": "fine"}))))
    (found,) = q._run(worker_registry.entries("mail"))
    assert found.entry.name == "x"


def test_an_entry_is_kept_for_an_hour_after_the_last_word(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    write(q, "w-1")
    machine.advance(KEPT_MS / 1000)
    assert q._run(worker_registry.forget("mail", machine.now_ms())) == 0
    machine.advance(0.001)
    assert q._run(worker_registry.forget("mail", machine.now_ms())) == 1
    assert names(store) == []


def test_a_worker_that_was_frozen_and_speaks_while_it_is_removed_stays(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    write(q, "w-1")
    machine.advance(2 * KEPT_MS / 1000)
    call: Call = Call(q, worker_registry.forget("mail", machine.now_ms()))
    call.until(lambda request: isinstance(request, DeleteIfMatch))
    write(q, "w-1", uptime=7_200.0)
    assert call.finish() == 0
    assert names(store) == ["w-1"]


def test_more_entries_than_one_list_holds(q: Queue[Any], machine: Any) -> None:
    for at in range(1_001):
        write(q, f"w-{at:04}")
    assert len(q._run(worker_registry.entries("mail"))) == 1_001
    machine.advance(2 * KEPT_MS / 1000)
    assert q._run(worker_registry.forget("mail", machine.now_ms())) == 1_001
