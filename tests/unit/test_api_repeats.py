"""A call whose answer was lost is made again: the same jobs, once, wherever they are by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Queue
from osqueue.api.server import Api
from osqueue.errors import Unavailable
from osqueue.keys import key_of
from osqueue.stores.base import Failed, Get, Reply, Request
from osqueue.stores.memory import MemoryStore
from tests.unit.caller import JOBS, QUEUE, Caller

SHARDS = 4


@pytest.fixture(params=[1, SHARDS])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    store = MemoryStore()
    Queue(store, "mail").configure(shards=request.param)
    return store


@pytest.fixture(params=[None, "order-7"], ids=["without an id", "with an id"])
def client_id(request: pytest.FixtureRequest) -> Any:
    return request.param


def body(caller: Caller, client_id: str | None, **more: Any) -> dict[str, Any]:
    return {"payload": 1, "job_id": caller.key(), **({"id": client_id} if client_id else {}), **more}


def everything(store: MemoryStore) -> int:
    """How many jobs were ever accepted."""
    return int(Queue(store, "mail").stats()["counters"]["enqueued"])


def waits(caller: Caller) -> None:
    """The job stays where it is."""


def runs(caller: Caller) -> None:
    caller.claim()


def completes(caller: Caller) -> None:
    caller.end(caller.claim()[0], result=1)


def fails(caller: Caller) -> None:
    caller.end(caller.claim()[0], error="boom", retry=False)


def leaves_the_head(caller: Caller) -> None:
    completes(caller)
    assert caller.post(f"{QUEUE}/reap").body["archived"] == 1


def is_pushed_into_a_segment(caller: Caller) -> None:
    for _ in range(5):
        caller.post(JOBS, {"jobs": [{"payload": "x" * 500}] * 200})


def is_cancelled(caller: Caller) -> None:
    caller.ask("DELETE", f"{JOBS}/{caller.get(JOBS).body['jobs'][0]['job_id']}")


@pytest.mark.parametrize(
    "meanwhile",
    [waits, runs, completes, fails, leaves_the_head, is_pushed_into_a_segment, is_cancelled],
    ids=lambda each: each.__name__,
)
def test_a_repeated_call_is_the_same_job_whatever_became_of_it(
    store: MemoryStore, client_id: str | None, meanwhile: Callable[[Caller], None]
) -> None:
    first = Caller(Api(store))
    asked = body(first, client_id)
    done = first.post(JOBS, asked).body
    meanwhile(first)
    before = everything(store)
    for caller in (first, Caller(Api(store))):  # the same function process, and another
        again = caller.post(JOBS, asked)
        assert (again.status, again.body["status"], again.body["job_id"]) == (200, "queued", done["job_id"])
    assert everything(store) == before


def test_a_repeat_tells_how_the_job_stands(store: MemoryStore, client_id: str | None) -> None:
    caller = Caller(Api(store))
    asked = body(caller, client_id)
    caller.post(JOBS, asked)
    completes(caller)
    assert caller.post(JOBS, asked).body["state"] == "completed"


def test_a_repeated_batch_is_the_same_jobs_in_the_same_shard(
    store: MemoryStore, client_id: str | None
) -> None:
    caller = Caller(Api(store))
    named = [{"id": f"{client_id}-{n}"} if client_id else {} for n in range(50)]
    items = [{"payload": n, "job_id": caller.key(), **more} for n, more in enumerate(named)]
    first = caller.post(JOBS, {"jobs": items[:30]}).body["jobs"]
    again = Caller(Api(store)).post(JOBS, {"jobs": items}).body["jobs"]
    assert [each["job_id"] for each in again[:30]] == [each["job_id"] for each in first]
    assert {each["status"] for each in again} == {"queued"}
    assert len({key_of(each["job_id"])[15] for each in again}) == 1
    assert everything(store) == 50


def test_a_process_that_slept_while_shards_were_added_spreads_calls_as_the_others_do(machine: Any) -> None:
    store = MemoryStore(machine)
    sleeper = Caller(Api(store, machine=machine))
    sleeper.enqueue(1)
    Queue(store, "mail", machine=machine).configure(shards=SHARDS)
    machine.advance(600)
    asked = [body(sleeper, None) for _ in range(SHARDS)]
    first = [sleeper.post(JOBS, each).body["job_id"] for each in asked]
    again = [Caller(Api(store, machine=machine)).post(JOBS, each).body["job_id"] for each in asked]
    assert again == first


def test_calls_are_spread_over_the_shards(store: MemoryStore) -> None:
    caller = Caller(Api(store))
    shards = Queue(store, "mail").stats()["shards"]
    used = {key_of(caller.enqueue(1, job_id=caller.key()))[15] for _ in range(60)}
    assert used == set(range(shards))


@pytest.mark.parametrize("meanwhile", [waits, runs, completes, fails], ids=lambda each: each.__name__)
def test_a_repeat_under_an_id_that_was_used_before_is_the_same_job(
    store: MemoryStore, meanwhile: Callable[[Caller], None]
) -> None:
    caller = Caller(Api(store))
    caller.post(JOBS, body(caller, "order-7"))
    fails(caller)
    asked = body(caller, "order-7", payload=2)
    done = caller.post(JOBS, asked).body
    meanwhile(caller)
    for each in (caller, Caller(Api(store))):
        again = each.post(JOBS, asked).body
        assert (again["status"], again["job_id"]) == ("queued", done["job_id"])
    assert everything(store) == 2


def test_a_repeat_finds_its_job_though_the_id_stands_for_a_later_one(store: MemoryStore) -> None:
    caller = Caller(Api(store))
    asked = [body(caller, "order-7", payload=n) for n in range(3)]
    done = []
    for each in asked:
        done.append(caller.post(JOBS, each).body["job_id"])
        fails(caller)
    again = [Caller(Api(store)).post(JOBS, each).body["job_id"] for each in asked]
    assert (again, everything(store)) == (done, 3)


def test_two_at_once_and_one_commit_for_both_are_one_job(store: MemoryStore, client_id: str | None) -> None:
    import threading

    callers = [Caller(Api(store)) for _ in range(4)]
    asked = body(callers[0], client_id)
    together = threading.Barrier(4)
    answers: list[Any] = []

    def call(caller: Caller) -> None:
        together.wait()
        answers.append(caller.post(JOBS, asked).body)

    threads = [threading.Thread(target=call, args=(each,)) for each in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each["job_id"] for each in answers} == {answers[0]["job_id"]}
    # Under an id, one cannot tell the same call from another that enqueued the job on its behalf while it ran.
    assert (
        "queued" in {each["status"] for each in answers} <= {"queued", "duplicate" if client_id else "queued"}
    )
    assert everything(store) == 1


def test_another_call_under_the_same_id_is_a_duplicate_as_ever(store: MemoryStore) -> None:
    caller = Caller(Api(store))
    first = caller.post(JOBS, body(caller, "order-7")).body
    other = caller.post(JOBS, body(caller, "order-7", payload=2)).body
    assert (other["status"], other["job_id"]) == ("duplicate", first["job_id"])


def test_one_key_twice_in_a_request_is_refused_the_second_time(store: MemoryStore) -> None:
    caller = Caller(Api(store))
    item = {"payload": 1, "job_id": caller.key()}
    one, two = caller.post(JOBS, {"jobs": [item, item]}).body["jobs"]
    assert (one["status"], two["status"], two["error"]["field"]) == ("queued", "rejected", "job_id")


@pytest.mark.parametrize("key", ["x", "", "0197A3C5-7C4E-7000-8D2F-5B6C9E1F2A00", "0" * 36, "\u0660" * 36])
def test_a_key_of_another_form_is_refused(store: MemoryStore, key: str) -> None:
    refused = Caller(Api(store)).post(JOBS, {"payload": 1, "job_id": key})
    assert (refused.status, refused.field) == (422, "job_id")


# ── What looks like a repeat and is none ─────────────────────────────────────
def with_last_byte(key: str, byte: int) -> str:
    return f"{key[:-2]}{byte:02x}"


@pytest.mark.parametrize("size", [1, 5_000], ids=["short", "long"])
@pytest.mark.parametrize(
    "meanwhile",
    [waits, runs, fails, is_pushed_into_a_segment],
    ids=lambda each: each.__name__,
)
def test_ids_that_differ_in_their_last_byte_alone_are_no_repeats_where_the_payload_differs(
    store: MemoryStore, meanwhile: Callable[[Caller], None], size: int
) -> None:
    caller = Caller(Api(store))
    shards = Queue(store, "mail").stats()["shards"]
    key = caller.key()
    first = {"payload": "a" * size, "job_id": with_last_byte(key, 0)}
    other = {"payload": "b" * size, "job_id": with_last_byte(key, shards)}  # the same shard
    caller.post(JOBS, first)
    meanwhile(caller)
    before = everything(store)
    refused = caller.post(JOBS, other)
    assert (refused.status, refused.code, refused.field) == (409, "conflict", "job_id")
    assert "last byte" in refused.body["error"]["message"]
    taken, new = caller.post(JOBS, {"jobs": [other, {"payload": 0}]}).body["jobs"]
    assert (taken["status"], taken["error"]["code"], new["status"]) == ("rejected", "conflict", "queued")
    assert caller.post(JOBS, first).body["status"] == "queued"
    assert everything(store) == before + 1


@pytest.mark.parametrize("meanwhile", [completes, leaves_the_head, is_cancelled], ids=lambda e: e.__name__)
def test_of_a_job_that_is_over_the_length_tells_and_the_checksum_of_a_long_payload(
    store: MemoryStore, meanwhile: Callable[[Caller], None]
) -> None:
    caller = Caller(Api(store))
    for first, others, passing in (
        ("abc", ["abcd", "ab"], "xyz"),
        ("a" * 5_000, ["a" * 5_001, "a", "b" * 5_000], "a" * 5_000),
    ):
        asked = {"payload": first, "job_id": caller.key()}
        caller.post(JOBS, asked)
        meanwhile(caller)
        for other in others:
            assert caller.post(JOBS, {**asked, "payload": other}).code == "conflict"
        assert caller.post(JOBS, {**asked, "payload": passing}).body["status"] == "queued"
    assert everything(store) == 2


def test_a_job_id_that_stands_for_a_job_under_an_id_is_taken(store: MemoryStore) -> None:
    caller = Caller(Api(store))
    asked = body(caller, "order-7")
    caller.post(JOBS, asked)
    refused = caller.post(JOBS, {"payload": asked["payload"], "job_id": asked["job_id"]})
    assert (refused.status, refused.code) == (409, "conflict")


def test_an_id_that_was_used_before_does_not_take_the_job_of_another_payload(store: MemoryStore) -> None:
    caller = Caller(Api(store))
    first = body(caller, "order-7")
    caller.post(JOBS, first)
    fails(caller)
    caller.post(JOBS, body(caller, "order-7", payload=2))
    fails(caller)
    refused = caller.post(JOBS, {**first, "payload": "another"})
    assert (refused.status, refused.code, refused.field) == (409, "conflict", "job_id")
    assert everything(store) == 2


def test_a_key_under_an_id_with_another_payload_is_answered_by_the_id(store: MemoryStore) -> None:
    caller = Caller(Api(store))
    first = body(caller, "order-7")
    job = caller.post(JOBS, first).body["job_id"]
    completes(caller)
    other = caller.post(JOBS, {**first, "payload": "another"}).body
    assert (other["status"], other["job_id"], other["result"]) == ("completed", job, 1)


@pytest.mark.parametrize("first_id", [None, "order-6"], ids=["without an id", "with an id"])
@pytest.mark.parametrize(
    "meanwhile",
    [waits, runs, completes, fails, leaves_the_head, is_pushed_into_a_segment],
    ids=lambda each: each.__name__,
)
def test_a_key_of_another_job_is_no_job_under_an_id(
    store: MemoryStore, first_id: str | None, meanwhile: Callable[[Caller], None]
) -> None:
    caller = Caller(Api(store))
    first = body(caller, first_id)
    job = caller.post(JOBS, first).body["job_id"]
    meanwhile(caller)
    before = everything(store)
    second = {**first, "id": "order-7", "payload": "another"}
    queued = caller.post(JOBS, second).body
    assert (queued["status"], queued["job_id"] != job) == ("queued", True)
    assert caller.get(f"{JOBS}/order-7").body["id"] == "order-7"
    again = caller.post(JOBS, second).body
    assert (again["status"], again["job_id"]) == ("duplicate", queued["job_id"])
    assert everything(store) == before + 1


def test_each_repeat_of_a_batch_tells_how_its_job_stands(store: MemoryStore) -> None:
    caller = Caller(Api(store))
    items = [{"payload": n, "job_id": caller.key()} for n in range(4)]
    caller.post(JOBS, {"jobs": items[:3]})
    completes(caller)
    runs(caller)
    done = caller.post(JOBS, {"jobs": items}).body["jobs"]
    assert [each["state"] for each in done] == ["completed", "processing", "queued", "queued"]
    assert {each["status"] for each in done} == {"queued"}


class Silent(MemoryStore):
    """Does not give the next head that is asked for, once told so."""

    silent = False

    def perform(self, request: Request) -> Reply:
        """Answer, or not."""
        if self.silent and isinstance(request, Get) and request.key.endswith("/head"):
            self.silent = False
            return Failed(Unavailable("silence"))
        return super().perform(request)


def test_a_repeat_that_cannot_be_told_from_a_new_call_fails_alone() -> None:
    store = Silent()
    caller = Caller(Api(store))
    asked = {"payload": 1, "job_id": caller.key()}
    caller.post(JOBS, asked)
    store.silent = True
    again, new = caller.post(JOBS, {"jobs": [asked, {"payload": 2}]}).body["jobs"]
    assert (again["status"], again["error"]["code"], new["status"]) == ("rejected", "unavailable", "queued")
    assert everything(store) == 2
