"""Single jobs over the API: enqueued, worked on, asked about, cancelled; contents pass through as they came."""

from __future__ import annotations

import base64
import threading
from typing import Any

import msgspec
import pytest

from osqueue import Queue
from osqueue.contract.functions import PAYLOAD_BYTES_MAX, WAIT_S_MAX
from osqueue.server.app import Api
from osqueue.stores.memory import MemoryStore
from tests.support.caller import JOBS, QUEUE, Caller


@pytest.fixture
def caller() -> Caller:
    return Caller()


# ── Enqueue ──────────────────────────────────────────────────────────────────
def test_a_job_goes_in_with_all_its_options_and_comes_out_with_them(caller: Caller) -> None:
    options = {"id": "order-7", "kind": "welcome", "priority": 1, "max_attempts": 5}
    done = caller.post(JOBS, {"payload": {"to": "ada"}, **options})
    assert (done.status, done.body["status"], done.body["state"]) == (200, "queued", "queued")
    (lease,) = caller.claim(kinds=["welcome"])
    assert {name: lease[name] for name in options} == options
    assert (lease["payload"], lease["attempt"], lease["job_id"]) == ({"to": "ada"}, 1, done.body["job_id"])


@pytest.mark.parametrize("more", [{"delay": 3600}, {"at": "2100-01-01T00:00:00Z"}, {"at": 4102444800.5}])
def test_a_job_for_later_is_scheduled(caller: Caller, more: dict[str, Any]) -> None:
    assert caller.post(JOBS, {"payload": 1, **more}).body["state"] == "scheduled"
    assert caller.claim() == []


def test_the_same_id_is_a_duplicate_while_it_lives_and_answers_its_result_afterwards(caller: Caller) -> None:
    first = caller.enqueue(1, id="order-7")
    again = caller.post(JOBS, {"payload": 2, "id": "order-7"}).body
    assert again == {"status": "duplicate", "job_id": first, "state": "queued"}
    caller.end(caller.claim()[0], result={"sent": True})
    over = caller.post(JOBS, {"payload": 3, "id": "order-7"}).body
    assert (over["status"], over["job_id"], over["result"]) == ("completed", first, {"sent": True})


def test_bad_items_of_a_batch_fail_alone_and_say_why(caller: Caller) -> None:
    items = [
        {"payload": 1},
        {"payload": 2, "priority": 12},
        {},
        5,
        {"payload": 3, "cron": "* *"},
        {"payload": 4},
    ]
    done = caller.post(JOBS, {"jobs": items})
    assert done.status == 200
    assert [each["status"] for each in done.body["jobs"]] == ["queued", *["rejected"] * 4, "queued"]
    faults = [each.get("error", {}) for each in done.body["jobs"]]
    assert [(each.get("code"), each.get("field")) for each in faults] == [
        (None, None),
        ("rejected", "priority"),
        ("rejected", "payload"),
        ("malformed", None),
        ("not_supported", "cron"),
        (None, None),
    ]
    assert [lease["payload"] for lease in caller.claim(10)] == [1, 4]


def test_a_thousand_jobs_are_taken_and_one_more_is_not(caller: Caller) -> None:
    jobs = [{"payload": n} for n in range(1_000)]
    assert len(caller.post(JOBS, {"jobs": jobs}).body["jobs"]) == 1_000
    refused = caller.post(JOBS, {"jobs": [*jobs, {"payload": 0}]})
    assert (refused.status, refused.field) == (422, "jobs")
    assert caller.post(JOBS, {"jobs": []}).body == {"jobs": []}


def test_a_payload_at_the_limit_is_taken_and_one_byte_more_is_too_large(caller: Caller) -> None:
    text = "x" * (PAYLOAD_BYTES_MAX - 2)
    caller.enqueue(text)
    assert caller.claim()[0]["payload"] == text
    refused = caller.post(JOBS, {"payload": text + "x"})
    assert (refused.status, refused.code, refused.field) == (413, "too_large", "payload")
    (alone,) = caller.post(JOBS, {"jobs": [{"payload": text + "x"}]}).body["jobs"]
    assert alone["error"]["code"] == "too_large"


