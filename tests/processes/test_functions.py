"""The Lambda handlers, loaded as Lambda does: events of three kinds in, answers out, logs and metrics on the side."""

from __future__ import annotations

import base64
import json
import logging
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from awslambdaric.lambda_runtime_marshaller import to_json

from osqueue import Queue
from osqueue.aws_lambda.gateway_event import seconds_left
from osqueue.aws_lambda.schedule import shuffled
from osqueue.contract.functions import (
    BODY_BYTES_MAX,
    EVENT_BUS,
    FUNCTIONS,
    LOG_LEVEL,
    PAYLOAD_BYTES_MAX,
    STORE,
)
from osqueue.contract.operations import ROUTES
from osqueue.errors import Rejected
from osqueue.objects.layout import root_of
from osqueue.stores.address import open_store
from osqueue.stores.base import Put
from osqueue.stores.memory import MemoryStore
from tests.support.functions_at_work import (
    Context,
    Handlers,
    direct,
    environment,
    events,
    http,
    load,
    measured,
    printed,
)

JOBS = "/v1/queues/emails/jobs"
CLAIMS = "/v1/queues/emails/claims"
SECRET = "the-secret-in-the-payload"
EVENTS = events()

pytestmark = pytest.mark.usefixtures("runtime_log")


@pytest.fixture
def service(tmp_path: Any) -> str:
    """A name of this test's own."""
    return f"osqueue-{tmp_path.name}"


@pytest.fixture
def address(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, service: str) -> str:
    address = f"memory://{tmp_path}"
    for name, value in environment(address, service).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(EVENT_BUS, raising=False)
    return address


@pytest.fixture
def handlers(address: str) -> dict[str, Any]:
    return Handlers()


# ── Events ───────────────────────────────────────────────────────────────────
EXPECTED = {
    "enqueue-http": (200, "queued"),
    "enqueue-many-http": (200, "rejected"),
    "enqueue-direct": (200, "queued"),
    "enqueue-wait-direct": (202, "wait_timeout"),
    "claim-http": (200, "jobs"),
    "claim-direct": (200, "jobs"),
    "claim-turn-http": (200, "lease_lost"),
    "claim-turn-direct": (200, "claims"),
    "complete-http": (200, "lease_lost"),
    "complete-direct": (200, "lease_lost"),
    "heartbeat-http": (200, "lease_lost"),
    "heartbeat-direct": (200, "lease_lost"),
    "jobs-http": (200, "jobs"),
    "jobs-status-http": (404, "order/7 ü"),
    "jobs-direct": (404, "not_found"),
    "jobs-cancel-direct": (404, "not_found"),
    "queues-http": (200, "queues"),
    "queues-configure-http": (200, '"paused":true'),
    "queues-direct": (200, "jobs"),
    "queues-health-http": (200, "ok"),
    "reaper-http": (200, "expired"),
    "reaper-direct": (200, "expired"),
}


def test_every_function_has_an_event_of_each_kind() -> None:
    kinds = {name.rpartition("-")[2] for name in EVENTS}
    assert kinds == {"http", "direct", "schedule"}
    for function in FUNCTIONS:
        mine = {name.rpartition("-")[2] for name, (owner, _) in EVENTS.items() if owner == function.name}
        assert mine == {"http", "direct"} | ({"schedule"} if function.schedule_minutes else set())


@pytest.mark.parametrize("name", sorted(EVENTS.keys() - {"reaper-schedule"}))
def test_the_sample_events_are_answered(handlers: dict[str, Any], name: str) -> None:
    function, event = EVENTS[name]
    answer = handlers[function](event, Context())
    status, part = EXPECTED[name]
    if name.endswith("-http"):
        assert answer["statusCode"] == status
        assert answer["headers"]["content-type"] == "application/json"
        text = answer["body"]
    else:
        assert answer["status"] == status
        text = json.dumps(answer["body"], ensure_ascii=False)
    assert part in text.replace('": ', '":')
    json.dumps(answer)


