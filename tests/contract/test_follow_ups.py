"""Jobs that come when others complete, over every store and API."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Next, Rejected


def finish(q: Any, result: Any = None) -> Any:
    """Claim one job, complete it; the lease."""
    (lease,) = q.claim()
    lease.payload, lease.input  # noqa: B018  # read while it is held
    lease.complete(result)
    return lease


def test_a_follow_up_comes_when_the_job_completes_with_its_result(q: Any) -> None:
    first = q.enqueue({"page": 1}, kind="fetch", then=[Next("resize", priority=1)])
    assert q.status(first.job_id).then == 1
    assert finish(q, {"bytes": 7}).payload == {"page": 1}
    (lease,) = q.claim(9)
    assert (lease.kind, lease.priority, lease.parent) == ("resize", 1, first.job_id)
    assert lease.payload == lease.input == {"bytes": 7}
    over = q.status(first.job_id)
    assert (over.then, over.follow_ups) == (0, (lease.job_id,))
    assert q.status(lease.job_id).parent == first.job_id


def test_one_with_a_payload_has_the_result_as_its_input(q: Any) -> None:
    q.enqueue(1, then=[Next("notify", {"to": "ada"}), {"kind": "index", "payload": None}])
    finish(q, [1, "two"])
    told = {lease.kind: (lease.payload, lease.input) for lease in q.claim(9)}
    assert told == {"notify": ({"to": "ada"}, [1, "two"]), "index": (None, [1, "two"])}


def test_a_large_result_is_handed_on(q: Any) -> None:
    large = "r" * 90_000
    q.enqueue(1, then=[Next("one"), Next("two", {"own": True})])
    finish(q, large)
    told = {lease.kind: (lease.payload, lease.input) for lease in q.claim(9)}
    assert told == {"one": (large, large), "two": ({"own": True}, large)}


def test_a_job_without_a_result_hands_on_nothing(q: Any) -> None:
    q.enqueue(1, then=[Next("one"), Next("two", 2)])
    finish(q)
    assert [(lease.payload, lease.input) for lease in q.claim(9)] == [(None, None), (2, None)]


def test_a_chain_goes_on_one_by_one(q: Any) -> None:
    q.enqueue(0, kind="a", then=[Next("b", then=[Next("c", then=[{"kind": "d"}])])])
    for number, kind in enumerate("abcd"):
        lease = finish(q, number + 1)
        assert (lease.kind, lease.payload) == (kind, number)
    assert not q.claim(9)


def test_results_of_another_serialiser_are_handed_on(opened: Any) -> None:
    q = opened(serializer="msgpack")
    q.enqueue({"raw": b"\x00\xff"}, then=[Next("one"), Next("two", {"plain": 1})])
    finish(q, b"\x01\x02")
    assert [(lease.payload, lease.input) for lease in q.claim(9)] == [
        (b"\x01\x02", b"\x01\x02"),
        ({"plain": 1}, b"\x01\x02"),
    ]


def test_what_dies_keeps_them_and_what_is_cancelled_drops_them(q: Any) -> None:
    q.enqueue(1, id="dies", max_attempts=1, then=[Next("next")])
    q.claim()[0].fail("no")
    assert not q.claim(9)
    assert q.redrive() == 1
    finish(q)
    assert finish(q).kind == "next"
    q.enqueue(1, id="stops", then=[Next("next")])
    assert q.cancel("stops") == "cancelled"
    assert not q.claim(9)


def test_many_of_a_call_have_their_own(q: Any) -> None:
    done = q.enqueue_many([{"payload": at, "then": [Next("next", at)]} for at in range(30)])
    assert {each.status for each in done} == {"queued"}
    for lease in q.claim(30):
        lease.complete(lease.payload * 2)
    assert sorted((lease.payload, lease.input) for lease in q.claim(99)) == [(at, at * 2) for at in range(30)]


def test_a_bulk_has_follow_ups_too(q: Any) -> None:
    q.enqueue_many([{"payload": at, "then": [Next("next")]} for at in range(1_200)])
    leases = q.claim(40)
    assert all(done.ok for done in q.complete_many(leases))
    assert q.stats()["queued"] == 1_200


def test_a_delayed_follow_up_waits_for_its_time(q: Any, clock: Any) -> None:
    q.enqueue(1, then=[Next("later", delay=60)])
    finish(q)
    assert not q.claim(9)
    clock.shift_ms += 120_000
    assert finish(q).kind == "later"


def test_follow_ups_are_of_groups_and_stay_in_order(q: Any) -> None:
    for at in range(3):
        q.enqueue(at, group="g", then=[Next("after", group="g")])
    order = [finish(q, lease_at).kind for lease_at in range(6)]
    assert order == [None] * 3 + ["after"] * 3


def test_a_chain_of_two_homes_is_refused_and_one_of_one_is_taken_home(q: Any) -> None:
    q.configure(shards=4)
    chain = [{"payload": 1, "group": f"a{at}", "then": [Next("x", group=f"b{at}")]} for at in range(16)]
    refused = [each.error for each in q.enqueue_many(chain) if each.error]
    assert "are at home in two" in refused[0].message
    assert {each.field for each in refused} == {"then"}
    homes = {q.enqueue(1, then=[Next("x", group="g")]).job_id[-2:] for _ in range(6)}
    assert homes == {q.enqueue(1, group="g").job_id[-2:]}


@pytest.mark.parametrize(
    ("then", "field"),
    [
        (7, "then"),
        ([7], "then[0].kind"),
        ([Next("a")] * 9, "then"),
        ([{"kind": "a", "id": "x"}], "then[0].id"),
        ([Next("a", priority=10)], "then[0].priority"),
        ([Next("a"), Next("b", then=[Next("c", delay=-1)])], "then[1].then[0].delay"),
        ([Next("a", object())], "then[0].payload"),
        ([Next("a", "x" * 5_000)], "then"),
        ({}, "then"),
    ],
    ids=range(9),
)
def test_a_bad_one_is_refused_by_its_place(q: Any, then: Any, field: str) -> None:
    with pytest.raises(Rejected) as refused:
        q.enqueue(1, then=then)
    assert refused.value.field == field
    assert refused.value.message.startswith(field)
    assert not q.claim()


def test_they_may_not_follow_one_another_without_end(q: Any) -> None:
    then: list[Next] = []
    for _ in range(9):
        then = [Next("deeper", then=then)]
    with pytest.raises(Rejected, match="deeper than 8"):
        q.enqueue(1, then=then)


def test_a_job_of_a_schedule_has_follow_ups(q: Any) -> None:
    made = q.schedule("nightly", "0 3 * * *", then=[Next("report")])
    assert made.options["then"] == [{"kind": "report"}]
    q.run_schedule("nightly")
    finish(q, 5)
    assert finish(q).payload == 5
    with pytest.raises(Rejected, match="at home"):
        q.schedule("other", "0 3 * * *", then=[Next("report", group="g")])


def test_why_tells_which_job_came_before(q: Any) -> None:
    first = q.enqueue(1, then=[Next("next")])
    finish(q)
    (lease,) = q.claim()
    assert f"made when {first.job_id} ended" in str(q.why(lease.job_id))
