"""The server answers everything: errors by code, hostile input by name, slow stores in time."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from osqueue import Queue, errors
from osqueue.contract.error_codes import STATUS, Malformed, TooLarge, error_of, fault_of
from osqueue.contract.functions import BODY_BYTES_MAX
from osqueue.contract.operations import BY_NAME, ROUTES
from osqueue.errors import JobFailed, OsqueueError, Rejected, WaitTimeout
from osqueue.server.app import Api, ApiRequest
from osqueue.stores.base import Failed, PutIfMatch, Refused, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support.caller import JOBS, QUEUE, Caller


@pytest.fixture
def caller() -> Caller:
    return Caller()


# ── Errors ───────────────────────────────────────────────────────────────────
KINDS = [
    each
    for each in [*vars(errors).values(), Malformed, TooLarge]
    if isinstance(each, type) and issubclass(each, OsqueueError) and each is not OsqueueError
]


def made(kind: type[OsqueueError]) -> OsqueueError:
    if issubclass(kind, JobFailed):
        return kind("it failed", job_id="j", type="Boom", error="no", traceback="line 1")
    if issubclass(kind, WaitTimeout):
        return kind("too late", job_id="j")
    return kind("why", field="payload") if issubclass(kind, Rejected) else kind("why")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_every_error_travels_and_arrives_as_what_it_was(kind: type[OsqueueError]) -> None:
    error = made(kind)
    arrived = error_of(fault_of(error))
    assert type(arrived) is kind
    assert {**vars(arrived), "retry_after": 0} == {**vars(error), "retry_after": 0}
    assert arrived.args == error.args
    assert arrived.retry_after == error.retry_after
    assert error.code in STATUS


class Raising(MemoryStore):
    """A store whose every answer is an error of the test's."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def perform(self, request: StoreRequest) -> StoreReply:
        """Raise a defect, answer an error."""
        if isinstance(self.error, OsqueueError):
            return Failed(self.error)
        raise self.error


@pytest.mark.parametrize(
    "kind",
    [errors.Unavailable, errors.Damaged, errors.NewerFormat, errors.Conflict, errors.NotInstalled],
    ids=lambda kind: kind.code,
)
def test_what_the_store_says_reaches_the_caller_with_its_status(kind: type[OsqueueError]) -> None:
    error = kind("the store says so")
    error.permanent = True
    told = Caller(Api(Raising(error))).post(JOBS, {"payload": 1}).body["error"]
    answer = Caller(Api(Raising(error))).post(JOBS, {"payload": 1})
    assert (answer.status, told["code"]) == (STATUS[kind.code], kind.code)
    assert ("retry-after" in answer.response.headers) is (answer.status in (429, 503))


def test_a_defect_says_nothing_of_itself_but_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("osqueue").propagate = True
    with caplog.at_level(logging.ERROR, "osqueue.server"):
        answer = Caller(Api(Raising(ZeroDivisionError("of ours")))).post(JOBS, {"payload": "of the caller"})
    assert (answer.status, answer.code) == (500, "internal")
    assert b"ours" not in answer.response.body
    assert "of ours" in caplog.text
    assert "of the caller" not in caplog.text


