"""The test kit: real queues in virtual time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import ANY as ANYTHING

import pytest

from osqueue import (
    AsyncQueue,
    Cancel,
    Fail,
    JobFailed,
    NotSupported,
    Queue,
    Rejected,
    Snooze,
    Throttle,
    WaitTimeout,
    WorkerJob,
)
from osqueue.testing import Clock, assert_enqueued, enqueued, inline, manual
from osqueue.testing import kit as kit_module


@pytest.fixture
def q() -> Queue[Any]:
    return Queue.connect("memory://", "emails")


def test_in_manual_mode_jobs_wait_until_they_are_run_one_by_one(q: Queue[Any]) -> None:
    done: list[Any] = []
    q.handler(lambda job: done.append(job.payload))
    with manual(q) as test:
        q.enqueue("a")
        q.enqueue("b")
        assert done == []
        ran = test.run_next()
        assert ran is not None
        assert (ran.payload, ran.outcome, done) == ("a", "completed", ["a"])
        test.run_next()
        assert test.run_next() is None
    assert done == ["a", "b"]


def test_draining_runs_retries_and_scheduled_jobs_without_waiting(q: Queue[Any]) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> str:
        if job.attempt < 3:
            raise ValueError("not yet")
        return "sent"

    began = time.monotonic()
    with manual(q) as test:
        q.configure(backoff_base=3600)
        q.enqueue("now")
        q.enqueue("in a year", delay=365 * 86_400)
        ran = test.drain()
        assert [(each.payload, each.outcome) for each in ran] == [
            (payload, outcome)
            for payload in ("now", "in a year")
            for outcome in ("failing", "failing", "completed")
        ]
        assert [str(each.error) for each in ran[:3]] == ["not yet", "not yet", "None"]
        assert ran == test.ran
        assert q.stats()["completed"] == 2
    assert time.monotonic() - began < 60  # on the real clock it would have been a year


def test_a_drain_that_leaves_the_clock_alone_leaves_what_is_due_later(q: Queue[Any]) -> None:
    q.handler(lambda job: None)
    with manual(q) as test:
        q.enqueue(1)
        q.enqueue(2, delay=60)
        assert len(test.drain(advance=False)) == 1
        test.clock.advance(59.9)
        assert test.run_next() is None
        test.clock.advance(0.1)
        assert test.run_next() is not None


def test_every_ending_is_told(q: Queue[Any]) -> None:
    endings = {"snooze": Snooze(5), "cancel": Cancel(), "fail": Fail("no"), "result": 7, "nonsense": object()}
    q.handler(lambda job: endings[job.payload] if job.run == 1 else "later")
    with manual(q) as test:
        q.enqueue_many([{"payload": name} for name in endings])
        outcomes = {each.payload: each.outcome for each in test.drain(advance=False)}
        again = [each.payload for each in test.drain()]
    assert outcomes == {
        "snooze": "released",
        "cancel": "cancelled",
        "fail": "failed",
        "result": "completed",
        "nonsense": "failing",
    }
    assert sorted(again) == ["nonsense", "snooze"]


def test_in_inline_mode_enqueue_runs_the_handler_before_it_returns(q: Queue[Any]) -> None:
    done: list[Any] = []
    q.handler(lambda job: done.append(job.payload))
    with inline(q) as test:
        q.enqueue({"n": 1})
        assert done == [{"n": 1}]
        q.enqueue_many([{"payload": 2}, {"payload": 3, "delay": 60}])
        assert done == [{"n": 1}, 2]
        test.drain()
        assert done == [{"n": 1}, 2, 3]
        assert [each.outcome for each in test.ran] == ["completed"] * 3


def test_in_inline_mode_a_payload_goes_through_the_serialiser(q: Queue[Any]) -> None:
    got: list[Any] = []
    q.handler(lambda job: got.append(job.payload))
    with inline(q):
        q.enqueue((1, 2))
        with pytest.raises(Rejected, match="payload"):
            q.enqueue(object())
    assert got == [[1, 2]]


def test_in_inline_mode_the_handlers_error_is_raised_after_it_was_recorded(q: Queue[Any]) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        if job.attempt == 1:
            raise LookupError("nobody")

    with inline(q) as test:
        with pytest.raises(LookupError, match="nobody"):
            q.enqueue(1)
        assert q.stats()["failing"] == 1
        test.drain()
        assert q.stats()["completed"] == 1
    with inline(q, raise_errors=False) as test:
        q.enqueue(1)
        assert [each.outcome for each in test.ran] == ["failing"]


def test_jobs_that_a_handler_enqueues_run_after_it(q: Queue[Any]) -> None:
    order: list[str] = []

    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        order.append(f"{job.payload} begins")
        if job.payload < 3:
            q.enqueue(job.payload + 1)
        order.append(f"{job.payload} ends")

    with inline(q):
        q.enqueue(1)
    assert order == [f"{n} {what}" for n in (1, 2, 3) for what in ("begins", "ends")]


def test_an_async_queue_has_both_modes_too() -> None:
    q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
    done: list[Any] = []

    @q.handler(kind="coroutine")
    async def wait(job: Any) -> None:
        await job.heartbeat()
        done.append(job.payload)

    @q.handler
    def block(job: WorkerJob[Any]) -> None:
        job.heartbeat()
        if job.attempt == 1:
            raise ValueError
        done.append(job.payload)

    async def main() -> None:
        with manual(q) as test:
            await q.enqueue("a", kind="coroutine")
            await q.enqueue("b")
            assert len(await assert_enqueued(q, kind="coroutine", payload="a")) == 1
            assert [each.payload for each in await enqueued(q, kind=None)] == ["b"]
            await test.drain()
            assert await test.run_next() is None
        with inline(q):
            await q.enqueue("c", kind="coroutine")

    asyncio.run(main())
    assert done == ["a", "b", "c"]


def test_coroutine_handlers_of_a_blocking_queue_run_with_or_without_a_loop(q: Queue[Any]) -> None:
    @q.handler
    async def send(job: Any) -> None:
        await asyncio.sleep(0)
        await job.heartbeat()

    async def main() -> str:
        with inline(q) as test:
            q.enqueue(1)
            return test.ran[0].outcome

    assert asyncio.run(main()) == "completed"
    with inline(q) as test:
        q.enqueue(1)
        assert test.ran[0].outcome == "completed"


def test_a_waiting_claim_of_an_async_queue_moves_the_clock_instead_of_waiting() -> None:
    async def main() -> float:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        with manual(q) as test:
            assert await q.claim(wait=3600) == []
            return test.clock.monotonic()

    assert asyncio.run(main()) == pytest.approx(3600)


def test_a_handler_that_outlives_its_lease_loses_it(q: Queue[Any]) -> None:
    with manual(q) as test:

        @q.handler
        def slow(job: WorkerJob[Any]) -> None:
            if (job.payload, job.run) == ("slow", 1):
                test.clock.advance(31)
                q.enqueue("somebody writes")  # so the stale lease is noticed

        q.enqueue("slow")
        outcomes = [each.outcome for each in test.drain()]
    assert outcomes == ["lost", "completed", "completed"]


def test_the_queue_is_what_it_was_before_when_the_block_ends(q: Queue[Any]) -> None:
    q.enqueue("real")
    with manual(q) as test:
        q.enqueue("test")
        q.handler(lambda job: None)
        test.drain()
        assert [each.payload for each in enqueued(q)] == []
    assert [each.payload for each in enqueued(q)] == ["real"]
    with pytest.raises(Rejected, match="handler"):
        q.run(until_empty=True)


def test_a_worker_in_virtual_time_is_refused_with_the_remedy(q: Queue[Any]) -> None:
    q.handler(lambda job: None)
    with manual(q), pytest.raises(AssertionError, match="drain"):
        q.run()


def test_the_clock_moves_on_to_what_a_rate_allows_and_to_the_end_of_a_pause(q: Queue[Any]) -> None:
    starts: list[float] = []
    with manual(q) as test:

        @q.handler
        def call(job: WorkerJob[Any]) -> Any:
            starts.append(test.clock.now_ms() / 1000)
            return Throttle(600) if len(starts) == 3 else None

        q.configure(rate=(1, 60))
        for at in range(4):
            q.enqueue(at, kind="call")
        assert test.drain(advance=False)[-1].outcome == "completed"
        assert len(test.drain()) == 4
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert gaps == pytest.approx([60, 60, 600, 60], abs=0.01)


def test_what_ends_a_test_is_not_swallowed_by_the_queue(q: Queue[Any]) -> None:
    q.handler(lambda job: pytest.fail("not here"))
    with inline(q), pytest.raises(pytest.fail.Exception, match="not here"):
        q.enqueue(1)


def test_a_handler_that_goes_on_for_ever_is_found_out(q: Queue[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit_module, "RUNS_PER_DRAIN_MAX", 50)
    q.handler(lambda job: Snooze(60))
    with manual(q) as test:
        q.enqueue(1)
        with pytest.raises(AssertionError, match="for ever"):
            test.drain()


# ── Assertions ───────────────────────────────────────────────────────────────
def test_what_waits_is_found_by_kind_payload_and_count(q: Queue[Any]) -> None:
    q.enqueue({"to": "ada", "n": 1}, kind="mail")
    q.enqueue({"to": "bob", "n": 2}, kind="mail", delay=60)
    q.enqueue("x")
    assert len(assert_enqueued(q)) == 3
    assert_enqueued(q, kind="mail", count=2)
    assert_enqueued(q, kind=None, payload="x", count=1)
    assert_enqueued(q, payload={"to": "ada", "n": ANYTHING}, count=1)
    assert_enqueued(q, payload=lambda p: isinstance(p, dict) and p["n"] > 1, count=1)
    assert_enqueued(q, kind="fax", count=0)
    (late,) = [each for each in enqueued(q) if each.state == "scheduled"]
    assert late.due_at is not None
    assert late.payload == {"to": "bob", "n": 2}


def test_an_expected_payload_is_compared_as_it_comes_out_of_the_serialiser(q: Queue[Any]) -> None:
    q.enqueue({"pair": (1, 2)})
    assert_enqueued(q, payload={"pair": (1, 2)}, count=1)


def test_jobs_in_segments_and_large_payloads_are_found_too(q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": n} for n in range(3000)])
    q.enqueue("large" * 1000)
    assert len(enqueued(q)) == 3001
    assert_enqueued(q, payload=2999, count=1)
    assert_enqueued(q, payload="large" * 1000, count=1)


def test_a_failed_assertion_says_what_was_expected_and_what_there_is(q: Queue[Any]) -> None:
    with pytest.raises(AssertionError, match="None waits at all"):
        assert_enqueued(q)
    for n in range(12):
        q.enqueue({"n": n}, kind="mail")
    with pytest.raises(AssertionError) as failure:
        assert_enqueued(q, kind="fax", payload={"n": 1}, count=2)
    text = str(failure.value)
    assert "expected 2 jobs with kind 'fax' and payload {'n': 1} waiting in queue 'emails', found 0" in text
    assert "kind 'mail' payload {'n': 0}" in text
    assert "… and 2 more" in text


# ── Clock ────────────────────────────────────────────────────────────────────
def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock = Clock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.now == datetime(2026, 1, 1, tzinfo=UTC)
    clock.advance(90)
    clock.sleep(0.5)
    assert clock.now - datetime(2026, 1, 1, tzinfo=UTC) == timedelta(seconds=90.5)
    assert clock.monotonic() == 90.5
    with pytest.raises(Rejected, match="back"):
        clock.advance(-1)


def test_the_clocks_chances_are_the_same_every_time_and_spread() -> None:
    draws = [Clock().uniform() for _ in range(2)]
    clock = Clock()
    many = [clock.uniform() for _ in range(100)]
    assert draws[0] == draws[1] == many[0]
    assert all(0 <= each < 1 for each in many)
    assert {int(each * 10) for each in many} == set(range(10))


def test_the_clock_gives_the_time_to_the_queue(q: Queue[Any]) -> None:
    with manual(q, clock=Clock(datetime(2026, 1, 1, tzinfo=UTC))) as test:
        q.enqueue(1, at=datetime(2026, 1, 2, tzinfo=UTC))
        q.handler(lambda job: None)
        test.drain()
        assert test.clock.now == datetime(2026, 1, 2, tzinfo=UTC)


# ── Waiting for a result ─────────────────────────────────────────────────────
def test_in_inline_mode_who_waits_for_a_result_gets_it(q: Queue[Any]) -> None:
    @q.handler
    def work(job: WorkerJob[Any]) -> Any:
        if job.payload == "outer":
            return {"of": q.enqueue_and_wait("inner", id="inner")}
        return job.payload

    with inline(q) as test:
        before = test.clock.now
        assert q.enqueue_and_wait("a") == "a"
        assert q.enqueue_and_wait("outer") == {"of": "inner"}
        assert q.enqueue_and_wait("again", id="inner") == "inner"
        assert [each.payload for each in test.ran] == ["a", "inner", "outer"]
        assert test.clock.now == before


def test_in_inline_mode_who_waits_is_told_the_handlers_error(q: Queue[Any]) -> None:
    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        raise LookupError("nobody")

    with inline(q), pytest.raises(LookupError, match="nobody"):
        q.enqueue_and_wait(1)
    with inline(q, raise_errors=False), pytest.raises(JobFailed, match="nobody"):
        q.enqueue_and_wait(1, max_attempts=1)


def test_in_inline_mode_time_passes_for_who_waits_for_a_job_that_is_due_later(q: Queue[Any]) -> None:
    q.handler(lambda job: "done")
    with inline(q) as test:
        before = test.clock.now
        assert q.enqueue_and_wait(1, delay=5, timeout=10) == "done"
        with pytest.raises(WaitTimeout):
            q.enqueue_and_wait(1, delay=60, timeout=10)
        assert 15 <= (test.clock.now - before).total_seconds() <= 17


def test_in_manual_mode_who_waits_for_a_result_waits_in_virtual_time(q: Queue[Any]) -> None:
    q.handler(lambda job: "done")
    with manual(q) as test:
        before = test.clock.now
        with pytest.raises(WaitTimeout):
            q.enqueue_and_wait(1, timeout=3600, id="a")
        assert (test.clock.now - before).total_seconds() == pytest.approx(3600, abs=0.01)
        test.drain()
        assert q.enqueue_and_wait(1, id="a") == "done"


def test_over_an_async_queue_who_waits_for_a_result_need_not_wait_either() -> None:
    q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")

    @q.handler
    async def work(job: WorkerJob[Any]) -> Any:
        return {"of": await q.enqueue_and_wait("inner")} if job.payload == "outer" else job.payload

    async def run() -> None:
        async with asyncio.timeout(20):
            with inline(q):
                assert await q.enqueue_and_wait("outer") == {"of": "inner"}
            with manual(q) as test:
                with pytest.raises(WaitTimeout):
                    await q.enqueue_and_wait(1)
                waiter = asyncio.create_task(q.enqueue_and_wait("x", timeout=86_400))
                while not test.ran:
                    await test.drain()
                    await asyncio.sleep(0)
                while not any(each.payload == "x" for each in test.ran):
                    await test.drain()
                assert await waiter == "x"

    asyncio.run(run())


def test_in_inline_mode_callbacks_and_sinks_may_be_added(q: Queue[Any]) -> None:
    told: list[str] = []
    more: list[str] = []
    q.handler(lambda job: None)
    with inline(q) as test:
        q.on_event(lambda event: told.append(event.name))
        q.on_event(lambda event: more.append(event.name))
        q.enqueue(1)
        assert [each.outcome for each in test.ran] == ["completed"]
    assert told == more == ["queued", "processing", "completed"]


def test_over_an_api_the_assertions_say_that_they_need_the_store() -> None:
    q = Queue.connect("http://127.0.0.1:1", "emails")
    for ask in (enqueued, assert_enqueued):
        with pytest.raises(NotSupported, match="store"):
            ask(q)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_time_goes_on_by_what_time_can_go_on(seconds: float) -> None:
    clock = Clock()
    with pytest.raises(Rejected) as caught:
        clock.advance(seconds)
    assert caught.value.field == "seconds"
    assert clock.monotonic() == 0
