"""The registry of workers over the API."""

from __future__ import annotations

import pytest

from osqueue.model.worker import WorkerEntry
from osqueue.server import answers
from osqueue.stores.base import List
from tests.support.caller import QUEUE, Caller

WORKERS = f"{QUEUE}/workers"


@pytest.fixture
def caller() -> Caller:
    caller = Caller()
    caller.enqueue(1)
    return caller


def test_a_worker_of_any_language_is_told_of_until_it_says_that_it_ends(caller: Caller) -> None:
    assert caller.get(WORKERS).body == {"workers": []}
    told = caller.ask("PUT", f"{WORKERS}/Gopher_1", {"name": "gopher", "version": "go 1.0", "every": 10})
    assert (told.status, told.body) == (204, None)
    (found,) = caller.get(WORKERS).body["workers"]
    assert (found["id"], found["name"], found["state"], found["version"]) == (
        *("Gopher_1", "gopher"),
        *("running", "go 1.0"),
    )
    assert set(found) >= {"since", "seen", "holds", "kinds", "busy", "concurrency", "host", "pid"}
    assert caller.ask("DELETE", f"{WORKERS}/Gopher_1").status == 204
    assert caller.ask("DELETE", f"{WORKERS}/Gopher_1").status == 204
    assert caller.get(WORKERS).body == {"workers": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x", "mood": "fine"}, "mood"),
        ({"name": "x", "every": 0}, "every"),
        ({"name": "x", "every": 1_000}, "every"),
        ({"name": "x", "kinds": "a"}, "kinds"),
        ({"name": "\u0007"}, "name"),
    ],
)
def test_a_word_that_is_wrong_names_its_field(caller: Caller, body: object, field: str) -> None:
    told = caller.ask("PUT", f"{WORKERS}/w-1", body)
    assert (told.status, told.field) == (422, field)


@pytest.mark.parametrize("name", ["-", "%2e%2e", "a%2fb", "x" * 65])
def test_an_id_that_is_none_is_refused(caller: Caller, name: str) -> None:
    for method, body in (("PUT", {"name": "x"}), ("DELETE", None)):
        told = caller.ask(method, f"{WORKERS}/{name}", body)
        assert (told.status, told.field) == (422, "worker")


def test_a_queue_that_is_not_there_gets_no_entry() -> None:
    caller = Caller()
    told = caller.ask("PUT", "/v1/queues/nobody/workers/w-1", {"name": "x"})
    assert (told.status, told.code) == (404, "not_found")
    assert caller.get("/v1/queues/nobody/workers").body == {"workers": []}
    assert not [key for key in caller.api.store.perform(List("")).keys if "nobody" in key]  # type: ignore[union-attr]


def test_a_process_that_knew_no_queue_hears_that_there_is_one(caller: Caller) -> None:
    other = Caller()
    other.api = type(caller.api)(caller.api.store)
    told = [other.ask("PUT", "/v1/queues/later/workers/w-1", {"name": "x"}).status]
    caller.ask("PATCH", "/v1/queues/later", {"priority": 5})
    told.append(other.ask("PUT", "/v1/queues/later/workers/w-1", {"name": "x"}).status)
    assert told == [404, 204]


def test_an_answer_has_room_for_so_many(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(30):
        caller.ask("PUT", f"{WORKERS}/w-{at:02}", {"name": f"n-{at:02}"})
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 5_000)
    told = caller.get(WORKERS).body
    assert told["more"]
    names = [each["name"] for each in told["workers"]]
    assert 5 < len(names) < 30
    assert names == sorted(names)


def test_what_the_contract_says_of_an_entry_is_what_the_library_says() -> None:
    from osqueue.contract.schemas import NewWorkerEntry

    assert NewWorkerEntry.__struct_fields__ == WorkerEntry.__struct_fields__