def test_too_many_delayed_jobs_are_throttled_and_may_be_tried_again(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osqueue.core.spill.DELAYED_SPANS_MAX", 0)
    busy = caller.post(JOBS, {"payload": 1, "delay": 60})
    assert (busy.status, busy.code, busy.response.headers["retry-after"]) == (429, "throttled", "1")
    assert busy.body["error"]["retry_after"] == 1.0


# ── Hostile input ────────────────────────────────────────────────────────────
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"null", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"\xff\xfe", 400),
        (b'{"payload":"\xff"}', 400),
        (b'{"payload":"\\ud800"}', 400),
        (b'{"payload":NaN}', 400),
        (b'{"payload":01}', 400),
        (DEEP, 400),
        (b'{"payload":' + DEEP + b"}", 400),
        (b'{"jobs":' + DEEP + b"}", 400),
        (b"{}", 422),
        (b'{"payload":1,"priority":1e400}', 422),
        (b'{"payload":1,"priority":99999999999999999999999}', 422),
        (b'{"payload":1,"delay":1e300}', 422),
        (b'{"payload":1,"delay":true}', 422),
        (b'{"payload":1,"at":"yesterday"}', 422),
        (b'{"payload":1,"at":"2030-01-01T00:00:00"}', 422),
        (b'{"payload":1,"at":"0001-01-01T00:00:00Z"}', 422),
        (b'{"payload":1,"at":1,"delay":1}', 422),
        (b'{"payload":1,"id":""}', 422),
        (b'{"payload":1,"id":7}', 422),
        (b'{"payload":1,"id":"a\\u0000b"}', 422),
        (b'{"payload":1,"id":"\\u202e"}', 422),
        (b'{"payload":1,"kind":["a"]}', 422),
        (b'{"payload":1,"__proto__":{}}', 422),
        (b'{"payload":1,"\\u0000":1}', 422),
        (b'{"payload":1,"data":"AAAA"}', 422),
        (b'{"data":"AAAA","codec":""}', 422),
        (b'{"data":"AAAA","codec":"' + b"x" * 33 + b'"}', 422),
        (b'{"data":"A"}', 422),
        (b'{"jobs":{}}', 422),
        (b'{"jobs":null}', 422),
        (b'{"jobs":[],"more":1}', 422),
        (b'{"jobs":[],"codec":7}', 422),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
def test_bodies_that_make_no_sense_are_refused_and_queue_nothing(
    caller: Caller, body: bytes, status: int
) -> None:
    answer = caller.ask("POST", JOBS, body)
    assert answer.status == status
    assert answer.code in ("malformed", "rejected")
    assert caller.claim(10) == []


NAMES = [
    *(
        "..",
        "%2e%2e",
        "..%2f..",
        "a%2fb",
        "a/b",
        "A",
        "-a",
        "a" * 65,
        "%00",
        "a%00",
        "%ff",
        "é",
        "%F0%9F%92%A9",
    ),
    *("a%0d%0aset-cookie:x", "*", "${jndi:x}", "'or''='", "a.b", "%25", "%", "%zz", " a", "a%20"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("route", [each for each in ROUTES if "{queue}" in each.path], ids=lambda r: r.name)
def test_a_queues_name_is_a_name_wherever_it_stands(caller: Caller, route: Any, name: str) -> None:
    path = route.path.replace("{queue}", name).replace("{id}", "a")
    body = {"enqueue": {"payload": 1}, "complete": {"completions": []}, "heartbeat": {"leases": []}}
    more = {"change_job": {"result_ttl": 1}, "purge": {"jobs": ["a"]}, "configure": {"paused": True}}
    answer = caller.ask(route.method, path, {**body, **more}.get(route.name))
    assert answer.status in (400, 404, 405, 422)
    assert caller.get("/v1/queues").body["queues"] == []


@pytest.mark.parametrize(
    "path", ["/", "", "//", "/v1", "/v1/queues/", f"{JOBS}/", f"{QUEUE}/claims/x", "x" * 5_000]
)
def test_paths_that_lead_nowhere_are_404(caller: Caller, path: str) -> None:
    answer = caller.get(path)
    assert (answer.status, answer.code) == (404, "no_route")


@pytest.mark.parametrize("method", ["PUT", "TRACE", "get", "", "POST\r\n", "DELETE"])
def test_a_method_that_a_path_does_not_take_is_405_and_says_which_it_takes(
    caller: Caller, method: str
) -> None:
    answer = caller.ask(method, JOBS)
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.response.headers["allow"] == "GET, POST"


@pytest.mark.parametrize("name", ["~", "~!", "~%00", "~/wA", "~w4", "%00", "a" * 257, "%ED%A0%80", "%FF"])
@pytest.mark.parametrize("route", ["status", "cancel", "result", "story", "change_job"])
def test_an_id_that_cannot_be_one_is_refused(caller: Caller, route: str, name: str) -> None:
    found = BY_NAME[route]
    path = found.path.replace("{queue}", "mail").replace("{id}", name)
    answer = caller.ask(found.method, path, {"result_ttl": 1} if route == "change_job" else None)
    assert answer.status in (400, 404, 422)


@pytest.mark.parametrize(
    "query",
    [
        [("limit", "0")],
        [("limit", "1001")],
        [("limit", "1.0")],
        [("limit", "1"), ("limit", "2")],
        [("limit", "9" * 5_000)],
        [("limit", "\u0661")],
        [("state", "done")],
        [("cursor", "x")],
        [("cursor", "")],
        [("cursor", "WzAsMF0=\u0660")],
        [("cursor", "WzFlNDAwLDBd")],
        [("nope", "1")],
        [("\ud800", "1")],
    ],
)
def test_queries_that_make_no_sense_are_refused_by_name(caller: Caller, query: list[tuple[str, str]]) -> None:
    answer = caller.ask("GET", JOBS, query=query)
    assert (answer.status, answer.code) == (422, "rejected")
    assert answer.field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "1"}, "limit"),
        ({"wait": 20.1}, "wait"),
        ({"wait": -1}, "wait"),
        ({"lease": 0.5}, "lease"),
        ({"lease": 43201}, "lease"),
        ({"kinds": []}, "kinds"),
        ({"kinds": "welcome"}, "kinds"),
        ({"kinds": ["k"] * 5 + [1]}, "kinds[5]"),
        ({"worker": ""}, "worker"),
        ({"worker": "w" * 129}, "worker"),
        ({"worker": None}, "worker"),
        ({"depends_on": "g"}, "depends_on"),
    ],
)
def test_claims_that_make_no_sense_are_refused_by_name(caller: Caller, body: Any, field: str) -> None:
    caller.enqueue(1)
    answer = caller.post(f"{QUEUE}/claims", body)
    assert (answer.status, answer.field) == (422, field)
    assert len(caller.claim()) == 1


