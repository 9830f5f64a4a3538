"""What is told of consumers: by ``flow``, and by ``why`` of a job that waits for one."""

from __future__ import annotations

from osqueue.aws import consumer
from tests.support.consumers import Consumed


def test_flow_tells_who_is_at_work_who_was_invoked_and_since_when() -> None:
    emails = Consumed(batch=1, max_concurrency=3)
    assert emails.q.flow().consumers["mailer"].most == 3
    emails.q.enqueue_many([{"payload": number} for number in range(3)])
    fired_at = emails.clock.now
    emails.clock.advance(5)
    seen = []

    def handler(job: object) -> None:
        use = emails.q.flow().consumers["mailer"]
        seen.append((use.target, use.held, use.fired, use.most))

    wake = emails.next_wake()
    use = emails.q.flow().consumers["mailer"]
    assert (use.fired, use.tries) == (3, 1)
    assert abs((use.since - fired_at).total_seconds()) < 0.01  # type: ignore[operator]
    emails.deliver(consumer(batch=3)(handler), wake)
    assert seen[0] == ("arn:mailer", 1, 2, 3)
    assert emails.q.flow().consumers["mailer"].held == 0


def test_over_shards_the_uses_are_summed() -> None:
    emails = Consumed(batch=1, max_concurrency=4)
    emails.q.configure(shards=2)
    for number in range(4):
        emails.q.enqueue(number)
    use = emails.q.flow().consumers["mailer"]
    assert (use.most, use.fired) == (4, 4)


def test_why_names_the_consumers_of_a_job_and_how_they_stand() -> None:
    emails = Consumed(batch=10, max_concurrency=3, kinds=["welcome"])
    other = emails.q.enqueue(1, kind="report").job_id or ""
    assert "consumer" not in emails.q.story(other).next
    job_id = emails.q.enqueue(1, kind="welcome").job_id or ""
    emails.clock.advance(7)
    told = emails.q.story(job_id).next
    assert "as soon as consumer mailer (1 invoked once and not come yet, " in told
    assert "7 s ago" in told
    assert "or a worker that takes jobs of kind welcome claims it" in told
    emails.q.reap()
    assert "1 invoked 2 times and not come yet" in emails.q.story(job_id).next


def test_why_says_how_many_are_at_work() -> None:
    emails = Consumed(batch=1, max_concurrency=1)
    emails.q.enqueue(1)
    told = []

    def handler(job: object) -> None:
        if not told:
            told.append(emails.q.story(emails.q.enqueue(2).job_id or "").next)

    emails.deliver(consumer(handler))
    assert "consumer mailer (1 of 1 at work)" in told[0]
