"""The flows of a remote queue: what is repeated and for how long, results, and what operators ask. No network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from osqueue import (
    AsyncQueue,
    Expired,
    JobCancelled,
    JobFailed,
    NotFinished,
    NotFound,
    NotSupported,
    OsqueueError,
    Queue,
    Rejected,
    Throttled,
    Unavailable,
    WaitTimeout,
    limits,
)
from osqueue.client.transports.base import ApiAnswer, CallOutcome, LostCall
from osqueue.contract.error_codes import TooLarge, fault_of
from tests.support.scripted import BROKEN, KEY, LATE, NOW, REFUSED, Say, Scripted, accepts, fault, ok


@pytest.fixture
def opened(machine: Any) -> Callable[..., Any]:
    def open_queue(*says: Say, **options: Any) -> Any:
        return Queue[Any](Scripted(says, machine), "mail", machine=machine, **options)

    return open_queue


# ── What is repeated ─────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "trouble",
    [
        BROKEN,
        REFUSED,
        LATE,
        LostCall(Throttled("busy"), sent=False),
        fault("throttled", 429, retry_after=1.0),
        fault("unavailable", 503, retry_after=5.0),
        fault("unknown", 503, retry_after=5.0),
        fault("timeout", 503),
        ok({"message": "Too Many Requests"}, 429),
        ok({"message": "Internal Server Error"}, 500),
        ok({"message": "Service Unavailable"}, 503),
        ApiAnswer(502, b"<html>Bad Gateway</html>"),
        ApiAnswer(504),
        ApiAnswer(200, b'{"jobs": [{"status"'),
    ],
    ids=repr,
)
def test_an_enqueue_is_repeated_with_the_same_keys(opened: Any, trouble: CallOutcome) -> None:
    q = opened(trouble, trouble, accepts)
    done = q.enqueue({"n": 1})
    first, second, third = q.transport.calls
    assert first.body == second.body == third.body
    assert done.job_id == q.transport.bodies[0]["jobs"][0]["job_id"]


def test_what_this_machine_refuses_is_tried_for_a_second_and_no_longer(opened: Any, machine: Any) -> None:
    q = opened(LostCall(Unavailable("no connection"), sent=False, seconds=1.0), timeout=25)
    began = machine.monotonic()
    with pytest.raises(Unavailable, match="no connection"):
        q.stats()
    assert machine.monotonic() - began <= 1
    assert len(q.transport.calls) > 2


def test_pauses_grow_are_spread_and_end_with_the_queues_timeout(opened: Any, machine: Any) -> None:
    q = opened(BROKEN, timeout=10)
    began = machine.monotonic()
    with pytest.raises(Unavailable, match="connection broke"):
        q.enqueue(1)
    assert machine.monotonic() - began <= 10
    for pause, full in zip(machine.slept, (0.1, 0.2, 0.4, 0.8, 1.6, 3.2), strict=False):
        assert full / 2 <= pause <= full
    assert len(set(machine.slept)) == len(machine.slept) >= 5
    timeouts = [call.timeout for call in q.transport.calls]
    assert timeouts == sorted(timeouts, reverse=True)
    assert timeouts[0] == 10


def test_an_answer_that_asks_for_a_pause_gets_it(opened: Any, machine: Any) -> None:
    opened(fault("unavailable", 503, retry_after=7.5), accepts).enqueue(1)
    assert machine.slept == [7.5]


def test_a_pause_that_is_longer_than_the_time_left_is_not_begun(opened: Any, machine: Any) -> None:
    with pytest.raises(Throttled):
        opened(fault("throttled", 429, retry_after=30), timeout=20).enqueue(1)
    assert machine.slept == []


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (fault("rejected", 422, field="id"), Rejected),
        (fault("too_large", 413), TooLarge),
        (fault("damaged", 503), OsqueueError),
        (fault("unavailable", 503), Unavailable),  # without retry_after: somebody has to change something
        (fault("internal", 500), OsqueueError),
        (LostCall(Rejected("no credentials"), sent=False), Rejected),
        (LostCall(Unavailable("no such host", permanent=True), sent=False), Unavailable),
        (ok({"message": "Forbidden"}, 403), Unavailable),
        (ok({"message": "Unauthorized"}, 401), Unavailable),
        (ok({"message": "Not Found"}, 404), Unavailable),
        (ApiAnswer(413, b"<html>"), TooLarge),
        (ApiAnswer(302), Unavailable),
        (ApiAnswer(200, b"<!doctype html>"), Unavailable),
        (ok({"hello": "world"}), Unavailable),
        (ok([1, 2]), Unavailable),
    ],
    ids=repr,
)
def test_what_repeating_does_not_mend_is_raised_at_once(
    opened: Any, trouble: CallOutcome, error: type[Exception]
) -> None:
    q = opened(trouble)
    with pytest.raises(error) as caught:
        q.enqueue(1)
    assert len(q.transport.calls) == 1
    permanent = isinstance(caught.value, Rejected | Unavailable)
    assert caught.value.permanent is permanent  # type: ignore[attr-defined]


REPEATED: dict[str, Callable[[Any], Any]] = {
    "enqueue": lambda q: q.enqueue_many([{"payload": 1}]),
    "complete": lambda q: q.complete_many([{"job_id": KEY, "token": "t"}]),
    "heartbeat": lambda q: q.heartbeat_many([{"job_id": KEY, "token": "t"}]),
    "status": lambda q: q.status(KEY),
    "status_many": lambda q: q.status_many([KEY]),
    "result": lambda q: q.result(KEY),
    "cancel": lambda q: q.cancel(KEY),
    "run_now": lambda q: q.run_now(KEY),
    "change_job": lambda q: q.update_result_ttl(KEY, 5),
    "list_jobs": lambda q: q.jobs(),
    "stats": lambda q: q.stats(),
    "configure": lambda q: q.pause(),
    "dead_letters": lambda q: q.dead_letters(),
    "dead_letter_groups": lambda q: q.dead_letter_groups(),
    "story": lambda q: q.story(KEY),
    "history": lambda q: list(q.history()),
}
ONCE: dict[str, Callable[[Any], Any]] = {
    "claim": lambda q: q.claim(),
    "redrive": lambda q: q.redrive(),
    "purge": lambda q: q.purge(KEY),
    "reap": lambda q: q.reap(),
}


@pytest.mark.parametrize("name", [*REPEATED, *ONCE])
@pytest.mark.parametrize(
    "trouble", [BROKEN, LATE, fault("unknown", 503, retry_after=0.1), ApiAnswer(504)], ids=repr
)
def test_what_may_be_done_twice_is_repeated_and_nothing_else(
    opened: Any, name: str, trouble: CallOutcome
) -> None:
    q = opened(trouble, fault("conflict", 409))
    with pytest.raises(OsqueueError) as caught:
        {**REPEATED, **ONCE}[name](q)
    assert q.transport.routes == ([name] if name in ONCE else [name, name])
    assert (caught.value.code == "conflict") is (name in REPEATED)


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize(
    "trouble", [REFUSED, LostCall(Throttled("busy"), sent=False), ApiAnswer(429)], ids=repr
)
def test_what_certainly_had_no_effect_is_always_repeated(
    opened: Any, name: str, trouble: CallOutcome
) -> None:
    q = opened(trouble, fault("conflict", 409))
    with pytest.raises(OsqueueError, match="conflict"):
        ONCE[name](q)
    assert q.transport.routes == [name, name]


def test_a_queue_that_was_too_busy_for_a_part_of_something_is_not_asked_for_the_whole_again(
    opened: Any,
) -> None:
    busy = fault("throttled", 429, retry_after=1.0)
    q = opened(busy, ok({"jobs": []}))
    q.claim()  # one commit, which was not made
    assert q.transport.routes == ["claim"] * 2
    for name in ("redrive", "purge", "reap"):  # several, of which some may be
        q = opened(busy)
        with pytest.raises(Throttled):
            ONCE[name](q)
        assert q.transport.routes == [name]


def test_a_coroutine_repeats_without_holding_up_its_loop(machine: Any) -> None:
    transport = Scripted([BROKEN, accepts], machine)
    assert asyncio.run(AsyncQueue[Any](transport, "mail", machine=machine).enqueue(1)).status == "queued"
    assert machine.slept == []  # the loop's own clock passed the pause


def test_calls_are_counted_by_method(opened: Any) -> None:
    q = opened(BROKEN, accepts, ok({"status": "cancelled"}), ok({}), ok({"jobs": []}), ok({}))
    q.enqueue(1)
    q.cancel("a")
    q.pause()
    q.claim()
    q.stats()
    assert q.requests == {"get": 1, "post": 3, "put": 0, "patch": 1, "delete": 1}


# ── Results ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (fault("not_finished", 202), NotFinished),
        (fault("not_found", 404), NotFound),
        (fault("expired", 410), Expired),
        (fault("job_cancelled", 409), JobCancelled),
        (fault("job_failed", 409, job_id=KEY, type="KeyError", error="x", traceback="tb"), JobFailed),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_errors_come_back_as_what_they_were(
    opened: Any, answer: CallOutcome, error: type[OsqueueError]
) -> None:
    q = opened(answer)
    with pytest.raises(error) as caught:
        q.result("a")
    assert type(caught.value) is error
    assert fault_of(caught.value) == msgspec.convert(
        msgspec.json.decode(answer.body)["error"],
        type(fault_of(caught.value)),  # type: ignore[union-attr]
    )


def test_a_status_that_is_not_there_is_none_and_its_cancel_not_found(opened: Any) -> None:
    q = opened(fault("not_found", 404))
    assert q.status("a") is None
    assert q.cancel("a") == "not_found"
    with pytest.raises(NotFound):
        q.story("a")


def test_who_waits_looks_at_a_bounded_rate_and_over_a_silence(opened: Any, machine: Any) -> None:
    busy = fault("not_finished", 202)
    q = opened(accepts, busy, BROKEN, busy, ok({"job_id": KEY, "result": [7]}))
    assert q.enqueue_and_wait(1, timeout=60) == [7]
    assert machine.slept == [0.1, 0.2, 0.4, 0.8]
    q = opened(accepts, busy)
    with pytest.raises(WaitTimeout) as caught:
        q.enqueue_and_wait(1, timeout=63.1)
    assert len(q.transport.calls) - 1 == 5 + 31
    assert caught.value.job_id == q.transport.bodies[0]["jobs"][0]["job_id"]
    q = opened(accepts, BROKEN)
    with pytest.raises(WaitTimeout, match="the connection broke"):
        q.enqueue_and_wait(1, timeout=5)


@pytest.mark.parametrize("error", [JobFailed, JobCancelled, Expired, Rejected])
def test_what_waiting_does_not_mend_ends_it(opened: Any, error: type[OsqueueError]) -> None:
    q = opened(accepts, fault(error.code, 409))
    with pytest.raises(error):
        q.enqueue_and_wait(1, timeout=60)
    assert len(q.transport.calls) == 2


# ── Operators ────────────────────────────────────────────────────────────────
def test_a_redrive_at_a_rate_is_paced_here_in_calls_with_a_limit(opened: Any, machine: Any) -> None:
    q = opened(*[ok({"jobs": 20, "more": True})] * 4, ok({"jobs": 7, "more": False}))
    began = machine.monotonic()
    assert q.redrive(rate=20, kinds=["k"], error="disk", fingerprint="0123abcd") == 87
    assert machine.monotonic() - began == pytest.approx(4)
    assert (
        q.transport.bodies == [{"limit": 20, "kinds": ["k"], "error": "disk", "fingerprint": "0123abcd"}] * 5
    )


def test_a_redrive_with_a_limit_never_asks_for_more_than_is_left(opened: Any) -> None:
    q = opened(ok({"jobs": 10, "more": True}), ok({"jobs": 5, "more": True}))
    assert q.redrive(limit=15, rate=10) == 15
    assert [body["limit"] for body in q.transport.bodies] == [10, 5]
    q = opened(ok({"jobs": 3, "more": True}))
    assert q.redrive(limit=3, dry_run=True) == 3
    assert q.transport.bodies == [{"limit": 3, "dry_run": True}]


def test_a_redrive_that_breaks_off_tells_how_far_it_came(opened: Any) -> None:
    q = opened(ok({"jobs": 10_000, "more": True}), BROKEN)
    with pytest.raises(Unavailable, match="10,000 jobs were queued again"):
        q.redrive()


def test_a_purge_of_many_is_summed_up(opened: Any) -> None:
    q = opened(ok({"jobs": ["x"], "state": 2, "left": ["o"]}))
    report = q.purge([f"job-{at}" for at in range(120)])
    assert [len(body["jobs"]) for body in q.transport.bodies] == [50, 50, 20]
    assert (report.state, report.left) == (6, ("o", "o", "o"))


def test_the_archive_comes_page_by_page_without_repeats(opened: Any) -> None:
    def job(at: int) -> dict[str, Any]:
        return {
            "job_id": f"job-{at}",
            "state": "completed",
            "kind": None,
            "priority": 5,
            "enqueued_at": NOW,
            "attempt": 1,
            "max_attempts": 3,
            "payload_bytes": 1,
            "run": 1,
        }

    def key(at: int) -> dict[str, Any]:
        return {**job(at), "job_id": f"{KEY[:-2]}{at:02x}"}

    def page(hour: int, *ats: int, cursor: str | None = None) -> ApiAnswer:
        part = f"archive/queue=mail/date=2030-01-31/hour={hour:02d}/part"
        return ok({"jobs": [key(at) for at in ats], "part": part, "cursor": cursor})

    q = opened(page(1, 1, 2, cursor="x"), page(1, 3, cursor="y"), page(2, 2, 3, 4))
    found = list(q.history(since=1_900_000_000, until=1_900_000_100.5))
    assert [int(each.job_id[-2:], 16) for each in found] == [1, 2, 3, 4]
    window = (("since", "1900000000.0"), ("until", "1900000100.5"))
    assert [call.query for call in q.transport.calls] == [
        window,
        (*window, ("cursor", "x")),
        (*window, ("cursor", "y")),
    ]


def test_filters_travel_in_the_query(opened: Any) -> None:
    q = opened(ok({"jobs": [], "cursor": "c"}), ok({"groups": []}), ok({"jobs": []}))
    assert q.dead_letters(5, "b", ["k", ""], "disk & co", "0123abcd") == ([], "c")
    assert q.dead_letter_groups(["k"]) == []
    assert q.jobs("failed", 7) == ([], None)
    one, two, three = (
        dict(call.query) | {"kinds": [v for n, v in call.query if n == "kind"]} for call in q.transport.calls
    )
    assert one == {
        "limit": "5",
        "cursor": "b",
        "fingerprint": "0123abcd",
        "error": "disk & co",
        "kind": "k",
        "kinds": ["", "k"],
    }
    assert two == {"kind": "k", "kinds": ["k"]}
    assert three == {"state": "failed", "limit": "7", "kinds": []}


@pytest.mark.parametrize(
    "ask",
    [
        lambda q: q.status(""),
        lambda q: q.result("x" * (limits.ID_CHARS_MAX + 1)),
        lambda q: q.cancel(7),
        lambda q: q.why("\n"),
        lambda q: q.jobs("nowhere"),
        lambda q: q.jobs(limit=0),
        lambda q: q.configure(colour="red"),
        lambda q: q.configure(paused="yes"),
        lambda q: q.redrive(rate=0),
        lambda q: q.redrive(limit=0),
        lambda q: q.dead_letters(fingerprint="x"),
        lambda q: q.purge(7),
        lambda q: q.purge([7]),
        lambda q: list(q.history(since=5, until=4)),
        lambda q: q.update_result_ttl("a", 0),
        lambda q: q.enqueue_and_wait(1, timeout=-1),
    ],
)
def test_what_makes_no_sense_is_refused_here(opened: Any, ask: Callable[[Any], Any]) -> None:
    q = opened(ok({}))
    with pytest.raises(Rejected):
        ask(q)
    assert q.transport.calls == []


# ── What only a store can do ─────────────────────────────────────────────────
def test_events_are_told_by_the_functions(opened: Any) -> None:
    for add in (lambda q: q.on_event(print), lambda q: q.add_sink(print)):
        with pytest.raises(NotSupported, match="EventBridge"):
            add(opened(ok({})))
    with pytest.raises(NotSupported, match="EventBridge"):
        opened(ok({}), sinks=[print])
    assert opened(ok({})).deliveries == {}


def test_there_is_no_store_to_reach_into(opened: Any) -> None:
    with pytest.raises(NotSupported, match="s3://bucket/prefix"):
        _ = opened(ok({})).store


def test_refusals_of_a_gateway_are_told_without_what_it_said(opened: Any) -> None:
    for text, says in (
        ("The security token included in the request is expired", "expired"),
        ("The request signature we calculated does not match; x-amz-security-token:SECRET", "region"),
        ("User is not authorized to perform: execute-api:Invoke", "execute-api:Invoke"),
    ):
        with pytest.raises(Unavailable, match=says) as caught:
            opened(ok({"message": text + " SECRET"}, 403)).stats()
        assert "SECRET" not in caught.value.message
        assert caught.value.permanent


@pytest.mark.parametrize(
    "body", [b'{"jobs": "\xff"}', b'{"jobs":' + b"[" * 100_000], ids=["no UTF-8", "without an end"]
)
@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_that_cannot_be_read_at_all_is_one_that_arrived_damaged(
    opened: Any, status: int, body: bytes
) -> None:
    with pytest.raises(Unavailable) as caught:
        opened(ApiAnswer(status, body), timeout=1).stats()
    assert not caught.value.permanent


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        (lambda q: q.enqueue(1), {"jobs": []}),
        (lambda q: q.enqueue(1), {"jobs": [{"status": "queued", "job_id": KEY}] * 2}),
        (lambda q: q.complete_many([{"job_id": KEY, "token": "t"}]), {"completions": []}),
        (lambda q: q.heartbeat_many([{"job_id": KEY, "token": "t"}]), {"leases": []}),
    ],
)
def test_an_answer_about_more_or_fewer_items_than_were_sent_is_not_taken(
    opened: Any, ask: Callable[[Any], Any], body: Any
) -> None:
    with pytest.raises(Unavailable, match="items") as caught:
        ask(opened(ok(body)))
    assert caught.value.permanent