def test_waiting_for_a_single_job_answers_its_result(caller: Caller) -> None:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            for lease in caller.claim(wait=0.1):
                caller.end(lease, result=lease["payload"] * 2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        done = caller.post(JOBS, {"payload": 21}, wait=20)
    finally:
        over.set()
        thread.join()
    assert (done.status, done.body["status"], done.body["result"]) == (200, "completed", 42)


def test_a_job_that_is_not_done_in_time_is_202_with_its_id(caller: Caller) -> None:
    done = caller.post(JOBS, {"payload": 1}, wait=0)
    assert (done.status, done.code) == (202, "wait_timeout")
    assert caller.get(f"{JOBS}/{done.body['error']['job_id']}").body["state"] == "queued"


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "x", str(WAIT_S_MAX + 0.1), "1e999", ""])
def test_a_wait_that_makes_no_sense_is_refused_by_name(caller: Caller, wait: str) -> None:
    for refused in (caller.post(JOBS, {"payload": 1}, wait=wait), caller.get(f"{JOBS}/a/result", wait=wait)):
        assert (refused.status, refused.field) == (422, "wait")
    assert caller.claim() == []


def test_only_a_single_job_can_be_waited_for(caller: Caller) -> None:
    assert caller.post(JOBS, {"jobs": [{"payload": 1}]}, wait=1).field == "wait"


# ── Contents ─────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "text", ['{"b":1,"a":[1.50,1e2,null]}', '"\\u00e9 é"', "null", "123456789012345678901"]
)
def test_json_passes_through_byte_for_byte(caller: Caller, text: str) -> None:
    caller.ask("POST", JOBS, b'{"payload":' + text.encode() + b"}")
    answer = caller.ask("POST", f"{QUEUE}/claims", {"limit": 1})
    assert b'"payload":' + text.encode() in answer.response.body
    lease = answer.body["jobs"][0]
    item = f'{{"job_id":"{lease["job_id"]}","token":"{lease["token"]}","result":{text}}}'
    caller.ask("POST", f"{QUEUE}/completions", f'{{"completions":[{item}]}}'.encode())
    assert text.encode() in caller.get(f"{JOBS}/{lease['job_id']}/result").response.body


def test_what_another_serialiser_wrote_travels_as_base64_with_its_name() -> None:
    store = MemoryStore()
    caller = Caller(Api(store))
    packed = msgspec.msgpack.encode({"to": "ada"})
    caller.post(JOBS, {"data": base64.b64encode(packed).decode(), "codec": "msgpack"})
    q: Queue[Any] = Queue(store, "mail", serializer="msgpack")
    (lease,) = q.claim()
    assert lease.payload == {"to": "ada"}
    lease.complete({"sent": True})
    told = caller.get(f"{JOBS}/{lease.job_id}/result").body
    assert told["codec"] == "msgpack"
    assert msgspec.msgpack.decode(base64.b64decode(told["data"])) == {"sent": True}
    q.enqueue({"to": "grace"})
    (leased,) = caller.claim()
    assert msgspec.msgpack.decode(base64.b64decode(leased["data"])) == {"to": "grace"}
    end = {"data": base64.b64encode(packed).decode()}
    item = {"job_id": leased["job_id"], "token": leased["token"], **end}
    caller.post(f"{QUEUE}/completions", {"completions": [item], "codec": "msgpack"})
    assert q.result(leased["job_id"]) == {"to": "ada"}


class Liar:
    """Calls itself JSON, and is not."""

    name = "json"

    def dumps(self, value: Any) -> bytes:
        """Half an object."""
        return b'{"half":'

    def loads(self, data: bytes, type: Any) -> Any:
        """Nobody asks."""
        return None


def test_what_claims_to_be_json_and_is_not_breaks_no_answer() -> None:
    store = MemoryStore()
    caller = Caller(Api(store))
    liar: Queue[Any] = Queue(store, "mail", serializer=Liar())
    liar.enqueue(1)
    caller.enqueue({"good": 1})
    broken, good = caller.claim(2)
    assert "payload" not in broken
    assert (broken["error"]["code"], broken["error"]["field"]) == ("rejected", "payload")
    assert good["payload"] == {"good": 1}
    assert caller.end(broken, error="unreadable")["code"] == "failing"