def test_both_ways_carry_the_same_bodies(handlers: dict[str, Any]) -> None:
    queued = handlers["enqueue"](direct("POST", JOBS, {"payload": {"to": "ada"}, "id": "a"}), Context())
    again = handlers["enqueue"](http("POST", JOBS, '{"payload":{"to":"ada"},"id":"a"}'), Context())
    assert json.loads(again["body"]) == {**queued["body"], "status": "duplicate"}
    claimed = json.loads(handlers["claim"](http("POST", CLAIMS, "{}"), Context())["body"])["jobs"]
    lease = {"job_id": claimed[0]["job_id"], "token": claimed[0]["token"]}
    done = handlers["complete"](
        direct(
            "POST", "/v1/queues/emails/completions", {"completions": [lease | {"result": {"sent": True}}]}
        ),
        Context(),
    )
    assert done == {"status": 200, "body": {"completions": [{"job_id": lease["job_id"], "ok": True}]}}
    result = handlers["jobs"](direct("GET", f"{JOBS}/a/result", query={"wait": ["5"]}), Context())
    assert result["body"]["result"] == {"sent": True}
    changed = handlers["jobs"](direct("PATCH", f"{JOBS}/a", {"result_ttl": 60}), Context())
    assert changed == {"status": 204}
    assert handlers["jobs"](http("PATCH", f"{JOBS}/a", '{"result_ttl":60}'), Context())["statusCode"] == 204


def test_a_function_answers_its_own_routes_and_no_others(handlers: dict[str, Any]) -> None:
    for route in ROUTES:
        names = {
            "queue": "emails",
            "id": "a",
            "schedule": "nightly",
            "group": "g",
            "worker": "w",
            "pacer": "p",
        }
        path = route.path.format(**names, batch="01a20abb-8009-7000-b1c0-cf5b4b808b00")
        for each in FUNCTIONS:
            status = handlers[each.name](direct(route.method, path), Context())["status"]
            assert each.name == route.function or status in (404, 405), (route.name, each.name, status)


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "text",
        {},
        {"method": "POST"},
        {"path": JOBS},
        {"method": 1, "path": JOBS},
        {"method": "POST", "path": JOBS, "more": 1},
        {"method": "POST", "path": JOBS, "query": "wait=1"},
        {"method": "POST", "path": JOBS, "query": {"wait": 1}},
        {"method": "POST", "path": JOBS, "query": {"wait": [1]}},
        {"method": "POST", "path": JOBS, "body": {"payload": float("nan")}},
        {"method": "POST", "path": JOBS, "body": {"payload": float("inf")}},
        {"method": "POST", "path": JOBS, "body": {"payload": "\ud800"}},
        {"method": "POST", "path": "\ud800", "body": {"payload": 1}},
        {"source": "aws.events"},
        {"requestContext": 1},
        {"requestContext": {"http": {}}},
    ],
    ids=repr,
)
def test_direct_events_that_make_no_sense_are_answered_as_malformed(
    handlers: dict[str, Any], event: Any
) -> None:
    answer = handlers["enqueue"](event, Context())
    assert (answer["status"], answer["body"]["error"]["code"]) == (400, "malformed")
    assert handlers["claim"](direct("POST", CLAIMS), Context())["body"]["jobs"] == []


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"body": "not base64", "isBase64Encoded": True}, 400),
        ({"body": base64.b64encode(b"\xff").decode(), "isBase64Encoded": True}, 400),
        ({"body": "\ud800"}, 400),
        ({"rawQueryString": "wait=%ff"}, 400),
        ({"rawQueryString": "wait=1&wait=2", "body": '{"payload":1}'}, 422),
        ({"rawQueryString": "&".join(["a=1"] * 2_000)}, 400),
        ({}, 400),
    ],
)
def test_requests_that_cannot_be_read_are_refused(
    handlers: dict[str, Any], more: dict[str, Any], status: int
) -> None:
    answer = handlers["enqueue"](http("POST", JOBS, **more), Context())
    assert answer["statusCode"] == status
    assert json.loads(answer["body"])["error"]["code"] in ("malformed", "rejected")


def test_what_the_gateway_decoded_is_told_from_what_it_did_not(handlers: dict[str, Any]) -> None:
    job = handlers["enqueue"](direct("POST", JOBS, {"payload": 1, "id": "a/b%2Fc?d"}), Context())["body"][
        "job_id"
    ]
    event = http(
        "GET",
        f"{JOBS}/a/b%2Fc",
        routeKey="GET /v1/queues/{queue}/jobs/{id}",
        pathParameters={"queue": "emails", "id": "a/b%2Fc?d"},
    )
    assert json.loads(handlers["jobs"](event, Context())["body"])["job_id"] == job


def test_unknown_paths_and_methods_are_answered_in_our_words(handlers: dict[str, Any]) -> None:
    nowhere = handlers["queues"](http("GET", "/nowhere"), Context())
    assert (nowhere["statusCode"], json.loads(nowhere["body"])["error"]["code"]) == (404, "no_route")
    wrong = handlers["claim"](http("PUT", CLAIMS), Context())
    assert (wrong["statusCode"], wrong["headers"]["allow"]) == (405, "POST")


