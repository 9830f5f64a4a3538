"""A call whose answer was lost is made again: the same jobs, once, wherever they are by then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Queue
from osqueue.errors import Unavailable
from osqueue.model.keys import key_of
from osqueue.server.app import Api
from osqueue.stores.base import Failed, Found, Get, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.caller import JOBS, QUEUE, Caller

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


# ── The store in the way of a repeat ─────────────────────────────────────────
class Failing(MemoryStore):
    """Fails a read, or damages what it brings, where ``fails`` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: Callable[[str], bool] = lambda key: False
        self.damages = False

    def perform(self, request: StoreRequest) -> StoreReply:
        """Answer, or not."""
        reply = super().perform(request)
        if isinstance(request, Get) and isinstance(reply, Found) and self.fails(request.key):
            return replace(reply, body=b"dust") if self.damages else Failed(Unavailable("silence"))
        return reply


def is_segment(key: str) -> bool:
    return "/segments/" in key


@pytest.fixture
def failing() -> Failing:
    return Failing()


def batch_in_segments(caller: Caller, size: int) -> list[dict[str, Any]]:
    items = [{"payload": "x" * 500, "job_id": caller.key()} for _ in range(size)]
    caller.post(JOBS, {"jobs": items})
    is_pushed_into_a_segment(caller)
    return items


def test_a_repeated_batch_is_looked_up_with_few_reads(failing: Failing) -> None:
    caller = Caller(Api(failing))
    items = batch_in_segments(caller, 1_000)
    api = Api(failing)
    before = api.store.requests["get"]
    done = Caller(api).post(JOBS, {"jobs": items}).body["jobs"]
    assert {(each["status"], each["state"]) for each in done} == {("queued", "queued")}
    assert api.store.requests["get"] - before < 60


def test_a_job_that_is_there_is_never_rejected_for_a_read_that_failed(failing: Failing) -> None:
    caller = Caller(Api(failing))
    items = batch_in_segments(caller, 300)
    before = everything(failing)
    at, reads = 0, count(2)
    while next(reads) > at:  # until there were fewer reads than that
        at, reads = at + 1, count(1)
        failing.fails = lambda key, at=at, reads=reads: next(reads) == at  # type: ignore[misc]
        again = Caller(Api(failing)).post(JOBS, {"jobs": items})
        if again.status == 200:
            assert {each["status"] for each in again.body["jobs"]} == {"queued"}
        else:
            assert (again.status, again.code) == (503, "unavailable")
            assert again.body["error"]["retry_after"] > 0
    failing.fails = lambda key: False
    assert at > 5
    assert everything(failing) == before


def test_a_read_that_fails_once_while_a_repeat_is_looked_at_is_made_again(failing: Failing) -> None:
    caller = Caller(Api(failing))
    items = batch_in_segments(caller, 300)
    caller.post(JOBS, {"jobs": items})
    once = iter([False] * 5 + [True])
    failing.fails = lambda key: is_segment(key) and next(once, False)
    done = caller.post(JOBS, {"jobs": items})
    assert (done.status, next(once, None)) == (200, None)
    assert {each["status"] for each in done.body["jobs"]} == {"queued"}


@pytest.mark.parametrize(("damages", "code"), [(False, "unavailable"), (True, "damaged")])
def test_where_a_repeat_cannot_be_told_the_request_fails_and_may_be_repeated(
    failing: Failing, damages: bool, code: str
) -> None:
    caller = Caller(Api(failing))
    lost = batch_in_segments(caller, 1_000)[-1]
    named = body(caller, "order-7")
    caller.post(JOBS, named)  # in the head, where it is found
    before = everything(failing)
    failing.fails, failing.damages = is_segment, damages
    for asked in (lost, {"jobs": [lost]}, {"jobs": [lost, named]}):
        again = caller.post(JOBS, asked)
        assert (again.status, again.code) == (503, code)
    failing.fails = lambda key: False
    done = caller.post(JOBS, {"jobs": [lost, named]}).body["jobs"]
    assert [each["status"] for each in done] == ["queued", "queued"]
    assert everything(failing) == before


# ── What may be repeated where there are several shards ──────────────────────
@pytest.fixture
def two_shards() -> MemoryStore:
    store = MemoryStore()
    Queue(store, "mail").configure(shards=2)
    return store


def items_of(caller: Caller, last_bytes: Sequence[int]) -> list[dict[str, Any]]:
    return [{"payload": n, "job_id": with_last_byte(caller.key(), last)} for n, last in enumerate(last_bytes)]


def test_a_whole_request_may_be_repeated_whatever_ids_were_drawn(two_shards: MemoryStore) -> None:
    caller = Caller(Api(two_shards))
    items = [{"payload": "no id of its own", "id": "order-7"}, *items_of(caller, [0, 1, 7, 4])]
    first = caller.post(JOBS, {"jobs": items}).body["jobs"]
    again = Caller(Api(two_shards)).post(JOBS, {"jobs": items}).body["jobs"]
    assert [each["job_id"] for each in again] == [each["job_id"] for each in first]
    assert everything(two_shards) == len(items)


@pytest.mark.parametrize("last_bytes", [[6, 6, 6], [7, 7, 7]])
def test_jobs_whose_ids_end_alike_may_be_repeated_alone_and_in_any_order(
    two_shards: MemoryStore, last_bytes: list[int]
) -> None:
    caller = Caller(Api(two_shards))
    items = items_of(caller, last_bytes)
    first = caller.post(JOBS, {"jobs": items}).body["jobs"]
    for item, done in zip(items, first, strict=True):
        again = caller.post(JOBS, item).body
        assert (again["status"], again["job_id"]) == ("queued", done["job_id"])
        assert caller.post(JOBS, {**item, "job_id": done["job_id"]}).body["job_id"] == done["job_id"]
    again = caller.post(JOBS, {"jobs": items[::-1]}).body["jobs"]
    assert [each["job_id"] for each in again] == [each["job_id"] for each in first[::-1]]
    assert everything(two_shards) == len(items)


def test_the_first_drawn_id_of_a_request_picks_the_shard_of_all(two_shards: MemoryStore) -> None:
    caller = Caller(Api(two_shards))
    items = items_of(caller, [6, 7])
    first = caller.post(JOBS, {"jobs": items}).body["jobs"]
    assert {each["job_id"][-2:] for each in first} == {"00"}
    alone = caller.post(JOBS, items[1]).body["job_id"]  # another request, by another first id: another job
    assert (alone[:-2], alone[-2:]) == (first[1]["job_id"][:-2], "01")
    assert everything(two_shards) == 3
