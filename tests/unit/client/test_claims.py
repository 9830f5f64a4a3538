"""The flows of a remote queue: jobs on their way in and out. No network."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import LeaseLost, NotSupported, Queue, Rejected, Throttled
from osqueue.client.call import REQUEST_BYTES_MAX
from osqueue.client.transports.base import ApiCall, CallOutcome
from osqueue.clock import MACHINE
from osqueue.contract.error_codes import TooLarge
from osqueue.contract.functions import CONTENT_BYTES_MAX, PAYLOAD_BYTES_MAX
from osqueue.devstack.gateway import StackRequest, event_of
from osqueue.devstack.invocation import EVENT_BYTES_MAX
from tests.support.scripted import (
    JOB,
    KEY,
    LATE,
    Say,
    Scripted,
    accepts,
    fault,
    leased,
    ok,
    told,
    turned,
)


@pytest.fixture
def opened(machine: Any) -> Callable[..., Any]:
    def open_queue(*says: Say, **options: Any) -> Any:
        return Queue[Any](Scripted(says, machine), "mail", machine=machine, **options)

    return open_queue


# ── Jobs in ──────────────────────────────────────────────────────────────────
def test_a_job_travels_with_what_differs_from_the_defaults(opened: Any) -> None:
    q = opened(accepts)
    q.enqueue({"to": "ada"})
    q.enqueue(1, id="a", kind="k", priority=0, delay=1.5, max_attempts=1, result_ttl=60)
    (plain,), (full,) = (body["jobs"] for body in q.transport.bodies)
    assert set(plain) == {"job_id", "payload"}
    del full["job_id"]
    assert full == {
        "payload": 1,
        "id": "a",
        "kind": "k",
        "priority": 0,
        "delay": 1.5,
        "max_attempts": 1,
        "result_ttl": 60.0,
    }


def test_calls_take_the_shards_in_turn(opened: Any) -> None:
    q = opened(accepts)
    keys = [bytes.fromhex(q.enqueue(at).job_id.replace("-", "")) for at in range(512)]
    for shards in (2, 3, 64):
        counts = [sum(key[15] % shards == each for key in keys) for each in range(shards)]
        assert max(counts) - min(counts) <= 2


def test_many_jobs_travel_a_thousand_at_a_time_in_order(opened: Any) -> None:
    q = opened(accepts)
    done = q.enqueue_many({"payload": at} for at in range(2_500))
    assert [len(body["jobs"]) for body in q.transport.bodies] == [1_000, 1_000, 500]
    sent = list(itertools.chain.from_iterable(body["jobs"] for body in q.transport.bodies))
    assert [each["payload"] for each in sent] == list(range(2_500))
    assert [each.job_id for each in done] == [each["job_id"] for each in sent]
    assert len({each.job_id for each in done}) == 2_500


def test_large_jobs_travel_in_calls_of_bounded_size(opened: Any) -> None:
    q = opened(accepts)
    q.enqueue_many([{"payload": "x" * (PAYLOAD_BYTES_MAX - 2)}] * 50)
    sizes = [len(call.body) for call in q.transport.calls]
    assert len(sizes) == 3
    assert max(sizes) <= REQUEST_BYTES_MAX + 1_000
    assert sum(len(body["jobs"]) for body in q.transport.bodies) == 50


@pytest.mark.parametrize("payload", [[{"a": "b"}] * 500, "\\" * 3_000, "é" * 3_000, ["\n"] * 1_000])
def test_a_call_fits_into_an_event_whatever_is_in_its_jobs(opened: Any, payload: Any) -> None:
    q = opened(accepts)
    q.enqueue_many([{"payload": payload}] * 2_000)
    headers = (("content-type", "application/json"),)
    for call in q.transport.calls:
        request = StackRequest("POST", "/v1/queues/mail/jobs", headers, call.body)
        event = event_of(request, call.route, {"queue": "mail"}, "127.0.0.1:8787")
        assert event["body"] == call.body.decode()
        assert len(json.dumps(event, ensure_ascii=False).encode()) < EVENT_BYTES_MAX


def test_a_payload_at_the_limit_is_sent_and_one_past_it_is_not(opened: Any) -> None:
    q = opened(accepts)
    at, past = q.enqueue_many(
        [{"payload": "x" * size} for size in (PAYLOAD_BYTES_MAX - 2, CONTENT_BYTES_MAX - 1)]
    )
    assert (at.status, past.status) == ("queued", "rejected")
    with pytest.raises(TooLarge, match=r"s3://bucket/prefix") as caught:
        q.enqueue("x" * CONTENT_BYTES_MAX)
    assert caught.value.field == "payload"
    assert len(q.transport.calls) == 1


def test_bad_items_fail_alone_before_anything_is_sent(opened: Any) -> None:
    q = opened(accepts)
    items = [
        {"payload": 1},
        {"payload": 2, "priority": 10},
        {"id": "x"},
        7,
        {"payload": 3, "depends_on": "g"},
    ]
    done = q.enqueue_many(items)
    assert [each.status for each in done] == ["queued", *["rejected"] * 4]
    assert [each.error.field for each in done[1:]] == ["priority", "payload", "jobs", "depends_on"]
    assert isinstance(done[4].error, NotSupported)
    assert [each["payload"] for each in q.transport.bodies[0]["jobs"]] == [1]
    assert q.enqueue_many([]) == []
    assert q.enqueue_many([{}])[0].status == "rejected"
    with pytest.raises(Rejected, match="jobs"):
        q.enqueue_many(7)
    assert len(q.transport.calls) == 1


def test_what_follows_a_call_that_failed_is_not_sent_and_says_so(opened: Any) -> None:
    q = opened(accepts, fault("too_large", 413))
    done = q.enqueue_many([{"payload": at} for at in range(3_001)])
    assert len(q.transport.calls) == 2
    assert [each.status for each in done] == ["queued"] * 1_000 + ["rejected"] * 2_001
    assert {each.error.code for each in done[1_000:2_000]} == {"too_large"}
    assert {each.error.code for each in done[2_000:]} == {"throttled"}  # which says: not applied
    with pytest.raises(TooLarge):
        opened(fault("too_large", 413)).enqueue_many([{"payload": at} for at in range(1_001)])


def test_answers_about_jobs_become_what_callers_see(opened: Any) -> None:
    answers = [
        {"status": "duplicate", "job_id": KEY, "state": "processing"},
        {"status": "completed", "job_id": KEY, "state": "completed", "result": {"n": 1}},
        {"status": "completed", "job_id": KEY, "state": "completed", "data": "gaFuAQ==", "codec": "msgpack"},
        {"status": "completed", "job_id": KEY, "state": "completed", "data": "AAAA", "codec": "odd"},
        {"status": "rejected", "error": {"code": "throttled", "message": "no", "retry_after": 2.0}},
    ]
    done = opened(ok({"jobs": answers})).enqueue_many([{"payload": 1}] * 5)
    assert [each.status for each in done] == [each["status"] for each in answers]
    assert [each.result for each in done[:3]] == [None, {"n": 1}, {"n": 1}]
    assert isinstance(done[3].error, Rejected)
    assert isinstance(done[4].error, Throttled)
    assert done[4].error.retry_after == 2.0
    with pytest.raises(Throttled):
        opened(ok({"jobs": answers[4:]})).enqueue(1)


def test_a_kept_result_that_no_answer_had_room_for_is_told_with_its_job(opened: Any) -> None:
    large = {"code": "too_large", "message": "read it alone", "field": "result"}
    answers = [
        {"status": "completed", "job_id": KEY, "state": "completed", "error": large},
        {"status": "queued", "job_id": KEY, "state": "queued"},
    ]
    one, two = opened(ok({"jobs": answers})).enqueue_many([{"payload": 1}] * 2)
    assert (one.status, one.job_id, one.state, one.result) == ("completed", KEY, "completed", None)
    assert (type(one.error), one.error.field, two.status) == (TooLarge, "result", "queued")
    for call in (lambda q: q.enqueue(1, id="a"), lambda q: q.enqueue_and_wait(1, id="a")):
        q = opened(ok({"jobs": answers[:1]}))
        with pytest.raises(TooLarge, match="read it alone"):  # and not a result of None
            call(q)
        assert len(q.transport.calls) == 1


class Odd:
    """A serialiser of one's own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def dumps(self, value: Any) -> bytes:
        return f"<{value}>".encode()

    def loads(self, data: bytes, type: Any) -> Any:
        return data.decode()[1:-1]


