"""Tickets of push consumers: granted where work waits, taken up once, given back, fired again."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import limits
from osqueue.core.consumers import DOUBTFUL_TRIES, FIRES_PER_COMMIT
from osqueue.core.job_ops import (
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    TicketUse,
)
from osqueue.core.ops import Code, Outcome
from osqueue.core.queue_ops import ChangeSettings, KeepTicket, RunTimers
from osqueue.core.settings import ConsumerSettings, KindSettings
from osqueue.core.state import LeaseRecord
from tests.support.shard import Shard

LEASE_MS = 30_000


@pytest.fixture
def shard() -> Shard:
    """Whoever commits to it can invoke consumers."""
    made = Shard()
    made.wakes = []
    return made


def attach(shard: Shard, name: str = "mailer", **fields: Any) -> None:
    fields = {"batch": 2, "max_concurrency": 3, **fields}
    shard.apply(ChangeSettings(consumers=(ConsumerSettings(name, f"arn:{name}", **fields),)))


def come(
    shard: Shard, ticket: int, holder: int = 7, limit: int = 2, nap_ms: int = 0, name: str = "mailer"
) -> Outcome:
    """A claim under a ticket."""
    use = TicketUse(name, ticket, holder, nap_ms)
    return shard.apply(ClaimJobs(limit, "consumer", LEASE_MS, use=use))[0]


def complete(shard: Shard, leases: tuple[LeaseRecord, ...]) -> None:
    shard.apply(CompleteJobs(tuple(Completion(each.job.key, each.token) for each in leases)))


def tickets(shard: Shard, name: str = "mailer") -> list[tuple[int, int]]:
    """Each ticket and who holds it."""
    return [(row.id, row.holder) for row in shard.state.tickets.get(name, ())]


def fired(shard: Shard) -> list[int]:
    """The tickets that were fired since this was asked last."""
    assert shard.wakes is not None
    found, shard.wakes = [each.ticket for each in shard.wakes], []
    return found


# ── Granting ─────────────────────────────────────────────────────────────────
def test_an_enqueue_fires_as_many_as_there_are_batches(shard: Shard) -> None:
    attach(shard)
    assert fired(shard) == []
    shard.enqueue(3)
    assert len(fired(shard)) == len(tickets(shard)) == 2


def test_no_more_than_may_be_at_work_at_once(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(100)
    assert len(fired(shard)) == 3
    shard.enqueue(100)
    assert fired(shard) == []


def test_a_commit_fires_only_some_and_the_next_ones_more(shard: Shard) -> None:
    attach(shard, max_concurrency=10)
    shard.enqueue(100)
    first = fired(shard)
    assert len(first) == FIRES_PER_COMMIT
    assert len(come(shard, first[0]).leases) == 2
    assert len(fired(shard)) == FIRES_PER_COMMIT


def test_a_writer_that_cannot_invoke_grants_nothing_and_the_next_that_can_does(shard: Shard) -> None:
    attach(shard)
    shard.wakes = None
    shard.enqueue(1)
    assert tickets(shard) == []
    shard.wakes = []
    shard.apply(RunTimers())
    assert len(fired(shard)) == 1


def test_a_queue_without_consumers_has_the_bytes_it_had(shard: Shard) -> None:
    shard.enqueue(1)
    with_waker = shard.head_bytes
    other = Shard()
    other.enqueue(1)
    assert with_waker == other.head_bytes


def test_jobs_that_no_claim_would_find_fire_nothing(shard: Shard) -> None:
    attach(shard, kinds=("mail",))
    shard.enqueue(5, kind="report")
    shard.apply(ChangeSettings(kinds=(KindSettings("mail", paused=True),)))
    shard.enqueue(5, kind="mail")
    assert fired(shard) == []
    shard.apply(ChangeSettings(kinds_dropped=("mail",)))
    assert len(fired(shard)) == 3


def test_no_more_than_a_running_limit_leaves_room_for(shard: Shard) -> None:
    shard.apply(ChangeSettings(max_running=2))
    attach(shard)
    shard.enqueue(50)
    (ticket,) = fired(shard)
    leases = come(shard, ticket).leases
    assert len(leases) == 2
    assert fired(shard) == []
    complete(shard, leases)
    assert len(fired(shard)) == 1


def test_a_paused_queue_fires_nothing_until_it_is_resumed(shard: Shard) -> None:
    attach(shard)
    shard.apply(ChangeSettings(paused=True))
    shard.enqueue(1)
    assert fired(shard) == []
    shard.apply(ChangeSettings(paused=False))
    assert len(fired(shard)) == 1


def test_fewer_than_a_batch_wait_for_the_window(shard: Shard) -> None:
    attach(shard, window_ms=1_000)
    shard.enqueue(1)
    assert fired(shard) == []
    shard.now += 1_000
    shard.apply(RunTimers())
    assert len(fired(shard)) == 1


def test_a_full_batch_does_not_wait_for_the_window(shard: Shard) -> None:
    attach(shard, window_ms=1_000)
    shard.enqueue(2)
    assert len(fired(shard)) == 1


def test_a_shard_has_its_share(shard: Shard) -> None:
    shard.apply(ChangeSettings(shards=2, shard=1, recorded=True))
    attach(shard, max_concurrency=3)
    shard.enqueue(100)
    assert len(fired(shard)) == 1


# ── Claims under a ticket ────────────────────────────────────────────────────
def test_the_first_takes_it_up_and_the_second_is_told_that_it_is_lost(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(6)
    ticket = fired(shard)[0]
    assert len(come(shard, ticket, holder=1).leases) == 2
    assert come(shard, ticket, holder=2).code == Code.TICKET_LOST
    assert len(come(shard, ticket, holder=1).leases) == 2


def test_a_claim_that_finds_nothing_gives_it_back(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(2)
    (ticket,) = fired(shard)
    complete(shard, come(shard, ticket).leases)
    assert come(shard, ticket).code == Code.EMPTY
    assert tickets(shard) == []
    shard.enqueue(1)
    assert len(fired(shard)) == 1


def test_a_claim_of_none_gives_it_back_and_its_commit_grants_another_where_jobs_wait(shard: Shard) -> None:
    attach(shard, max_concurrency=1)
    shard.enqueue(6)
    (ticket,) = fired(shard)
    come(shard, ticket)
    assert come(shard, ticket, limit=0).leases == ()
    (successor,) = fired(shard)
    assert tickets(shard) == [(successor, 0)]


def test_one_that_is_not_known_any_more_is_taken_up_while_there_is_work(shard: Shard) -> None:
    attach(shard, max_concurrency=1)
    shard.enqueue(1)
    (ticket,) = fired(shard)
    shard.now += limits.HOUR_MS
    shard.wakes = None
    shard.apply(RunTimers())
    assert tickets(shard) == []
    assert len(come(shard, ticket, holder=3).leases) == 1
    assert tickets(shard) == [(ticket, 3)]


def test_one_that_is_not_known_is_lost_where_there_is_no_room(shard: Shard) -> None:
    attach(shard, max_concurrency=1)
    shard.enqueue(6)
    fired(shard)
    assert come(shard, 12_345).code == Code.TICKET_LOST


def test_nobody_claims_for_a_consumer_that_is_not_attached(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(2)
    (ticket,) = fired(shard)
    shard.apply(ChangeSettings(consumers_dropped=("mailer",)))
    shard.apply(RunTimers())
    assert shard.state.tickets == {}
    assert come(shard, ticket).code == Code.TICKET_LOST


def test_who_holds_more_than_there_may_be_by_now_ends(shard: Shard) -> None:
    attach(shard, max_concurrency=2)
    shard.enqueue(100)
    first, second = fired(shard)
    come(shard, first, holder=1)
    come(shard, second, holder=2)
    attach(shard, max_concurrency=1)
    assert come(shard, second, holder=2).code == Code.TICKET_LOST
    assert tickets(shard) == [(first, 1)]
    assert len(come(shard, first, holder=1).leases) == 2


def test_a_paused_queue_gets_its_tickets_back(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(2)
    (ticket,) = fired(shard)
    shard.apply(ChangeSettings(paused=True))
    assert come(shard, ticket).code == Code.PAUSED
    assert tickets(shard) == []
    assert fired(shard) == []


# ── Time ─────────────────────────────────────────────────────────────────────
def test_one_that_nobody_takes_up_is_fired_again_ever_more_rarely(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(1)
    (ticket,) = fired(shard)
    times = []
    for second in range(1, 32):
        shard.now += 1_000
        shard.apply(RunTimers())
        if fired(shard) == [ticket]:
            times.append(second)
    assert times == [2, 6, 14, 30]


def test_what_cannot_start_is_tried_one_at_a_time(shard: Shard) -> None:
    attach(shard, max_concurrency=8)
    shard.enqueue(1)
    for _ in range(DOUBTFUL_TRIES):
        shard.now += 20_000
        shard.apply(RunTimers())
    fired(shard)
    shard.enqueue(100)
    assert fired(shard) == []
    assert len(tickets(shard)) == 1


def test_nothing_is_fired_again_when_no_job_waits(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(1)
    fired(shard)
    complete(shard, shard.claim())
    shard.now += 10_000
    shard.apply(RunTimers())
    assert fired(shard) == []


def test_who_is_not_heard_of_loses_it_with_the_lease(shard: Shard) -> None:
    attach(shard, max_concurrency=1)
    shard.enqueue(1)
    (ticket,) = fired(shard)
    come(shard, ticket)
    shard.now += LEASE_MS + 1
    shard.apply(RunTimers())
    (another,) = fired(shard)
    assert tickets(shard) == [(another, 0)]


def test_who_is_heard_of_keeps_it(shard: Shard) -> None:
    attach(shard, max_concurrency=1)
    shard.enqueue(1)
    (ticket,) = fired(shard)
    come(shard, ticket)
    shard.now += LEASE_MS - 1
    keep = KeepTicket(TicketUse("mailer", ticket, 7), LEASE_MS)
    assert shard.apply(keep)[0].code == Code.OK
    shard.now += LEASE_MS - 1
    shard.apply(RunTimers())
    assert tickets(shard) == [(ticket, 7)]
    other = KeepTicket(TicketUse("mailer", ticket, 8), LEASE_MS)
    assert shard.apply(other)[0].code == Code.TICKET_LOST


def test_the_only_holder_waits_for_what_is_about_to_be_due(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(1)
    shard.enqueue(1, delay_ms=1_500)
    (ticket,) = fired(shard)
    complete(shard, come(shard, ticket, limit=1).leases)
    answer = come(shard, ticket, nap_ms=2_000)
    assert (answer.code, answer.count) == (Code.RETRY, 1_500)
    assert tickets(shard) == [(ticket, 7)]
    shard.now += 1_500
    assert len(come(shard, ticket, nap_ms=2_000).leases) == 1


def test_nobody_waits_for_longer_than_he_would(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(1)
    shard.enqueue(1, delay_ms=2_500)
    (ticket,) = fired(shard)
    complete(shard, come(shard, ticket, limit=1).leases)
    assert come(shard, ticket, nap_ms=2_000).code == Code.EMPTY
    assert tickets(shard) == []


def test_a_claim_that_found_nothing_brings_no_wake_round_in_circles(shard: Shard) -> None:
    attach(shard, kinds=("mail",))
    shard.apply(ChangeSettings(rate=(1, 60_000), burst=1))
    shard.enqueue(3, kind="mail")
    (ticket,) = fired(shard)
    complete(shard, come(shard, ticket, limit=1).leases)
    assert come(shard, ticket).code == Code.RATE_LIMITED
    assert fired(shard) == []


def test_what_comes_in_the_commit_of_a_claim_that_found_nothing_is_not_missed(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(1)
    (ticket,) = fired(shard)
    complete(shard, come(shard, ticket).leases)
    empty = ClaimJobs(2, "consumer", LEASE_MS, use=TicketUse("mailer", ticket, 7))
    shard.commit([shard.request(empty, env="a"), shard.request(EnqueueJobs((shard.new(),)), env="b")])
    assert len(fired(shard)) == 1


def test_a_retry_that_is_due_at_once_is_waited_for_by_whoever_reported_the_failure(shard: Shard) -> None:
    attach(shard)
    shard.enqueue(1)
    (ticket,) = fired(shard)
    (lease,) = come(shard, ticket).leases
    failed = FailJobs((FailedAttempt(lease.job.key, lease.token, "no", 0, 0.0),))
    claim = ClaimJobs(2, "consumer", LEASE_MS, use=TicketUse("mailer", ticket, 7, 2_000))
    _, answer = shard.apply(failed, claim)
    assert answer.runs == ((Code.RETRY, 1),)
    assert len(come(shard, ticket, nap_ms=2_000).leases) == 1


def test_a_holder_that_still_has_jobs_keeps_its_ticket_where_there_are_no_more(shard: Shard) -> None:
    attach(shard, max_concurrency=1)
    shard.enqueue(1)
    (ticket,) = fired(shard)
    leases = come(shard, ticket).leases
    use = TicketUse("mailer", ticket, 7, busy=True)
    assert shard.apply(ClaimJobs(1, "consumer", LEASE_MS, use=use))[0].code == Code.EMPTY
    assert tickets(shard) == [(ticket, 7)]
    shard.enqueue(1)
    assert fired(shard) == []  # there is no room for another invocation
    assert len(shard.apply(ClaimJobs(1, "consumer", LEASE_MS, use=use))[0].leases) == 1
    complete(shard, leases)
    come(shard, ticket)
    assert tickets(shard) == []