# ── Contents ─────────────────────────────────────────────────────────────────
def test_a_large_answer_fits_into_what_lambda_gives(handlers: dict[str, Any], address: str) -> None:
    q: Queue[Any] = Queue(open_store(address), "emails")
    for _ in range(8):
        q.enqueue('"' * 1_000_000)  # every character of it is escaped in JSON, and again in an envelope
    by_http = handlers["claim"](http("POST", CLAIMS, '{"limit":8}'), Context())
    assert len(json.dumps(by_http)) <= BODY_BYTES_MAX
    body = base64.b64decode(by_http["body"]) if by_http["isBase64Encoded"] else by_http["body"]
    leased = json.loads(body)["jobs"]
    answer = handlers["claim"](direct("POST", CLAIMS, {"limit": 8}), Context())
    assert len(json.dumps(answer)) <= BODY_BYTES_MAX
    assert all(each["payload"] == '"' * 1_000_000 for each in [*leased, *answer["body"]["jobs"]])


NUMBERS = [
    "1e400",
    "-1E+9999999999999999999999",  # no decimal holds that either
    "1.5",
    "0.30000000000000000001",
    "123456789012345678901234567890",
    "1" * 5_000,  # Python refuses to read it as a whole number
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda each: each[:20])
def test_numbers_python_cannot_hold_come_out_as_they_went_in(handlers: dict[str, Any], number: str) -> None:
    handlers["enqueue"](http("POST", JOBS, f'{{"payload":[{number}]}}'), Context())
    answer = handlers["claim"](direct("POST", CLAIMS, {}), Context())
    assert f"[{number}]" in to_json(answer)


@pytest.mark.parametrize("item", ["1", "1e15", "9e-4", '"\\u0001"', '"\U0001f600"', "[]"])
def test_whatever_the_payloads_an_answer_fits_into_what_lambda_gives(
    handlers: dict[str, Any], monkeypatch: pytest.MonkeyPatch, item: str
) -> None:
    monkeypatch.setenv("AWS_EXECUTION_ENV", "AWS_Lambda_python3.14")  # as the functions run
    count = (PAYLOAD_BYTES_MAX - 2) // (len(item.encode()) + 1)
    payload = f"[{','.join([item] * count)}]"
    for _ in range(20):
        handlers["enqueue"](http("POST", JOBS, f'{{"payload":{payload}}}'), Context())
    claims = (direct("POST", CLAIMS, {"limit": 20}), http("POST", CLAIMS, '{"limit":20}'))
    leased = [len(to_json(handlers["claim"](event, Context())).encode()) for event in claims]
    assert max(leased) <= BODY_BYTES_MAX
    assert leased[0] > BODY_BYTES_MAX / 2  # and is not small for that