def test_a_body_at_the_limit_is_read_and_one_byte_more_is_not(caller: Caller) -> None:
    start, end = b'{"jobs":[', b"]}"
    full = start + b" " * (BODY_BYTES_MAX - len(start + end)) + end
    assert caller.ask("POST", JOBS, full).status == 200
    assert caller.ask("POST", JOBS, full + b" ").code == "too_large"


# ── In time ──────────────────────────────────────────────────────────────────
class Contended(WrappedStore):
    """Somebody else is always faster, and every request takes its time."""

    def __init__(self, inner: MemoryStore, machine: Any) -> None:
        super().__init__(inner)
        self.machine = machine

    def perform(self, request: StoreRequest) -> StoreReply:
        """Refuse every commit."""
        self.machine.advance(0.02)
        return Refused() if isinstance(request, PutIfMatch) else self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        """The same."""
        return self.perform(request)


def test_a_commit_that_does_not_come_through_is_answered_before_the_deadline(machine: Any) -> None:
    inner = MemoryStore(machine)
    Caller(Api(inner, machine=machine)).enqueue(1)
    began = machine.seconds
    answer = Caller(Api(Contended(inner, machine), machine=machine)).ask(
        "POST", JOBS, {"payload": 2}, deadline_s=3
    )
    assert answer.status == 503
    assert answer.code in ("timeout", "unavailable")
    assert "retry-after" in answer.response.headers
    assert machine.seconds - began <= 3.1


