"""What was done is never answered by a failure, however large the results are that go along."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from osqueue import Queue
from osqueue.server.answers import ANSWER_BYTES_MAX
from osqueue.server.app import Api
from osqueue.stores.base import Delete, Get, List, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.caller import JOBS, QUEUE, Caller

LARGE = 250_000
TOO_LARGE = 5_000_000  # for any answer


class Watched(MemoryStore):
    """Remembers which bodies were read."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[str] = []

    def perform(self, request: StoreRequest) -> StoreReply:
        """Answer as ever."""
        if isinstance(request, Get) and "/bodies/" in request.key:
            self.bodies.append(request.key)
        return super().perform(request)


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture
def caller(store: Watched) -> Caller:
    return Caller(Api(store))


def keep(store: Watched, results: dict[str, Any], **options: Any) -> dict[str, str]:
    """Complete a job under each of these ids; their job ids."""
    q: Queue[Any] = Queue(store, "mail", **options)
    done = q.enqueue_many([{"payload": name, "id": name} for name in results])
    while leases := q.claim(1_000, lease=600):
        q.complete_many(
            [{"job_id": each.job_id, "token": each.token, "result": results[each.payload]} for each in leases]
        )
    return {name: str(each.job_id) for name, each in zip(results, done, strict=True)}


def test_results_that_do_not_fit_are_left_out_one_by_one_and_can_be_read_alone(
    store: Watched, caller: Caller
) -> None:
    kept = keep(store, {f"order-{n}": f"{n} " + "x" * LARGE for n in range(20)})
    items = [{"payload": 0, "id": name} for name in kept]
    answer = caller.post(JOBS, {"jobs": [*items, {"payload": "new"}, {"payload": "newer"}]})
    assert answer.status == 200
    assert ANSWER_BYTES_MAX - LARGE < len(answer.response.body) <= ANSWER_BYTES_MAX
    *old, one, two = answer.body["jobs"]
    assert [each["job_id"] for each in old] == list(kept.values())
    assert {(each["status"], each["state"]) for each in old} == {("completed", "completed")}
    given = [n for n, each in enumerate(old) if "result" in each]
    assert given == list(range(16))
    for each in old[16:]:
        assert (each["error"]["code"], each["error"]["field"]) == ("too_large", "result")
        path = f"{JOBS}/{each['job_id']}/result"
        assert f"GET {path}" in each["error"]["message"]
        assert len(caller.get(path).body["result"]) > LARGE
    assert [one["status"], two["status"]] == ["queued", "queued"]
    assert caller.get(QUEUE).body["queued"] == 2


def test_a_small_result_finds_room_behind_one_that_does_not_fit(store: Watched, caller: Caller) -> None:
    kept = keep(store, {"a": "x" * 3_000_000, "b": "y" * 3_000_000, "c": "z" * 1_000, "d": None})
    done = caller.post(JOBS, {"jobs": [{"payload": 0, "id": name} for name in kept]}).body["jobs"]
    assert [each.get("error", {}).get("code") for each in done] == [None, "too_large", None, None]
    assert [len(each["result"] or "") for each in done if "result" in each] == [3_000_000, 1_000, 0]


def test_what_another_serialiser_wrote_takes_as_much_room_as_its_base64(
    store: Watched, caller: Caller
) -> None:
    kept = keep(store, {name: name * 1_600_000 for name in "ab"}, serializer="msgpack")
    answer = caller.post(JOBS, {"jobs": [{"payload": 0, "id": name} for name in kept]})
    assert answer.status == 200
    assert [("data" in each, "error" in each) for each in answer.body["jobs"]] == [
        (True, False),
        (False, True),
    ]


def test_a_thousand_kept_results_fill_an_answer_and_no_more(store: Watched, caller: Caller) -> None:
    kept = keep(store, {f"order-{n}": "x" * 5_000 for n in range(1_000)})
    answer = caller.post(JOBS, {"jobs": [{"payload": 0, "id": name} for name in kept]})
    assert answer.status == 200
    assert 0.95 * ANSWER_BYTES_MAX < len(answer.response.body) <= ANSWER_BYTES_MAX
    assert {each["status"] for each in answer.body["jobs"]} == {"completed"}


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in a batch"])
def test_a_result_that_no_answer_holds_is_not_read_but_told_where_it_is(
    store: Watched, caller: Caller, many: bool
) -> None:
    kept = keep(store, {"order-7": "x" * TOO_LARGE})
    item = {"payload": 0, "id": "order-7"}
    answer = caller.post(JOBS, {"jobs": [item]} if many else item)
    assert answer.status == 200
    done = answer.body["jobs"][0] if many else answer.body
    assert (done["status"], done["job_id"]) == ("completed", kept["order-7"])
    alone = caller.get(f"{JOBS}/order-7/result").body
    assert done["download"]["bytes"] == alone["download"]["bytes"] == TOO_LARGE + 2
    assert store.bodies == []


def test_a_result_that_was_waited_for_and_does_not_fit_is_no_failure(store: Watched, caller: Caller) -> None:
    def work() -> None:
        (lease,) = Queue[Any](store, "mail").claim(wait=20)
        lease.complete("x" * TOO_LARGE)

    thread = threading.Thread(target=work)
    thread.start()
    answer = caller.post(JOBS, {"payload": 1}, wait=20)
    thread.join()
    assert (answer.status, answer.body["status"], answer.body["state"]) == (200, "completed", "completed")
    assert answer.body["download"]["bytes"] == TOO_LARGE + 2
    assert caller.get(f"{JOBS}/{answer.body['job_id']}").body["state"] == "completed"


def test_a_kept_result_that_cannot_be_read_fails_alone(store: Watched, caller: Caller) -> None:
    keep(store, {"order-7": "x" * LARGE})
    listed = store.list(List(""))
    store.delete(Delete(tuple(name for name in listed.keys if "/bodies/" in name)))
    done = caller.post(JOBS, {"jobs": [{"payload": 0, "id": "order-7"}, {"payload": "new"}]})
    lost, new = done.body["jobs"]
    assert (lost["status"], lost["error"]["code"], new["status"]) == ("completed", "damaged", "queued")
