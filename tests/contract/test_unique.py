"""Ids that are taken for less or for longer, and jobs that take the place of others, over every store and API."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import JobCancelled, Rejected, Unique

REPLACE = Unique(on_duplicate="replace")
DEBOUNCE = Unique(on_duplicate="debounce", max_wait=60)


def told(done: Any) -> tuple[str, str | None]:
    return done.status, done.state


# ── For how long an id is taken ──────────────────────────────────────────────
def test_while_it_is_live_a_result_does_not_count(q: Any) -> None:
    rule = Unique(while_="live")
    assert told(q.enqueue(1, id="report-7", unique=rule)) == ("queued", "queued")
    assert told(q.enqueue(2, id="report-7", unique=rule)) == ("duplicate", "queued")
    (lease,) = q.claim()
    assert told(q.enqueue(2, id="report-7", unique=rule)) == ("duplicate", "processing")
    lease.complete("done")
    assert told(q.enqueue(2, id="report-7")) == ("completed", "completed")
    assert told(q.enqueue(2, id="report-7", unique=rule)) == ("queued", "queued")


def test_while_it_waits_one_waits_behind_one_that_runs(q: Any) -> None:
    rule = Unique(while_="waiting")
    first = q.enqueue(1, id="sync-7", unique=rule)
    assert q.enqueue(2, id="sync-7", unique=rule).status == "duplicate"
    (lease,) = q.claim()
    second = q.enqueue(3, id="sync-7", unique=rule)
    assert (second.status, second.job_id == first.job_id) == ("queued", False)
    assert q.enqueue(4, id="sync-7", unique=rule).job_id == second.job_id
    lease.complete()
    assert [each.payload for each in q.claim(5)] == [3]


def test_a_window_lasts_whatever_becomes_of_the_job(q: Any, clock: Any) -> None:
    rule = Unique(window=3_600)
    first = q.enqueue(1, id="digest-7", unique=rule, result_ttl=1)
    q.claim()[0].complete("sent")
    clock.shift_ms += 1_000_000
    again = q.enqueue(2, id="digest-7", unique=rule)
    assert (again.status, again.state, again.job_id) == ("duplicate", "completed", first.job_id)
    assert q.enqueue(2, id="digest-7").status == "duplicate"  # also to who asks for no window
    clock.shift_ms += 2_700_000
    assert q.enqueue(3, id="digest-7", unique=rule).status == "queued"
    assert q.cancel("digest-7") == "cancelled"
    assert told(q.enqueue(4, id="digest-7", unique=rule)) == ("duplicate", "cancelled")


def test_a_window_outlasts_upkeep(q: Any, clock: Any) -> None:
    first = q.enqueue(1, id="digest-7", unique=Unique(window=10 * 86_400), result_ttl=1)
    q.claim()[0].complete()
    for _ in range(3):
        clock.shift_ms += 3 * 86_400_000
        q.reap()
        assert q.enqueue(2, id="digest-7").job_id == first.job_id
    clock.shift_ms += 3 * 86_400_000
    q.reap()
    assert q.enqueue(2, id="digest-7").status == "queued"


# ── In the place of one that waits ───────────────────────────────────────────
def test_a_job_takes_the_place_of_the_one_that_waits(q: Any) -> None:
    first = q.enqueue({"v": 1}, id="index-7", unique=REPLACE)
    q.enqueue({"v": 0})
    second = q.enqueue({"v": 2}, id="index-7", unique=REPLACE, kind="", max_attempts=7)
    assert (first.status, second.status, second.state) == ("queued", "replaced", "queued")
    assert first.job_id != second.job_id
    job = q.status("index-7")
    assert (job.job_id, job.replaced, job.max_attempts) == (second.job_id, 1, 7)
    old = q.status(first.job_id)
    assert (old.state, old.replaced_by) == ("cancelled", second.job_id)
    story = str(q.why(first.job_id))
    assert f"by a later job of its id, {second.job_id}" in story
    assert "the record of the last one alone" in story
    leases = q.claim(5)
    assert [each.payload for each in leases] == [{"v": 2}, {"v": 0}]  # it kept its turn
    leases[0].complete("indexed")
    assert q.result("index-7") == "indexed"
    with pytest.raises(JobCancelled, match=f"replaced by job {second.job_id}"):
        q.result(first.job_id)


def test_one_that_runs_is_left_alone(q: Any) -> None:
    q.enqueue(1, id="index-7", unique=REPLACE)
    (lease,) = q.claim()
    assert q.enqueue(2, id="index-7", unique=REPLACE).status == "queued"  # behind it
    assert q.enqueue(3, id="index-7", unique=REPLACE).status == "replaced"
    lease.complete()
    (lease,) = q.claim(5)
    assert lease.payload == 3
    kept = Unique(while_="live", on_duplicate="replace")
    assert told(q.enqueue(4, id="index-7", unique=kept)) == ("duplicate", "processing")


def test_one_that_waits_for_its_retry_is_replaced_with_all_attempts_anew(q: Any) -> None:
    q.enqueue(1, id="index-7", unique=REPLACE, max_attempts=2)
    q.claim()[0].fail("no", retry_in=600)
    assert q.enqueue(2, id="index-7", unique=REPLACE).status == "replaced"
    (lease,) = q.claim()
    assert (lease.payload, lease.attempt) == (2, 1)


def test_debouncing_postpones_and_ends_at_the_most_wait(q: Any, clock: Any) -> None:
    for at in range(30):
        done = q.enqueue(at, id="index-7", unique=DEBOUNCE, delay=5)
        assert told(done) == ("postponed" if at else "queued", "scheduled" if at < 30 else "queued")
        clock.shift_ms += 1_900
        assert q.claim() == []
    assert "replaced 29 times since" in str(q.why("index-7"))
    clock.shift_ms += 6_000
    (lease,) = q.claim()
    assert lease.payload == 29
    assert q.status("index-7").replaced == 29


def test_why_says_until_when_at_the_latest(q: Any) -> None:
    q.enqueue(1, id="index-7", unique=DEBOUNCE, delay=5)
    story = str(q.why("index-7"))
    assert "postponed by other calls until " in story
    assert " at the latest" in story


def test_large_payloads_take_places_too(q: Any) -> None:
    q.enqueue("x" * 5_000, id="index-7", unique=REPLACE)
    q.enqueue("y" * 6_000, id="index-7", unique=REPLACE)
    (lease,) = q.claim(5)
    assert lease.payload == "y" * 6_000


def test_jobs_deep_in_segments_are_replaced(q: Any) -> None:
    items = [{"payload": n, "id": f"index-{n}", "priority": 3} for n in range(900)]
    q.enqueue_many(items)
    again = [{**items[n], "payload": -n, "unique": REPLACE} for n in range(300, 420)]
    assert Counter(each.status for each in q.enqueue_many(again)) == {"replaced": 120}
    payloads = []
    while leases := q.claim(100):
        payloads += [each.payload for each in leases]
        q.complete_many(leases)
    assert sorted(payloads) == sorted(
        [n for n in range(900) if not 300 <= n < 420] + [-n for n in range(300, 420)]
    )


def test_of_a_bulk_the_last_under_an_id_holds(q: Any) -> None:
    items = [{"payload": n, "id": "index-7", "unique": {"on_duplicate": "replace"}} for n in range(40)]
    done = q.enqueue_many([*items, {"payload": "x"}])
    assert [each.status for each in done] == ["queued", *["replaced"] * 39, "queued"]
    assert len({each.job_id for each in done[1:40]}) == 1
    assert sorted(str(each.payload) for each in q.claim(50)) == ["39", "x"]


def test_cancel_by_id_means_the_one_that_holds(q: Any) -> None:
    first = q.enqueue(1, id="index-7", unique=REPLACE)
    q.enqueue(2, id="index-7", unique=REPLACE)
    assert q.cancel(first.job_id) == "cancelled"
    assert q.status("index-7").state == "queued"
    assert q.cancel("index-7") == "cancelled"
    assert q.claim() == []


def test_a_purge_of_the_old_one_leaves_the_new_one(q: Any) -> None:
    first = q.enqueue(1, id="index-7", unique=REPLACE)
    second = q.enqueue(2, id="index-7", unique=REPLACE)
    q.purge(first.job_id)
    assert q.status("index-7").job_id == second.job_id
    assert q.enqueue(3, id="index-7").status == "duplicate"
    q.purge("index-7")
    assert q.status("index-7") is None
    assert q.enqueue(3, id="index-7", unique=REPLACE).status == "queued"


def test_of_many_who_debounce_at_once_one_job_is_left(opened: Callable[..., Any]) -> None:
    statuses: Counter[str] = Counter()
    queues = [opened() for _ in range(4)]

    def storm(q: Any, number: int) -> None:
        for at in range(5):
            statuses[q.enqueue([number, at], id="index-7", unique=REPLACE).status] += 1

    if hasattr(queues[0], "_loop"):  # coroutines of one loop
        for number, q in enumerate(queues):
            storm(q, number)
    else:
        threads = [threading.Thread(target=storm, args=(q, number)) for number, q in enumerate(queues)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == {"queued": 1, "replaced": 19}
    (lease,) = queues[0].claim(50)
    assert lease.payload[1] == 4  # the last of somebody's
    assert queues[0].status("index-7").replaced == 19


# ── What is refused ──────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"unique": REPLACE}, "unique", "Give the job an id"),
        ({"id": "a", "unique": "replace"}, "unique", "unique"),
        ({"id": "a", "unique": {"on_duplicate": "again"}}, "unique.on_duplicate", "again"),
        ({"id": "a", "unique": {"while": "asleep"}}, "unique.while", "asleep"),
        ({"id": "a", "unique": {"for": 5}}, "unique", "for"),
        ({"id": "a", "unique": {"window": 0}}, "unique.window", "0.001"),
        ({"id": "a", "unique": {"window": 31 * 86_400}}, "unique.window", "2,592,000"),
        ({"id": "a", "unique": {"max_wait": 5}}, "unique.max_wait", 'on_duplicate="debounce"'),
        ({"id": "a", "unique": DEBOUNCE}, "delay", "Give one"),
        ({"id": "a", "unique": DEBOUNCE, "delay": 61}, "unique.max_wait", "less than the delay"),
    ],
)
def test_what_does_not_go_together_is_refused(
    q: Any, options: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(Rejected, match=words) as caught:
        q.enqueue(1, **options)
    assert caught.value.field == field
    (done,) = q.enqueue_many([{"payload": 1, **options}])
    assert (done.status, done.error.field) == ("rejected", field)


# ── A job that runs is asked to end ──────────────────────────────────────────
RESTART = Unique(on_duplicate="restart")


def test_a_job_that_runs_is_asked_to_end_and_the_new_one_waits_behind_it(opened: Callable[..., Any]) -> None:
    q = opened()
    first = q.enqueue({"n": 1}, id="a", group="g", unique=RESTART)
    (running,) = q.claim()
    second = q.enqueue({"n": 2}, id="a", group="g", unique=RESTART)
    assert (first.status, second.status) == ("queued", "queued")
    assert second.job_id != first.job_id
    assert q.claim().reason == "groups_closed"
    running.heartbeat()
    assert running.cancel_requested
    third = q.enqueue({"n": 3}, id="a", group="g", unique=RESTART)  # at most one waits
    assert third.status == "replaced"
    assert q.stats()["queued"] == 1
    running.cancel()
    (last,) = q.claim()
    assert (last.payload, last.job_id) == ({"n": 3}, third.job_id)
    assert q.status("a").job_id == third.job_id
    assert q.status(first.job_id).state == "cancelled"


def test_one_that_does_not_end_early_is_waited_for(opened: Callable[..., Any]) -> None:
    q = opened()
    q.enqueue({"n": 1}, id="a", group="g", unique=RESTART)
    (running,) = q.claim()
    q.enqueue({"n": 2}, id="a", group="g", unique=RESTART)
    running.complete("done all the same")
    assert [lease.payload for lease in q.claim(5)] == [{"n": 2}]


def test_a_restart_needs_the_group_of_the_one_that_runs(opened: Callable[..., Any]) -> None:
    q = opened()
    with pytest.raises(Rejected, match=r"^group: on_duplicate=.restart."):
        q.enqueue(1, id="a", unique=RESTART)
    with pytest.raises(Rejected, match=r"^unique.while: 'live' keeps"):
        q.enqueue(1, id="a", group="g", unique=Unique(on_duplicate="restart", while_="live"))
    q.enqueue(1, id="a")
    (running,) = q.claim()
    with pytest.raises(Rejected, match=r"the job of this id that runs is of no group"):
        q.enqueue(2, id="a", group="g", unique=RESTART)
    running.heartbeat()
    assert not running.cancel_requested
    assert q.stats()["queued"] == 0