def test_other_serialisers_travel_as_base64_with_their_name(opened: Any) -> None:
    q = opened(accepts, leased(payload=None, data="PHg+", codec="odd"), told(), serializer=Odd("odd"))
    q.enqueue("x")
    (job,) = q.transport.bodies[0]["jobs"]
    assert (base64.b64decode(job["data"]), q.transport.bodies[0]["codec"]) == (b"<x>", "odd")
    (lease,) = q.claim()
    assert lease.payload == "x"
    lease.complete("y")
    (ending,) = q.transport.bodies[2]["completions"]
    assert (base64.b64decode(ending["data"]), q.transport.bodies[2]["codec"]) == (b"<y>", "odd")


def test_a_serialiser_that_claims_to_be_json_and_is_not_breaks_no_request(opened: Any) -> None:
    with pytest.raises(Rejected, match="another name"):
        opened(accepts, serializer=Odd("json")).enqueue("x")


# ── Jobs out ─────────────────────────────────────────────────────────────────
def test_a_lease_holds_what_the_api_told(opened: Any, machine: Any) -> None:
    q = opened(leased(id="a", cancel_requested=True))
    (lease,) = q.claim(5, worker="w", lease=30, kinds=["k", "j"])
    assert q.transport.bodies == [{"limit": 5, "worker": "w", "lease": 30.0, "kinds": ["j", "k"]}]
    assert (lease.job_id, lease.token, lease.attempt, lease.max_attempts) == (KEY, "t-0", 2, 3)
    assert (lease.run, lease.priority, lease.kind, lease.payload) == (5, 1, "k", {"to": "ada"})
    assert lease.enqueued_at.isoformat() == "2030-01-31T08:00:00+00:00"
    assert lease.cancel_requested
    assert lease.seconds_left == 30
    machine.advance(10)
    assert lease.seconds_left == 20