# ── What workers say ─────────────────────────────────────────────────────────
def test_endings_of_every_kind_go_into_one_commit(caller: Caller) -> None:
    for n in range(6):
        caller.enqueue(n)
    held = [{"job_id": each["job_id"], "token": each["token"]} for each in caller.claim(6)]
    before = caller.get(QUEUE).body["commits"]
    ends = [
        {"result": 1},
        {"error": "boom"},
        {"error": {"type": "Boom", "message": "for good"}, "retry": False},
        {"release": True},
        {"release": 3600},
        {"cancel": "not needed"},
    ]
    done = caller.post(
        f"{QUEUE}/completions", {"completions": [a | b for a, b in zip(held, ends, strict=True)]}
    )
    codes = [(each["ok"], each.get("code", "ok")) for each in done.body["completions"]]
    assert codes == [
        (True, "ok"),
        (True, "failing"),
        (True, "failed"),
        (True, "ok"),
        (True, "ok"),
        (True, "cancelled"),
    ]
    assert caller.get(QUEUE).body["commits"] == before + 1
    states = [caller.get(f"{JOBS}/{each['job_id']}").body["state"] for each in held]
    assert states == ["completed", "failing", "failed", "queued", "scheduled", "cancelled"]


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"result": 1, "error": "x"}, "error"),
        ({"error": "x", "release": True}, "release"),
        ({"retry_in": 5}, "retry_in"),
        ({"retry": False}, "retry"),
        ({"release": -1}, "release"),
        ({"error": {"message": "x", "more": 1}}, "error.more"),
        ({"data": "!!"}, "data"),
        ({"result": "x" * PAYLOAD_BYTES_MAX}, "result"),
        ({"token": ""}, "token"),
        ({"job_id": "order-7"}, "job_id"),
        ({"nope": 1}, "nope"),
        ({"retry_in": 1e12, "error": "x"}, "retry_in"),
    ],
)
def test_an_ending_that_makes_no_sense_fails_alone(caller: Caller, item: dict[str, Any], field: str) -> None:
    caller.enqueue(1)
    caller.enqueue(2)
    one, two = caller.claim(2)
    held = [{"job_id": each["job_id"], "token": each["token"]} for each in (one, two)]
    done = caller.post(f"{QUEUE}/completions", {"completions": [held[0] | item, held[1]]}).body["completions"]
    assert (done[0]["ok"], done[0]["code"], done[0]["error"]["field"]) == (False, "rejected", field)
    assert done[1]["ok"]
    assert caller.get(f"{JOBS}/{one['job_id']}").body["state"] == "processing"


def test_a_late_worker_hears_lease_lost_and_a_repeated_completion_succeeds(caller: Caller) -> None:
    caller.enqueue(1)
    (lease,) = caller.claim()
    caller.end(lease, release=True)
    assert caller.end(lease, result=1)["code"] == "lease_lost"
    (newer,) = caller.claim()
    assert caller.end(newer, result=1)["ok"]
    assert caller.end(newer, result=1)["ok"]


def test_heartbeats_extend_leases_and_tell_of_cancels(caller: Caller) -> None:
    caller.enqueue(1)
    (lease,) = caller.claim()
    held = {"job_id": lease["job_id"], "token": lease["token"]}
    beats = caller.post(
        f"{QUEUE}/heartbeats", {"leases": [held, {"job_id": "x", "token": "y"}], "lease": 600}
    )
    assert [each["ok"] for each in beats.body["leases"]] == [True, False]
    assert caller.get(f"{JOBS}/{lease['job_id']}").body["expires_at"] > lease["expires_at"]
    assert caller.ask("DELETE", f"{JOBS}/{lease['job_id']}").body == {"status": "processing"}
    again = caller.post(f"{QUEUE}/heartbeats", {"leases": [held]}).body["leases"][0]
    assert again == {"job_id": lease["job_id"], "ok": True, "cancel_requested": True}


# ── Asking ───────────────────────────────────────────────────────────────────
def test_an_id_of_any_characters_is_found_as_base64url(caller: Caller) -> None:
    for name in ("order/7 ü", "~tilde", "a?b#c%2F"):
        caller.enqueue(1, id=name)
        coded = "~" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")
        assert caller.get(f"{JOBS}/{coded}").body["id"] == name
    assert caller.get(f"{JOBS}/order%2F7%20%C3%BC").body["id"] == "order/7 ü"


def timed(machine: Any) -> Caller:
    """A caller of a store whose clock the test moves."""
    return Caller(Api(MemoryStore(machine), machine=machine))