# ── Time ─────────────────────────────────────────────────────────────────────
class Hanging(MemoryStore):
    """A store that does not let go of a request until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def perform(self, request: Any) -> Any:
        """Wait, then answer."""
        self.release.wait()
        return super().perform(request)


def test_a_store_that_hangs_is_answered_for_before_the_function_is_stopped(
    handlers: dict[str, Any], monkeypatch: pytest.MonkeyPatch, machine: Any
) -> None:
    enqueue = handlers["enqueue"]
    hanging = Hanging()
    # Its time stands still: the API itself never finds that it is too late to ask the store.
    monkeypatch.setattr(enqueue.api, "machine", machine)
    monkeypatch.setattr("osqueue.aws_lambda.handler.GRACE_S", 0.05)
    monkeypatch.setattr(enqueue.meter, "inner", hanging)
    answer = enqueue(http("POST", JOBS, '{"payload":1}'), Context(seconds=2.2))
    assert (answer["statusCode"], json.loads(answer["body"])["error"]["code"]) == (503, "unavailable")
    assert answer["headers"]["retry-after"] == "1"
    hanging.release.set()  # the process is thawed, and the next request finds everything in order
    assert enqueue(http("POST", JOBS, '{"payload":1}'), Context())["statusCode"] == 200


def test_a_cold_start_is_part_of_what_the_gateway_waits() -> None:
    def event(age_s: float) -> dict[str, Any]:
        return {"requestContext": {"timeEpoch": round(1_000_000 - age_s * 1000)}}

    assert seconds_left(event(0), 1_000_000) == 30
    assert seconds_left(event(9), 1_000_000) == 21
    assert seconds_left(event(-5), 1_000_000) == 30  # clocks differ
    assert seconds_left({"requestContext": {}}, 1_000_000) == 30


# ── Logs and metrics ─────────────────────────────────────────────────────────
def test_logs_tell_of_jobs_and_never_of_contents(
    handlers: dict[str, Any], service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"payload": {"text": SECRET}}
    job = handlers["enqueue"](direct("POST", JOBS, body), Context())["body"]["job_id"]
    handlers["enqueue"](http("POST", JOBS, json.dumps({**body, "priority": SECRET})), Context())
    handlers["enqueue"](http("POST", JOBS, json.dumps(SECRET)), Context())
    handlers["enqueue"](http("POST", JOBS, f'{{"payload":"{SECRET}'), Context())
    lease = handlers["claim"](http("POST", CLAIMS, '{"worker":"ada"}'), Context())
    held = {name: json.loads(lease["body"])["jobs"][0][name] for name in ("job_id", "token")}
    ends = "/v1/queues/emails/completions"
    handlers["complete"](direct("POST", ends, {"completions": [held | {"result": SECRET}]}), Context())
    handlers["complete"](direct("POST", ends, {"completions": [held | {"error": SECRET}]}), Context())
    handlers["jobs"](direct("GET", f"{JOBS}/{job}/result"), Context())
    out = capsys.readouterr().out
    assert SECRET not in out
    assert held["token"] not in out
    told = [line for line in printed(out) if "message" in line]
    assert [line["message"] for line in told] == [*["enqueue"] * 4, "claim", "complete", "complete", "result"]
    assert {line["queue"] for line in told} == {"emails"}
    assert {line["service"] for line in told} == {service}
    first, second, claimed = told[0], told[1], told[4]
    assert (first["jobs"], first["status"], first["correlation_id"]) == ([job], 200, Context.aws_request_id)
    assert (second["code"], second["correlation_id"]) == ("rejected", "JKJaXmPLvHcESHA=")
    assert (claimed["jobs"], claimed["attempts"], claimed["worker"]) == ([job], [1], "ada")
    assert first["requests"]["put"] >= 2


def test_what_others_have_to_say_is_logged_from_warnings_on(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """botocore tells at DEBUG what it signs, with the session's token; whoever has that may read payloads."""
    handlers["enqueue"](direct("POST", JOBS, {"payload": 1}), Context())
    capsys.readouterr()
    for name in ("botocore.auth", "urllib3.connectionpool"):
        logging.getLogger(name).debug("a secret")
        logging.getLogger(name).info("another")
        logging.getLogger(name).warning("of %s", name)
    told = printed(capsys.readouterr().out)
    assert [each["message"] for each in told] == ["of botocore.auth", "of urllib3.connectionpool"]
    assert {each["correlation_id"] for each in told} == {Context.aws_request_id}