def test_a_payload_that_cannot_be_given_is_raised_when_it_is_looked_at(opened: Any) -> None:
    q = opened(
        leased(payload=None, error={"code": "too_large", "message": "too large for an answer"}), told()
    )
    (lease,) = q.claim()
    with pytest.raises(Rejected, match="too large for an answer"):
        _ = lease.payload
    lease.fail("cannot read it")


@pytest.mark.parametrize("reason", ["empty", "paused", "in_flight_limit"])
def test_an_empty_claim_tells_why(opened: Any, reason: str) -> None:
    leases = opened(ok({"jobs": [], "reason": reason})).claim()
    assert (list(leases), leases.reason) == ([], reason)


def test_a_claim_that_waits_asks_again_at_a_bounded_rate_and_lets_no_function_sleep(
    opened: Any, machine: Any
) -> None:
    q = opened(ok({"jobs": [], "reason": "empty"}))
    began = machine.monotonic()
    assert q.claim(wait=63.1) == []
    assert machine.monotonic() - began == pytest.approx(63.1)
    assert len(q.transport.calls) == 6 + 30  # in the first 3.1 s, and in the minute after
    assert all("wait" not in body for body in q.transport.bodies)
    q = opened(ok({"jobs": []}), ok({"jobs": []}), leased())
    assert len(q.claim(wait=60)) == 1
    assert len(q.transport.calls) == 3


@pytest.mark.parametrize(
    ("scope", "after", "calls"),
    [
        ("queue", 30.0, 5),  # at 0, 30, 60, 90 and 100 s: nothing starts sooner
        ("queue", 3_600.0, 3),  # a minute at most, since a limit may be lifted
        ("kind", 3_600.0, 6 + 49),  # a job of another kind may come
        ("queue", 0.001, 1 + 1_000),  # whoever comes too late for each start asks ten times a second
    ],
)
def test_a_claim_that_waits_for_a_rate_asks_again_when_something_may_start(
    opened: Any, machine: Any, scope: str, after: float, calls: int
) -> None:
    q = opened(ok({"jobs": [], "reason": "rate_limited", "retry_after": after, "scope": scope}))
    leases = q.claim(wait=100)
    assert (list(leases), leases.reason, leases.retry_after, leases.scope) == (
        [],
        "rate_limited",
        after,
        scope,
    )
    assert len(q.transport.calls) == pytest.approx(calls, abs=1)


def test_a_worker_rests_until_its_queue_may_start_something(opened: Any, machine: Any) -> None:
    flows = opened()._flows
    waiter = flows.work_waiter(None, 1.0)
    for empty, closed, least, most in ((1, 30.0, 30.0, 37.5), (9, 0.3, 0.3, 0.375), (9, -5.0, 1.0, 1.25)):
        waiter.empty, waiter.closed_until = empty, machine.monotonic() + closed
        (effect,) = flows.rest(waiter)
        assert least <= effect.seconds <= most


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": 1_001},
        {"lease": 0},
        {"wait": -1},
        {"worker": ""},
        {"kinds": "k"},
        {"kinds": []},
    ],
    ids=repr,
)
def test_a_claim_that_makes_no_sense_sends_nothing(opened: Any, options: dict[str, Any]) -> None:
    q = opened(leased())
    with pytest.raises(Rejected, match=next(iter(options))):
        q.claim(**options)
    assert q.transport.calls == []


