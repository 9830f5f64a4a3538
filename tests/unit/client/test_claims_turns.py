"""A worker's turn over an API: what travels, and what is said again when its answer is lost. No network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Queue, Rejected, Throttled, Timeout, Unavailable
from osqueue.client.call import REQUEST_BYTES_MAX
from osqueue.client.transports.base import ApiCall, CallOutcome
from osqueue.contract.functions import PAYLOAD_BYTES_MAX
from osqueue.core.job_ops import ClaimJobs, Completion
from osqueue.model.keys import key_of
from osqueue.operations.claims import ClaimResult
from osqueue.operations.endings import aborted, failed, released, throttled
from tests.support.scripted import BROKEN, JOB, KEY, LATE, REFUSED, Say, Scripted, fault, ok, told, turned

HELD = (key_of(KEY), "t-0")
DONE = Completion(*HELD, b'"sent"', "json")
CLAIM = ClaimJobs(5, "ada", 30_000)
EMPTY = {"jobs": [], "reason": "empty"}


@pytest.fixture
def opened(machine: Any) -> Callable[..., Any]:
    def open_queue(*says: Say, **options: Any) -> Any:
        return Queue[Any](Scripted(says, machine), "mail", machine=machine, **options)

    return open_queue


def turn(q: Any, endings: Any = (DONE,), claims: Any = (CLAIM,)) -> Any:
    return q._run(q._flows.turn(endings, claims))


def test_endings_and_claims_travel_in_one_call_as_what_they_are(opened: Any, machine: Any) -> None:
    q = opened(turned(range(7), [{"jobs": [JOB]}, EMPTY]))
    endings = [
        Completion(*HELD),
        DONE,
        failed(*HELD, KeyError("x"), 2.5, retry=False, jitter=0.5),
        released(*HELD),
        released(*HELD, 1.5),
        throttled(*HELD, 30, "queue", "429"),
        aborted(*HELD, "asked"),
    ]
    done, (full, empty) = turn(q, endings, [CLAIM, ClaimJobs(1, "eve", 1_500, ("a", "b"))])
    assert q.transport.routes == ["turn"]
    body = q.transport.bodies[0]
    assert [
        {name: each[name] for name in each.keys() - {"job_id", "token"}} for each in body["completions"]
    ] == [
        {},
        {"result": "sent"},
        {"error": {"message": "'x'", "type": "KeyError"}, "retry_in": 2.5, "retry": False},
        {"release": True},
        {"release": 1.5},
        {"throttle": 30.0, "scope": "queue", "why": "429"},
        {"cancel": "asked"},
    ]
    assert body["claims"] == [
        {"worker": "ada", "limit": 5, "lease": 30.0},
        {"worker": "eve", "lease": 1.5, "kinds": ["a", "b"]},
    ]
    assert all(each.ok for each in done)
    (granted,) = full.leases
    assert (granted.lease.worker, granted.sent_at) == ("ada", machine.monotonic())
    assert (empty.leases, empty.reason) == ((), "empty")


def test_one_without_claims_is_a_call_that_may_be_repeated(opened: Any) -> None:
    q = opened(BROKEN, LATE, told())
    (done,), claimed = turn(q, claims=())
    assert (q.transport.routes, done.ok, claimed) == (["complete"] * 3, True, [])
    q = opened(told())
    assert (turn(q, (), ()), q.transport.calls) == (([], []), [])


@pytest.mark.parametrize("lost", [BROKEN, LATE, ok(status=502), ok(status=504)], ids=range(4))
def test_where_an_answer_is_lost_the_endings_are_said_again_without_the_claims(
    opened: Any, lost: Say
) -> None:
    q = opened(lost, lost, told())
    (done,), (claimed,) = turn(q)
    assert q.transport.routes == ["turn", "complete", "complete"]
    assert done.ok
    assert isinstance(claimed, Timeout | Unavailable)


def test_a_lost_claim_without_endings_is_not_repeated(opened: Any) -> None:
    q = opened(LATE)
    done, (claimed,) = turn(q, ())
    assert (q.transport.routes, done) == (["turn"], [])
    assert isinstance(claimed, Timeout)


@pytest.mark.parametrize(
    "refusal", [REFUSED, fault("throttled", 429, retry_after=0.1), ok(status=429)], ids=range(3)
)
def test_a_turn_that_certainly_had_no_effect_is_repeated_as_a_whole(opened: Any, refusal: Say) -> None:
    q = opened(refusal, refusal, turned([0], [EMPTY]))
    (done,), (claimed,) = turn(q)
    assert (q.transport.routes, done.ok, claimed.reason) == (["turn"] * 3, True, "empty")


def test_a_queue_that_stays_busy_is_told_for_each_item(opened: Any) -> None:
    q = opened(fault("throttled", 429, retry_after=0.1))
    (done,), (claimed,) = turn(q)
    assert set(q.transport.routes) == {"turn"}
    assert isinstance(done, Throttled)
    assert isinstance(claimed, Throttled)


def test_what_the_gateway_refuses_is_not_tried_another_way(opened: Any) -> None:
    q = opened(ok({"message": "the credentials have expired"}, 403))
    (done,), (claimed,) = turn(q)
    assert q.transport.routes == ["turn"]
    assert done is claimed
    assert done.permanent


def test_a_call_that_hangs_leaves_no_time_for_another_and_the_caller_says_it_again(
    opened: Any, machine: Any
) -> None:
    def hangs(call: ApiCall) -> CallOutcome:
        machine.sleep(call.timeout)
        return LATE

    q = opened(hangs)
    began = machine.monotonic()
    (done,), (claimed,) = turn(q)
    assert isinstance(done, Timeout)
    assert isinstance(claimed, Timeout)
    assert machine.monotonic() - began <= q.timeout + 0.2
    assert q.transport.routes == ["turn", "complete"]


def test_an_item_that_failed_alone_is_an_error_in_its_place(opened: Any) -> None:
    refused = {"code": "rejected", "message": "it is wrong", "field": "result"}
    unheard = {"code": "unavailable", "message": "no answer", "retry_after": 5.0}
    body = {
        "completions": [
            {"job_id": KEY, "ok": False, "code": "rejected", "error": refused},
            {"job_id": KEY, "ok": False, "code": "stale", "error": unheard},
            {"job_id": KEY, "ok": False, "code": "lease_lost"},
        ],
        "claims": [{"jobs": [], "error": unheard}, {"jobs": [JOB]}],
    }
    (wrong, stale, late), (broken, good) = turn(opened(ok(body)), [DONE] * 3, [CLAIM] * 2)
    assert isinstance(wrong, Rejected)
    assert isinstance(stale, Unavailable)
    assert late.code == "lease_lost"
    assert isinstance(broken, Unavailable)
    assert isinstance(good, ClaimResult)


def answers(call: ApiCall) -> CallOutcome:
    """A turn of whatever size."""
    import json

    body = json.loads(call.body)
    return turned(body.get("completions", []), [EMPTY] * len(body.get("claims", [])))


def test_more_than_one_call_takes_go_in_several_and_the_claims_with_the_first(opened: Any) -> None:
    q = opened(answers)
    done, claimed = turn(q, [DONE] * 2_500)
    assert [len(body["completions"]) for body in q.transport.bodies] == [1_000, 1_000, 500]
    assert [len(body.get("claims", ())) for body in q.transport.bodies] == [1, 0, 0]
    assert (len(done), len(claimed)) == (2_500, 1)
    large = replace(DONE, result=b'"%s"' % (b"x" * (PAYLOAD_BYTES_MAX - 2)))
    q = opened(answers)
    turn(q, [large] * 50)
    assert max(len(call.body) for call in q.transport.calls) <= REQUEST_BYTES_MAX + 1_000
    q = opened(answers)
    done, claimed = turn(q, [DONE], [CLAIM] * 1_001)
    assert [len(body["claims"]) for body in q.transport.bodies] == [1_000, 1]
    assert (len(done), len(claimed)) == (1, 1_001)


def test_a_call_that_fails_fails_its_own_items(opened: Any) -> None:
    q = opened(answers, fault("too_large", 413), answers)
    done, (claimed,) = turn(q, [DONE] * 2_500)
    assert [isinstance(each, Rejected) for each in done] == [False] * 1_000 + [True] * 1_000 + [False] * 500
    assert claimed.reason == "empty"
