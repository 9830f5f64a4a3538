"""Batches over the API, as a caller without the library finds them."""

from __future__ import annotations

from tests.support.caller import Caller

BATCHES = "/v1/queues/emails/batches"
DRAWN = "01a20abb-8009-7000-b1c0-cf5b4b808bff"


def test_a_repeated_request_opens_the_same_batch_whatever_the_last_byte_of_its_id() -> None:
    caller = Caller()
    first = caller.post(BATCHES, {"batch_id": DRAWN, "name": "march"})
    again = caller.post(BATCHES, {"batch_id": DRAWN, "name": "march"})
    assert (first.status, first.body) == (200, again.body)
    assert first.body["batch_id"][:-2] == DRAWN[:-2]
    assert len(caller.get(BATCHES).body["batches"]) == 1


def test_a_batch_is_opened_without_a_body_filled_and_sealed() -> None:
    caller = Caller()
    batch = caller.post(BATCHES).body["batch_id"]
    assert caller.post("/v1/queues/emails/jobs", {"payload": 1, "batch": batch}).status == 200
    sealed = caller.ask("PATCH", f"{BATCHES}/{batch}", {"sealed": True})
    assert (sealed.body["state"], sealed.body["left"]) == ("sealed", 1)


def test_what_is_wrong_is_named() -> None:
    caller = Caller()
    for body, field in (
        ({"batch_id": "march"}, "batch_id"),
        ({"on_complete": {"kind": "a", "priority": 10}}, "on_complete.priority"),
        ({"name": "n" * 65}, "name"),
    ):
        refused = caller.post(BATCHES, body)
        assert (refused.status, refused.body["error"]["field"]) == (422, field)
    assert caller.ask("PATCH", f"{BATCHES}/{DRAWN[:-2]}00", {"sealed": True}).status == 404
    opened = caller.post(BATCHES).body["batch_id"]
    assert caller.ask("PATCH", f"{BATCHES}/{opened}", {"sealed": False}).body["error"]["field"] == "sealed"