ENDINGS: list[tuple[Callable[[Any], Any], dict[str, Any]]] = [
    (lambda lease: lease.complete(), {}),
    (lambda lease: lease.complete({"n": 1}), {"result": {"n": 1}}),
    (lambda lease: lease.fail("no"), {"error": "no"}),
    (
        lambda lease: lease.fail("no", retry_in=2.5, retry=False),
        {"error": "no", "retry_in": 2.5, "retry": False},
    ),
    (lambda lease: lease.fail(KeyError("x")), {"error": {"message": "'x'", "type": "KeyError"}}),
    (
        lambda lease: lease.fail({"type": "T", "message": "m", "traceback": "at line 1"}),
        {"error": {"message": "m", "type": "T", "traceback": "at line 1"}},
    ),
    (lambda lease: lease.release(), {"release": True}),
    (lambda lease: lease.release(1.5), {"release": 1.5}),
    (lambda lease: lease.cancel(), {"cancel": ""}),
    (lambda lease: lease.cancel("asked"), {"cancel": "asked"}),
]


@pytest.mark.parametrize(("end", "sent"), ENDINGS)
def test_each_ending_travels_as_what_it_is(
    opened: Any, end: Callable[[Any], Any], sent: dict[str, Any]
) -> None:
    q = opened(leased(), told(code="failing"))
    end(q.claim()[0])
    assert q.transport.bodies[1]["completions"] == [{"job_id": KEY, "token": "t-0", **sent}]


@pytest.mark.parametrize(("end", "sent"), ENDINGS)
def test_a_lost_lease_is_raised(opened: Any, end: Callable[[Any], Any], sent: dict[str, Any]) -> None:
    q = opened(leased(), told(ok=False, code="lease_lost"))
    with pytest.raises(LeaseLost):
        end(q.claim()[0])


def test_a_heartbeat_extends_and_tells_of_a_cancel(opened: Any, machine: Any) -> None:
    q = opened(leased(), ok({"leases": [{"job_id": KEY, "ok": True, "cancel_requested": True}]}))
    (lease,) = q.claim()
    machine.advance(20)
    lease.heartbeat(lease=60)
    assert q.transport.bodies[1] == {"leases": [{"job_id": KEY, "token": "t-0"}], "lease": 60.0}
    assert (lease.seconds_left, lease.cancel_requested) == (60, True)


def test_a_heartbeat_that_hangs_is_repeated_before_the_lease_ends(opened: Any, machine: Any) -> None:
    def hangs(call: ApiCall) -> CallOutcome:
        machine.sleep(call.timeout)
        return LATE

    q = opened(leased(lease=30.0), hangs, ok({"leases": [{"job_id": KEY, "ok": True}]}))
    (lease,) = q.claim()
    began = machine.monotonic()
    lease.heartbeat()
    assert machine.monotonic() - began < 30 / 3


def test_a_result_that_is_too_large_fails_alone(opened: Any) -> None:
    q = opened(told())
    large = {"job_id": KEY, "token": "t", "result": "x" * CONTENT_BYTES_MAX}
    done = q.complete_many([large, {"job_id": KEY, "token": "t", "result": 1}])
    assert [each.code for each in done] == ["too_large", "ok"]
    assert isinstance(done[0].error, TooLarge)


def test_a_worker_keeps_what_its_gateway_refuses_until_the_credentials_are_renewed() -> None:
    given, refusals = iter([JOB | {"lease": 3_600.0}]), iter([403, 401])

    def say(call: ApiCall) -> CallOutcome:
        ended = json.loads(call.body).get("completions", [])
        refusal = next(refusals, None) if ended else None
        if refusal is not None:
            return ok({"message": "The security token included in the request is expired"}, refusal)
        return turned(ended, [{"jobs": list(itertools.islice(given, 1)), "reason": "empty"}])

    q = Queue[Any](Scripted([say], MACHINE), "mail")
    q.handler(lambda job: "sent")
    tally = q.run(until_empty=True, poll=0.01, lease=3_600, signals=False)  # too long for a heartbeat
    ended = [call for call in q.transport.bodies if "completions" in call]
    assert [each["completions"][0].get("result") for each in ended] == ["sent"] * 3
    assert (tally.completed, tally.lost) == (1, 0)


def test_whether_to_retry_travels_as_true_or_false(opened: Any) -> None:
    q = opened(leased(), told(code="failing"), told(code="failed"))
    (lease,) = q.claim()
    lease.fail("boom", retry=True)
    lease.fail("boom", retry=False)
    first, second = (body["completions"][0] for body in q.transport.bodies[1:])
    assert "retry" not in first
    assert second["retry"] is False
    with pytest.raises(Rejected, match="retry: it is True or False, not 'no'"):
        lease.fail("boom", retry="no")


@pytest.mark.parametrize("say", [lambda lease: lease.fail("x"), lambda lease: lease.release()])
def test_an_ending_that_is_refused_is_no_lease_that_was_lost(opened: Any, say: Callable[[Any], Any]) -> None:
    error = {"code": "rejected", "message": "it is wrong", "field": "error"}
    (lease,) = opened(leased(), told(ok=False, code="rejected", error=error)).claim()
    with pytest.raises(Rejected, match="it is wrong"):
        say(lease)
