"""One invocation of a consumer: what it says in which commit, when it ends, and what it leaves behind."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from osqueue import Cancel, Fail, LeaseLost, Queue, Retry, Snooze, Throttle
from osqueue.aws import consumer
from osqueue.aws.run import RESERVE_SECONDS
from osqueue.errors import Damaged, Unavailable
from osqueue.pacer import Pacer
from tests.support.consumers import Consumed


def done(job: Any) -> None:
    """A handler."""


@pytest.fixture
def emails() -> Consumed:
    made = Consumed(batch=10, max_concurrency=3)
    made.q.configure(backoff_base=3_600)  # so nobody naps for a second attempt
    return made


# ── The loop ─────────────────────────────────────────────────────────────────
def test_an_invocation_works_until_there_is_nothing_and_gives_its_ticket_back(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(25)])
    assert len(emails.wakes) == 3
    seen: list[int] = []
    handler = consumer(lambda job: seen.append(job.payload))
    tally = emails.deliver(handler)
    assert (tally.claimed, tally.completed) == (25, 25)
    assert seen == list(range(25))
    assert emails.states() == {"completed": 25}
    assert len(emails.tickets()) == 2  # of the wakes that nobody has answered yet
    for _ in range(2):
        assert emails.deliver(handler).claimed == 0
    assert emails.tickets() == []


def test_a_batch_costs_one_commit_its_endings_and_the_next_claim_together(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(30)])
    queue = emails.opened()
    emails.deliver(consumer(done), queue=queue)
    assert queue.requests["put"] == 4  # the first claim, two more with endings, the endings of the last
    assert queue.requests["get"] == 2  # how it is attached, and the head as it is now


def test_the_second_arrival_of_one_wake_writes_nothing(emails: Consumed) -> None:
    emails.q.enqueue(1)
    wake = emails.next_wake()
    second = emails.opened()

    def handler(job: Any) -> None:
        assert emails.deliver(consumer(done), wake, queue=second).claimed == 0

    assert emails.deliver(consumer(handler), wake).completed == 1
    assert (second.requests["get"], second.requests["put"]) == (2, 0)


def test_a_wake_that_comes_when_all_is_done_or_detached_ends_quietly(emails: Consumed) -> None:
    emails.q.enqueue(1)
    wake = emails.next_wake()
    assert emails.deliver(consumer(done), wake).completed == 1
    assert emails.deliver(consumer(done), wake).claimed == 0
    emails.q.configure(consumers={"mailer": None})
    assert emails.deliver(consumer(done), wake).claimed == 0


def test_a_process_that_knew_the_queue_before_the_consumer_was_attached_looks_again(emails: Consumed) -> None:
    warm = emails.opened()
    warm.claim()
    emails.q.configure(consumers={"other": {"target": "arn:other"}})
    emails.q.enqueue(1)
    wake = next(each for each in emails.wakes if each.consumer == "other")
    assert emails.deliver(consumer(done), wake, queue=warm).completed == 1


def test_what_a_handler_answers_or_raises_is_what_becomes_of_its_job(emails: Consumed) -> None:
    answers = {
        "result": 7,
        "snooze": Snooze(60),
        "retry": Retry(60),
        "fail": Fail("no"),
        "cancel": Cancel(),
        "throttle": Throttle(60, scope="kind"),
    }

    def handler(job: Any) -> Any:
        if job.payload == "raise":
            raise ValueError("not this one")
        return answers[job.payload]

    ids = {name: emails.q.enqueue(name).job_id for name in (*answers, "raise")}
    tally = emails.deliver(consumer(handler))
    assert (tally.completed, tally.failing, tally.failed, tally.cancelled) == (1, 2, 1, 1)
    assert tally.released == 2
    assert emails.q.result(ids["result"]) == 7
    told = emails.q.status(ids["raise"])
    assert "ValueError: not this one" in str(told.error)


def test_a_handler_of_batches_gets_a_list_and_answers_for_each(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(5)])
    sizes: list[int] = []

    @consumer.batches(size=3)
    def handler(jobs: Any) -> Any:
        sizes.append(len(jobs))
        return [ValueError("odd") if job.payload % 2 else job.payload for job in jobs]

    tally = emails.deliver(handler)
    assert sizes == [3, 2]
    assert (tally.completed, tally.failing) == (3, 2)


def test_several_threads_run_jobs_side_by_side(emails: Consumed) -> None:
    together = threading.Barrier(4)
    emails.q.enqueue_many([{"payload": number} for number in range(4)])

    @consumer(threads=4)
    def handler(job: Any) -> None:
        together.wait(10)

    assert emails.deliver(handler).completed == 4


def test_a_slow_job_holds_up_no_other_and_its_invocation_keeps_the_ticket(emails: Consumed) -> None:
    slow, others = threading.Event(), []
    emails.q.enqueue_many([{"payload": number} for number in range(4)])

    @consumer(threads=2)
    def handler(job: Any) -> None:
        if job.payload == 0:
            assert slow.wait(10)
            return
        others.append(job.payload)
        if job.payload == 3:
            emails.q.enqueue(4)  # while the slow one runs
        if job.payload == 4:
            assert [holder for _, holder in emails.tickets() if holder]
            slow.set()

    class Moving(type(emails.clock)):  # type: ignore[misc]
        """Each look at the clock takes a little."""

        def monotonic(self) -> float:
            self.advance(0.001)
            return super().monotonic()

    emails.clock.__class__ = Moving
    assert emails.deliver(handler).completed == 5
    assert others == [1, 2, 3, 4]


# ── Time ─────────────────────────────────────────────────────────────────────
def test_with_little_time_left_the_ticket_goes_back_and_another_is_fired_for_what_waits(
    emails: Consumed,
) -> None:
    emails.q.configure(consumers={"mailer": {"target": "arn:mailer", "batch": 10, "max_concurrency": 1}})
    emails.q.enqueue_many([{"payload": number} for number in range(30)])

    def handler(job: Any) -> None:
        emails.clock.advance(2)

    wake = emails.next_wake()
    tally = emails.deliver(consumer(handler), wake, seconds=70)
    assert tally.completed == 20  # 20 s for each batch: with 30 s left there is no time for a third
    assert emails.states() == {"completed": 20, "queued": 10}
    (successor,) = emails.wakes
    assert successor.ticket != wake.ticket
    assert emails.deliver(consumer(handler), seconds=70).completed == 10
    assert emails.wakes == []


def test_an_invocation_shorter_than_the_reserve_does_one_batch(emails: Consumed) -> None:
    emails.q.configure(consumers={"mailer": {"target": "arn:mailer", "batch": 2, "max_concurrency": 1}})
    emails.q.enqueue_many([{"payload": number} for number in range(4)])
    for _ in range(2):
        assert emails.deliver(consumer(done), seconds=RESERVE_SECONDS / 4).completed == 2
    assert emails.states() == {"completed": 4}


def test_jobs_of_a_batch_that_cannot_begin_in_time_go_back_and_use_no_attempt(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(3)])

    def handler(job: Any) -> None:
        emails.clock.advance(25)

    tally = emails.deliver(consumer(handler), seconds=60)
    assert (tally.completed, tally.released) == (1, 2)
    waiting = emails.q.claim(limit=10)
    assert [lease.attempt for lease in waiting] == [1, 1]


def test_an_attempt_that_still_runs_at_the_end_has_failed_before_the_invocation_is_stopped(
    emails: Consumed,
) -> None:
    emails.q.configure(consumers={"mailer": {"target": "arn:mailer", "lease": 3_600}})
    emails.q.enqueue(1)
    told: list[str] = []

    def handler(job: Any) -> None:
        emails.clock.advance(899)
        assert job.stopping.wait(10)
        assert job.timed_out.wait(10)
        told.append(job.job_id)

    tally = emails.deliver(consumer(handler))
    assert (tally.completed, tally.failing) == (0, 1)
    assert emails.tickets() == []
    assert "the invocation was over" in str(emails.q.status(told[0]).error)


def test_an_attempt_past_its_limit_has_failed_whatever_its_handler_goes_on_to_do(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": 1}, {"payload": 2, "run_within": 50}])
    limits: list[bool] = []

    @consumer(run_within=10)
    def handler(job: Any) -> None:
        emails.clock.advance(11)
        limits.append(job.timed_out.wait(10))

    tally = emails.deliver(handler)
    assert limits == [True]  # the other one's time ran from its claim, too
    assert (tally.completed, tally.failing) == (0, 2)


def test_the_last_one_out_naps_for_a_job_that_is_about_to_start(emails: Consumed) -> None:
    emails.q.enqueue("first")
    emails.q.enqueue("soon", delay=1.5)
    assert emails.deliver(consumer(done)).completed == 2
    emails.q.enqueue("first")
    emails.q.enqueue("later", delay=30)
    assert emails.deliver(consumer(done)).completed == 1
    assert emails.wakes == []


def test_jobs_under_a_limiter_are_worked_off_as_its_slots_come(emails: Consumed) -> None:
    Pacer(emails.store, "stripe", machine=emails.clock).create(1, burst=2)
    emails.q.configure(limiter="stripe")
    emails.q.enqueue_many([{"payload": number} for number in range(5)])
    began = emails.clock.monotonic()
    assert emails.deliver(consumer(done)).completed == 5
    assert 2.9 < emails.clock.monotonic() - began < 3.5
    assert not [holder for _, holder in emails.tickets() if holder]


def test_a_limiter_whose_next_slot_is_far_away_is_not_waited_for(emails: Consumed) -> None:
    Pacer(emails.store, "stripe", machine=emails.clock).create(60)
    emails.q.configure(limiter="stripe")
    emails.q.enqueue_many([{"payload": number} for number in range(3)])
    assert emails.deliver(consumer(done)).completed == 1
    emails.clock.advance(60)
    emails.q.reap()
    assert emails.deliver(consumer(done)).completed == 1


# ── Leases ───────────────────────────────────────────────────────────────────
def test_heartbeats_carry_all_jobs_the_ticket_and_endings_in_one_commit(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(3)])
    beaten = threading.Event()
    queue = emails.opened()
    puts: list[int] = []
    run = queue._run

    def watched(flow: Any) -> Any:
        value = run(flow)
        if emails.clock.monotonic() >= 12:
            puts.append(queue.requests["put"])
            beaten.set()
        return value

    queue.__dict__["_run"] = watched
    states: list[dict[str, int]] = []

    def handler(job: Any) -> None:
        if job.payload == 1:
            before = queue.requests["put"]
            job.progress(0.5, "half")
            emails.clock.advance(12)
            assert beaten.wait(10)
            assert puts[0] == before + 1
            states.append(emails.states())
            emails.clock.advance(25)  # 37 s after the claim: its lease of 30 s would be over

    assert emails.deliver(consumer(handler), queue=queue).completed == 3
    assert states == [{"completed": 1, "processing": 2}]


def test_a_job_that_is_cancelled_meanwhile_tells_its_handler(emails: Consumed) -> None:
    job_id = emails.q.enqueue(1).job_id

    def handler(job: Any) -> Any:
        emails.q.cancel(job_id)
        job.heartbeat()
        assert job.cancelled
        return Cancel("as you wish")

    assert emails.deliver(consumer(handler)).cancelled == 1


def test_a_lease_that_was_lost_discards_what_its_handler_did(emails: Consumed) -> None:
    emails.q.configure(consumers={"mailer": {"target": "arn:mailer", "lease": 5}})
    emails.q.enqueue(1)

    def handler(job: Any) -> None:
        emails.clock.advance(3_600)
        other = emails.opened()
        assert len(other.claim()) == 1
        with pytest.raises(LeaseLost):
            job.heartbeat()

    tally = emails.deliver(consumer(handler), seconds=7_200)
    assert (tally.completed, tally.lost) == (0, 1)


# ── Trouble ──────────────────────────────────────────────────────────────────
def test_a_store_that_does_not_answer_for_a_while_is_asked_again(
    emails: Consumed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "osqueue.consumers")
    emails.q.enqueue_many([{"payload": number} for number in range(3)])
    queue = emails.opened()
    run, calls = queue._run, []

    def failing(flow: Any) -> Any:
        calls.append(1)
        if 2 <= len(calls) <= 4:  # the first claims, after the look at the settings
            flow.close()
            emails.clock.advance(1)
            raise Unavailable("the store is away")
        return run(flow)

    queue.__dict__["_run"] = failing
    emails.clock.__class__ = _hurrying(type(emails.clock))
    assert emails.deliver(consumer(done), queue=queue).completed == 3
    assert "cannot be reached" in caplog.text


def test_what_no_repetition_mends_ends_the_invocation_with_its_error(emails: Consumed) -> None:
    emails.q.enqueue(1)
    queue = emails.opened()
    run, calls = queue._run, []

    def damaged(flow: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            flow.close()
            raise Damaged("not what was written")
        return run(flow)

    queue.__dict__["_run"] = damaged
    with pytest.raises(Damaged):
        emails.deliver(consumer(done), queue=queue)


def _hurrying(kind: Any) -> Any:
    class Hurrying(kind):
        """Time goes by as it is looked at."""

        def monotonic(self) -> float:
            self.advance(0.05)
            return float(super().monotonic())

    return Hurrying


def test_a_consumer_that_died_is_followed_by_another_once_its_lease_is_over(emails: Consumed) -> None:
    emails.q.enqueue_many([{"payload": number} for number in range(2)])
    wake = emails.next_wake()

    class Killed(BaseException):
        """As by a signal that nobody catches."""

    queue = emails.opened()
    run, calls = queue._run, []

    def killed(flow: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:  # after the claim nothing of it is heard any more
            flow.close()
            raise Killed
        return run(flow)

    queue.__dict__["_run"] = killed
    with pytest.raises(Killed):
        emails.deliver(consumer(done), wake, queue=queue)
    assert emails.states() == {"processing": 2}
    emails.clock.advance(31)
    emails.q.reap()
    assert emails.deliver(consumer(done)).completed == 2


def test_two_queues_of_one_process_do_not_share_a_claim(emails: Consumed) -> None:
    """Group commit makes one claim of neighbours that are alike, but a ticket is its holder's own."""
    from osqueue.commit.coalesce import runs_of
    from osqueue.core.job_ops import ClaimJobs, TicketUse

    first, second = (ClaimJobs(10, "ada", 1_000, use=TicketUse("mailer", number, 7)) for number in (1, 2))
    plain = ClaimJobs(10, "ada", 1_000)
    assert [len(run) for run in runs_of([first, second, plain, plain])] == [1, 1, 2]


def test_queue_options_reach_the_handlers_payload() -> None:
    import msgspec

    class Mail(msgspec.Struct):
        to: str

    emails = Consumed()
    emails.q.enqueue({"to": "ada"})
    seen: list[str] = []
    queue: Queue[Mail] = Queue(emails.store, "emails", type=Mail, machine=emails.clock)
    emails.deliver(consumer(lambda job: seen.append(job.payload.to)), queue=queue)
    assert seen == ["ada"]
