"""A call that takes another job's place, made again because its answer was lost: it does nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.server.app import Api
from osqueue.stores.memory import MemoryStore
from tests.support.caller import JOBS, Caller

REPLACE = {"on_duplicate": "replace"}


@pytest.fixture(params=[1, 4])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    store = MemoryStore()
    Queue(store, "mail").configure(shards=request.param)
    return store


@pytest.fixture
def caller(store: MemoryStore) -> Caller:
    return Caller(Api(store))


def body(caller: Caller, payload: int, **more: Any) -> dict[str, Any]:
    return {"payload": payload, "job_id": caller.key(), "id": "index-7", "unique": REPLACE, **more}


def payloads(store: MemoryStore) -> list[Any]:
    """What waits, taken."""
    return [lease.payload for lease in Queue(store, "mail").claim(10)]


def test_a_repeat_of_a_replacement_is_the_same_job(caller: Caller, store: MemoryStore) -> None:
    caller.post(JOBS, body(caller, 1))
    again = body(caller, 2)
    first, second = caller.post(JOBS, again).body, caller.post(JOBS, again).body
    assert (first["status"], second["status"]) == ("replaced", "replaced")
    assert first["job_id"] == second["job_id"]
    assert payloads(store) == [2]


def test_a_repeat_does_not_undo_what_replaced_it_since(caller: Caller, store: MemoryStore) -> None:
    one, two, three = (body(caller, at) for at in (1, 2, 3))
    for each in (one, two, three):
        caller.post(JOBS, each)
    newest = caller.get(f"{JOBS}/index-7").body["job_id"]
    assert [caller.post(JOBS, each).body["job_id"] for each in (one, two, one, three)] == [newest] * 4
    assert payloads(store) == [3]


def test_a_repeat_of_a_job_that_was_replaced_and_is_over_asks_for_no_new_one(
    caller: Caller, store: MemoryStore
) -> None:
    one, two = body(caller, 1), body(caller, 2)
    caller.post(JOBS, one)
    caller.post(JOBS, two)
    Queue(store, "mail").claim()[0].complete()
    assert caller.post(JOBS, two).body["state"] == "completed"
    assert payloads(store) == []


def test_nor_does_one_of_a_job_that_runs_by_now(caller: Caller, store: MemoryStore) -> None:
    one, two = body(caller, 1), body(caller, 2)
    caller.post(JOBS, one)
    caller.post(JOBS, two)
    Queue(store, "mail").claim()
    assert caller.post(JOBS, two).body["state"] == "processing"
    assert payloads(store) == []


def test_a_repeated_batch_replaces_once(caller: Caller, store: MemoryStore) -> None:
    batch = {"jobs": [body(caller, at, id=f"index-{at % 3}") for at in range(9)]}
    first = caller.post(JOBS, batch).body["jobs"]
    again = caller.post(JOBS, batch).body["jobs"]
    assert [each["job_id"] for each in first[-3:]] == [each["job_id"] for each in again[-3:]]
    held: set[int] = set()
    while found := payloads(store):
        held.update(found)
    assert held == {6, 7, 8}


@pytest.mark.parametrize(
    ("unique", "field"),
    [
        ({"while": "asleep"}, "unique.while"),
        ({"on_duplicate": "again"}, "unique.on_duplicate"),
        ({"window": -1}, "unique"),
        ({"window": "soon"}, "unique.window"),
        ({"for": 5}, "unique.for"),
        (5, "unique"),
    ],
)
def test_what_is_wrong_is_refused_by_name(caller: Caller, unique: Any, field: str) -> None:
    answer = caller.post(JOBS, body(caller, 1, unique=unique))
    assert (answer.status, answer.body["error"]["field"].startswith(field)) == (422, True)