class Slow(MemoryStore):
    """A store with which time passes at the first request of one kind."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.machine, self.slow = machine, ""

    def perform(self, request: Any) -> Any:
        """Answer, late."""
        reply = super().perform(request)
        if self.slow and f"{type(request).__name__} {request.key}".find(self.slow) >= 0:
            self.slow = ""
            self.machine.advance(25)
        return reply


@pytest.mark.parametrize("slow", ["/bodies/", "PutIfMatch"])
def test_what_is_leased_too_late_to_be_answered_is_given_back(machine: Any, slow: str) -> None:
    store = Slow(machine)
    caller = Caller(Api(store, machine=machine), machine)
    caller.enqueue("x" * 5_000)
    store.slow = slow
    assert caller.post(f"{QUEUE}/claims", {"lease": 40_000}).status == 503
    stats = caller.get(QUEUE).body
    assert (stats["queued"], stats["processing"]) == (1, 0)
    assert caller.claim()[0]["attempt"] == 1


def test_nobody_waits_beyond_the_deadline(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "_await", lambda self, effect: machine.advance(effect.seconds + 1e-9))
    caller = Caller(Api(MemoryStore(machine), machine=machine))
    began = machine.seconds
    empty = caller.ask("POST", f"{QUEUE}/claims", {"wait": 20}, deadline_s=5)
    assert (empty.status, empty.body["reason"]) == (200, "empty")
    assert 3 <= machine.seconds - began <= 5


def test_a_request_without_time_is_not_begun(machine: Any) -> None:
    caller = Caller(Api(MemoryStore(machine), machine=machine))
    for path, body in ((JOBS, {"payload": 1}), (f"{QUEUE}/reap", None)):
        answer = caller.ask("POST", path, body, deadline_s=0)
        assert (answer.status, answer.code) == (503, "timeout")
    assert caller.get("/v1/queues").body["queues"] == []


def test_a_long_listing_ends_in_time_with_a_cursor(machine: Any) -> None:
    caller = Caller(Api(MemoryStore(machine), machine=machine))
    for n in range(40):
        caller.post(f"/v1/queues/q{n:02}/jobs", {"payload": 1})
    page = caller.ask("GET", "/v1/queues", deadline_s=2.5).body
    assert len(page["queues"]) == 32
    rest = caller.get("/v1/queues", cursor=page["cursor"]).body
    assert [each["queue"] for each in rest["queues"]] == [f"q{n}" for n in range(32, 40)]


# ── One object, many callers ─────────────────────────────────────────────────
def test_threads_share_one_server(caller: Caller) -> None:
    def work(name: str) -> None:
        for n in range(20):
            caller.post(f"/v1/queues/{name}/jobs", {"payload": n})

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "a", "b", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each["queued"] for each in caller.get("/v1/queues").body["queues"]] == [40, 40]


def test_queues_beyond_those_kept_warm_work_all_the_same(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osqueue.server.app.QUEUES_MAX", 2)
    for _ in range(2):
        for n in range(4):
            assert caller.post(f"/v1/queues/q{n}/jobs", {"payload": 1}).status == 200
    assert [each["queued"] for each in caller.get("/v1/queues").body["queues"]] == [2] * 4


def test_every_row_of_the_table_has_a_function_that_answers_it(caller: Caller) -> None:
    assert len(BY_NAME) == len(ROUTES)
    for route in ROUTES:
        answer = caller.ask(route.method, route.path.replace("{queue}", "mail").replace("{id}", "a"))
        assert answer.status not in (405, 500), route.name
        assert answer.status != 404 or answer.code == "not_found"


def test_a_function_answers_its_own_routes_alone() -> None:
    api = Api("memory://", routes=[BY_NAME["claim"]])
    assert api.answer(ApiRequest("POST", JOBS, (), b'{"payload":1}')).status == 404
    assert json.loads(api.answer(ApiRequest("POST", f"{QUEUE}/claims")).body) == {
        "jobs": [],
        "reason": "empty",
    }


# ── What is unknown ──────────────────────────────────────────────────────────
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_parameter_that_a_route_does_not_take_is_refused(caller: Caller, route: Any) -> None:
    path = route.path.replace("{queue}", "mail").replace("{id}", "x")
    answer = caller.ask(
        route.method, path, b"{}" if route.method in ("POST", "PATCH") else None, [("foo", "1")]
    )
    assert (answer.status, answer.code, answer.field) == (422, "rejected", "foo")
    known = ", ".join(each.name for each in route.query)
    assert (f"Known: {known}." if known else "takes none") in answer.body["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "field", "known"),
    [
        (JOBS, {"to": "ada"}, "to", "payload"),
        (f"{QUEUE}/claims", {"count": 2}, "count", "worker, limit, lease, kinds, wait"),
    ],
)
def test_an_unknown_field_is_answered_with_those_that_are_known(
    caller: Caller, path: str, body: Any, field: str, known: str
) -> None:
    answer = caller.post(path, body)
    assert (answer.status, answer.field) == (422, field)
    message = answer.body["error"]["message"]
    assert f"Known: {known}" in message
    assert ("put your data under `payload`" in message) is (path == JOBS)


def test_an_unknown_field_of_an_item_or_below_one_is_answered_in_the_same_way(caller: Caller) -> None:
    (told,) = caller.post(JOBS, {"jobs": [{"to": "ada"}]}).body["jobs"]
    assert "put your data under `payload`" in told["error"]["message"]
    ending = {"job_id": caller.key(), "token": "t", "error": {"message": "no", "trace": "x"}}
    (told,) = caller.post(f"{QUEUE}/completions", {"completions": [ending]}).body["completions"]
    assert told["error"]["message"] == "error.trace: no such field. Known: message, type, traceback."