def test_results_say_what_became_of_the_job(machine: Any) -> None:
    caller = timed(machine)
    ids = [caller.enqueue(n, result_ttl=0.001 if n == 3 else 60) for n in range(5)]
    leases = caller.claim(4)
    caller.end(leases[0])
    caller.end(leases[1], error={"type": "Boom", "message": "no"}, retry=False)
    caller.end(leases[2], cancel="why not")
    caller.end(leases[3], result=1)
    machine.advance(1)
    answers = [caller.get(f"{JOBS}/{each}/result") for each in [*ids, "unknown"]]
    assert answers[0].body == {"job_id": ids[0], "result": None}
    assert [(each.status, each.code) for each in answers[1:]] == [
        (409, "job_failed"),
        (409, "job_cancelled"),
        (410, "expired"),
        (202, "not_finished"),
        (404, "not_found"),
    ]
    fault = answers[1].body["error"]
    assert (fault["type"], fault["error"], fault["job_id"]) == ("Boom", "no", ids[1])


def test_jobs_are_listed_page_by_page(caller: Caller) -> None:
    ids = [caller.enqueue(n) for n in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = caller.get(JOBS, state="queued", limit=2, **cursor).body
        seen += [each["job_id"] for each in page["jobs"]]
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert seen == ids


def test_a_page_says_how_many_jobs_it_looked_at(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osqueue.objects.listing.PASSED_MAX", 10)
    for n in range(15):
        caller.enqueue(n, headers={"tenant": "acme" if n == 14 else "globex"})
    first = caller.get(JOBS, header="tenant=acme").body
    assert (first["jobs"], first["looked_at"]) == ([], 10)
    rest = caller.get(JOBS, header="tenant=acme", cursor=first["cursor"]).body
    assert (len(rest["jobs"]), rest["looked_at"], rest.get("cursor")) == (1, 5, None)


def test_a_page_too_large_for_an_answer_becomes_a_shorter_one(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osqueue.server.answers.ANSWER_BYTES_MAX", 2_000)
    for n in range(20):
        caller.enqueue(n)
    page = caller.get(JOBS, limit=20)
    assert page.status == 200
    assert 1 <= len(page.body["jobs"]) < 20
    assert len(page.response.body) <= 2_000
    assert page.body["cursor"]


def test_a_result_is_kept_for_as_long_as_asked(machine: Any) -> None:
    caller = timed(machine)
    job = caller.enqueue(1)
    assert caller.ask("PATCH", f"{JOBS}/{job}", {"result_ttl": 5}).status == 204
    caller.end(caller.claim()[0], result=1)
    machine.advance(4)
    assert caller.get(f"{JOBS}/{job}/result").status == 200
    machine.advance(2)
    assert caller.get(f"{JOBS}/{job}/result").status == 410
    assert caller.ask("PATCH", f"{JOBS}/{job}", {"result_ttl": 60}).status == 410
    assert caller.ask("PATCH", f"{JOBS}/nobody", {"result_ttl": 60}).status == 404


def test_a_story_tells_what_happened(caller: Caller) -> None:
    job = caller.enqueue(1)
    caller.end(caller.claim()[0], error="boom")
    story = caller.get(f"{JOBS}/{job}/story").body
    assert (story["state"], story["source"]) == ("failing", "queue")
    assert any("boom" in step["what"] for step in story["steps"])


# ── Large payloads ───────────────────────────────────────────────────────────
def test_no_more_is_leased_than_an_answer_holds_and_nothing_is_lost() -> None:
    store = MemoryStore()
    q: Queue[Any] = Queue(store, "mail")
    for n in range(6):
        q.enqueue(f"{n}" + "x" * 1_000_000)
    caller = Caller(Api(store))
    leases = caller.claim(6)
    assert 1 < len(leases) < 6
    rest = caller.claim(6)
    assert [each["payload"][0] for each in [*leases, *rest]] == list("012345")
    assert {each["attempt"] for each in rest} == {1}  # those given back have lost no attempt


def test_a_payload_no_answer_can_hold_is_given_by_where_it_is() -> None:
    store = MemoryStore()
    q: Queue[Any] = Queue(store, "mail")
    q.enqueue("x" * 5_000_000)
    q.enqueue("small")
    caller = Caller(Api(store))
    large, small = caller.claim(2)
    assert (large["downloads"]["payload"]["bytes"], small["payload"]) == (5_000_002, "small")
    assert "payload" not in large
    assert caller.end(large, release=True)["ok"]
    (lease,) = q.claim()
    assert len(lease.payload) == 5_000_000


def test_a_story_that_is_not_there_advises_nothing_that_an_api_refuses(caller: Caller) -> None:
    message = caller.get(f"{JOBS}/nope/story").body["error"]["message"]
    assert "archive cat" not in message
    assert "GET /v1/queues/mail/history?since=TIME" in message
