"""Contents beside jobs over the API: how they travel, and what an answer has no room for."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from osqueue import Queue
from osqueue.server.answers import ANSWER_BYTES_MAX, INCLUDED_BYTES_MAX
from osqueue.server.app import Api
from osqueue.stores.memory import MemoryStore
from tests.support.caller import JOBS, QUEUE, Caller


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def caller(store: MemoryStore) -> Caller:
    return Caller(Api(store))


def test_what_is_not_json_stands_apart_with_its_serialiser(store: MemoryStore, caller: Caller) -> None:
    q: Queue[Any] = Queue(store, "mail", serializer="msgpack")
    job = q.enqueue({"a": 1}, max_attempts=1).job_id
    q.claim()[0].fail("no")
    wanted = {"payload": {"data": base64.b64encode(b"\x81\xa1a\x01").decode(), "codec": "msgpack"}}
    one = caller.get(f"{JOBS}/{job}", include="payload").body
    assert (one["encoded"], "payload" in one) == (wanted, False)
    (letter,) = caller.get(f"{QUEUE}/dead", include="payload").body["jobs"]
    assert letter["encoded"] == wanted


def test_what_is_not_asked_for_is_no_field_of_the_answer(caller: Caller) -> None:
    body = caller.get(f"{JOBS}/{caller.enqueue(1)}").body
    assert not {"payload", "traceback", "result", "encoded", "left_out"} & body.keys()


def test_what_no_answer_holds_is_left_out_and_the_job_is_shown(store: MemoryStore, caller: Caller) -> None:
    job = Queue[Any](store, "mail").enqueue("x" * (INCLUDED_BYTES_MAX + 1)).job_id
    body = caller.get(f"{JOBS}/{job}", include="payload,traceback").body
    assert (body["state"], body["traceback"]) == ("queued", None)
    assert "do not fit into an answer of the API" in body["left_out"]["payload"]


def test_pages_end_where_contents_have_no_more_room_and_the_next_goes_on(
    store: MemoryStore, caller: Caller
) -> None:
    q: Queue[Any] = Queue(store, "mail")
    payload = "x" * (INCLUDED_BYTES_MAX * 2 // 5)  # two of them fit
    jobs = [q.enqueue(payload, max_attempts=1).job_id for _ in range(5)]
    many = caller.post(f"{QUEUE}/status", {"jobs": jobs, "include": ["payload"]})
    assert [each["job_id"] for each in many.body["jobs"]] == jobs[:2]
    assert len(many.response.body) < ANSWER_BYTES_MAX
    for lease in q.claim(5):
        lease.fail("no")
    found: list[str] = []
    pages, cursor = 0, ""
    while cursor is not None:
        page = caller.get(f"{QUEUE}/dead", include="payload", **({"cursor": cursor} if cursor else {})).body
        found += [each["job_id"] for each in page["jobs"]]
        pages, cursor = pages + 1, page.get("cursor")
    assert (found, pages) == (jobs, 3)


def test_a_log_can_say_whose_contents_were_read(caller: Caller) -> None:
    job = caller.enqueue(1)
    done = caller.get(f"{JOBS}/{job}", include="payload").response
    assert (done.notes["include"], done.notes["jobs"]) == ("payload", [job])
    assert "include" not in caller.get(f"{JOBS}/{job}").response.notes