@pytest.mark.parametrize("level", ["", "CHATTY", "10"])
def test_a_level_that_is_none_is_refused_by_its_variable(
    address: str, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv(LOG_LEVEL, level)
    with pytest.raises(Rejected, match=f"{LOG_LEVEL}: {level!r} is none of DEBUG, INFO, WARNING, ERROR"):
        load("enqueue")


def test_the_level_says_which_requests_are_told(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(level: str, path: str) -> list[str]:
        monkeypatch.setenv(LOG_LEVEL, level)
        load("claim")(direct("POST", path, {}), Context())
        return [each["level"] for each in printed(capsys.readouterr().out) if "status" in each]

    assert told("debug", CLAIMS) == ["DEBUG"]
    assert told("INFO", CLAIMS) == []
    assert told("INFO", "/v1/queues/No Name/claims") == ["INFO"]  # one that was refused is news
    assert told("WARNING", "/v1/queues/No Name/claims") == []


def test_a_line_that_cannot_be_printed_takes_no_answer_away(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osqueue.metering.lines._print", Mock(side_effect=TypeError("no JSON")))
    assert handlers["enqueue"](direct("POST", JOBS, {"payload": 1}), Context())["status"] == 200
    (told,) = printed(capsys.readouterr().out)
    assert (told["level"], told["errorType"]) == ("ERROR", "TypeError")


def test_logs_tell_which_schedule(handlers: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    nightly = "/v1/queues/emails/schedules/nightly"
    assert handlers["queues"](direct("PUT", nightly, {"every": 60}), Context())["status"] == 200
    (told,) = [line for line in printed(capsys.readouterr().out) if "message" in line]
    assert (told["message"], told["queue"], told["schedule"]) == ("put_schedule", "emails", "nightly")


def test_an_idle_worker_leaves_no_line(handlers: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        assert handlers["claim"](direct("POST", CLAIMS), Context())["status"] == 200
    assert capsys.readouterr().out == ""


def test_a_log_line_is_short_whatever_the_path(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"/v1/queues/{'x' * 100_000}/jobs/{'y' * 100_000}"
    assert handlers["jobs"](direct("GET", path), Context())["status"] == 422
    assert len(capsys.readouterr().out) < 2_000


def test_without_a_store_a_function_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STORE, raising=False)
    with pytest.raises(Rejected, match=STORE):
        load("enqueue")


def test_with_a_bus_every_transition_is_sent_to_it(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[dict[str, Any]] = []

    class Bus:
        def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - boto3's name
            sent.extend(Entries)
            return {"FailedEntryCount": 0, "Entries": []}

    monkeypatch.setenv(EVENT_BUS, "osqueue-events")
    enqueue = load("enqueue")
    (sink,) = enqueue.api.sinks
    sink.inner._client = Bus()
    enqueue(direct("POST", JOBS, {"payload": SECRET}), Context())
    assert [(each["EventBusName"], each["DetailType"]) for each in sent] == [("osqueue-events", "job.queued")]
    assert SECRET not in str(sent)


# ── The schedule ─────────────────────────────────────────────────────────────
SCHEDULE = EVENTS["reaper-schedule"][1]


def fill(handlers: dict[str, Any], *queues: str) -> None:
    for queue in queues:
        handlers["enqueue"](direct("POST", f"/v1/queues/{queue}/jobs", {"payload": 1}), Context())


def test_the_schedule_looks_after_every_queue_and_measures_it(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fill(handlers, "a", "b", "c")
    capsys.readouterr()
    assert handlers["reaper"](SCHEDULE, Context(300)) == {"queues": 3, "troubles": 0, "left": 0}
    found = measured(printed(capsys.readouterr().out))
    passes = found.pop("")
    assert found.keys() == {"a", "b", "c"}
    assert {(each["Depth"][0], each["DeadLetters"][0]) for each in found.values()} == {(1, 0)}
    assert all(each["OldestAge"][0] >= 0 for each in found.values())
    assert passes["ReaperPasses"] == [1]


def test_a_queue_in_trouble_is_told_and_stops_no_other(
    handlers: dict[str, Any], address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(handlers, "bad", "good")
    open_store(address).perform(Put(f"{root_of('bad', 0)}head", b"not a head"))
    capsys.readouterr()
    assert handlers["reaper"](SCHEDULE, Context(300)) == {"queues": 2, "troubles": 1, "left": 0}
    told = printed(capsys.readouterr().out)
    troubles = [line for line in told if line.get("level") == "ERROR"]
    assert {(line["queue"], line["code"]) for line in troubles} == {("bad", "damaged")}
    assert {line["queue"] for line in told if "Depth" in line} == {"good"}
    assert [line["ReaperPasses"] for line in told if "ReaperPasses" in line] == [[0]]


def test_a_pass_that_runs_out_of_time_says_what_it_left(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fill(handlers, "a", "b")
    capsys.readouterr()
    assert handlers["reaper"](SCHEDULE, Context(3)) == {"queues": 0, "troubles": 0, "left": 2}
    told = printed(capsys.readouterr().out)
    assert [line["queues_left"] for line in told if "queues_left" in line] == [2]
    assert [line["ReaperPasses"] for line in told if "ReaperPasses" in line] == [[0]]


def test_a_pass_over_a_slow_store_ends_before_the_function_is_stopped(
    handlers: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    machine: Any,
) -> None:
    fill(handlers, "a", "b")
    reaper = handlers["reaper"]
    perform = reaper.meter.inner.perform

    def slow(request: Any) -> Any:
        machine.advance(1.0)
        return perform(request)

    for holder in (reaper, reaper.api):
        monkeypatch.setattr(holder, "machine", machine)
    monkeypatch.setattr(reaper.meter.inner, "perform", slow)
    for seconds in range(8, 20):
        began = machine.monotonic()
        capsys.readouterr()
        reaper(SCHEDULE, Context(seconds))
        assert machine.monotonic() - began < seconds
        assert "ReaperPasses" in capsys.readouterr().out


def test_the_order_of_queues_changes_from_pass_to_pass(machine: Any) -> None:
    names = [f"q{n}" for n in range(10)]
    orders = {tuple(shuffled(names, machine)) for _ in range(20)}
    assert len(orders) > 10
    assert all(sorted(order) == names for order in orders)


def test_only_the_reaper_hears_the_schedule(handlers: dict[str, Any]) -> None:
    assert handlers["enqueue"](SCHEDULE, Context())["status"] == 400
