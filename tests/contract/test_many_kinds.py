"""More kinds than lanes, over every store and API, blocking and async: each is found, and keeps its order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from osqueue import Rejected, limits
from osqueue.model.settings import Kind

KINDS = [f"k{at}" for at in range(40)]
LAST = KINDS[-1]  # it has no lane of its own


def drain(q: Any, kinds: Iterable[str] | None = None) -> dict[str, list[Any]]:
    """Claim and complete all there is; the payloads by kind, as they came."""
    found: dict[str, list[Any]] = defaultdict(list)
    while leases := q.claim(500, kinds=kinds):
        for lease in leases:
            found[lease.kind].append(lease.payload)
        assert all(done.ok for done in q.complete_many(leases))
    assert leases.reason == "empty"
    return found


def one_of_each(q: Any, kinds: Iterable[str] = KINDS, **options: Any) -> dict[str, str]:
    """A job of each kind, and their ids."""
    done = q.enqueue_many([{"payload": kind, "kind": kind, **options} for kind in kinds])
    return {kind: each.job_id for kind, each in zip(kinds, done, strict=True)}


# ── Found, and in order ──────────────────────────────────────────────────────
def test_kinds_that_come_one_by_one(opened: Callable[..., Any]) -> None:
    q, other = opened(), opened()
    for at in range(2):
        for kind in KINDS:
            assert q.enqueue(at, kind=kind).state == "queued"
    assert [(lease.kind, lease.payload) for lease in other.claim(5, kinds=[LAST])] == [(LAST, 0), (LAST, 1)]
    assert [lease.payload for lease in other.claim(kinds=["k5"])] == [0]
    none = other.claim(kinds=[LAST, "nobody's"])
    assert (list(none), none.reason) == ([], "empty")
    assert q.stats()["queued"] == 77
    assert drain(other) == {kind: [1] if kind == "k5" else [0, 1] for kind in KINDS[:-1]}


def test_a_bulk_of_many_kinds(q: Any) -> None:
    kinds = [f"k{at}" for at in range(60)]
    items = [{"payload": at, "kind": kinds[at % 60]} for at in range(3_000)]
    assert {done.status for done in q.enqueue_many(items)} == {"queued"}
    assert q.stats()["queued"] == 3_000
    rare = ["k57", "k3"]
    assert drain(q, rare) == {"k57": list(range(57, 3_000, 60)), "k3": list(range(3, 3_000, 60))}
    rest = drain(q)
    assert rest == {kind: list(range(at, 3_000, 60)) for at, kind in enumerate(kinds) if kind not in rare}


def test_a_kind_behind_a_bulk_of_others_is_found(q: Any) -> None:
    q.enqueue_many([{"payload": at, "kind": f"k{at % 50}"} for at in range(2_000)])
    q.enqueue("needle", kind="rare")
    assert [lease.payload for lease in q.claim(3, kinds=["rare"])] == ["needle"]
    assert [lease.payload for lease in q.claim(2)] == [0, 1]


def test_a_claim_may_name_many_kinds(q: Any) -> None:
    one_of_each(q)
    asked = KINDS[10:]
    assert drain(q, asked) == {kind: [kind] for kind in asked}
    most = limits.KINDS_PER_CLAIM_MAX
    assert len(q.claim(5, kinds=[f"k{at}" for at in range(most)])) == 5
    with pytest.raises(Rejected) as caught:
        q.claim(kinds=[f"k{at}" for at in range(most + 1)])
    assert caught.value.field == "kinds"


def test_urgent_jobs_come_first_whatever_their_kind(q: Any) -> None:
    one_of_each(q, priority=7)
    one_of_each(q, [f"soon{at}" for at in range(30)], priority=1)
    assert {lease.kind[:4] for lease in q.claim(30)} == {"soon"}
    assert len(q.claim(99)) == len(KINDS)


def test_a_kinds_jobs_keep_their_order_when_lanes_come_free(q: Any) -> None:
    one_of_each(q, KINDS[:20])
    q.enqueue("older", kind=LAST)
    drain(q, KINDS[:10])
    q.enqueue("younger", kind=LAST)
    q.enqueue("k0 again", kind="k0")
    assert drain(q, [LAST, "k0"]) == {LAST: ["older", "younger"], "k0": ["k0 again"]}


# ── Steering ─────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("bulk", [False, True], ids=["in the head", "in a segment"])
def test_a_job_without_a_lane_of_its_kind_is_listed_explained_and_cancelled(q: Any, bulk: bool) -> None:
    if bulk:
        q.enqueue_many([{"payload": 0, "kind": KINDS[at % 30]} for at in range(1_200)])
    else:
        one_of_each(q, KINDS[:30])
    ahead = q.stats()["queued"]
    ids = [q.enqueue(at, kind=LAST).job_id for at in range(3)]
    found, _ = q.jobs("queued", kinds=[LAST])
    assert sorted(job.job_id for job in found) == sorted(ids)
    assert q.status(ids[0]).state == "queued"
    assert f"{ahead:,}" in str(q.why(ids[0]))
    assert q.cancel(ids[1]) == "cancelled"
    assert q.stats()["queued"] == ahead + 2
    assert [lease.payload for lease in q.claim(5, kinds=[LAST])] == [0, 2]
    assert q.cancel(ids[2]) == "processing"


def test_a_job_without_a_lane_of_its_kind_is_purged(q: Any) -> None:
    ids = one_of_each(q)
    done = q.purge(ids[LAST])
    assert (done.jobs, done.cancelled) == ((ids[LAST],), 1)
    assert q.status(ids[LAST]) is None
    assert drain(q) == {kind: [kind] for kind in KINDS[:-1]}


def test_dead_letters_of_many_kinds_are_queued_again(q: Any) -> None:
    one_of_each(q, max_attempts=1)
    while leases := q.claim(50):
        for lease in leases:
            lease.fail("x")
    assert q.stats()["failed"] == len(KINDS)
    assert q.redrive(kinds=[LAST]) == 1
    assert q.redrive() == len(KINDS) - 1
    assert q.stats()["queued"] == len(KINDS)
    assert [lease.payload for lease in q.claim(5, kinds=[LAST])] == [LAST]
    assert len(q.claim(50)) == len(KINDS) - 1


def test_a_released_job_is_the_first_of_its_kind_again(q: Any) -> None:
    one_of_each(q)
    q.enqueue("second", kind=LAST)
    (lease,) = q.claim(kinds=[LAST])
    lease.release()
    assert drain(q, [LAST]) == {LAST: [LAST, "second"]}


# ── Time, pauses and limits ──────────────────────────────────────────────────
def test_delayed_jobs_of_many_kinds_become_due(q: Any, clock: Any) -> None:
    one_of_each(q, KINDS[:29])
    q.enqueue("late", kind=KINDS[29], delay=60)
    q.enqueue("later", kind=KINDS[29], delay=600)
    assert q.claim(kinds=[KINDS[29]]) == []
    clock.shift_ms += 63_000
    assert [lease.payload for lease in q.claim(5, kinds=[KINDS[29]])] == ["late"]
    later, _ = q.jobs("scheduled", kinds=[KINDS[29]])
    assert q.run_now(later[0].job_id) == "queued"
    assert [lease.payload for lease in q.claim(5, kinds=[KINDS[29]])] == ["later"]
    assert len(drain(q)) == 29


def test_a_kind_without_a_lane_is_paused_by_itself(q: Any) -> None:
    one_of_each(q)
    q.enqueue("second", kind=LAST)
    q.pause(LAST)
    none = q.claim(kinds=[LAST])
    assert (list(none), none.reason, none.scope) == ([], "paused", "kind")
    rest = q.claim(99)
    assert sorted(lease.kind for lease in rest) == sorted(KINDS[:-1])
    assert q.claim().reason == "paused"
    q.resume(LAST)
    assert drain(q) == {LAST: [LAST, "second"]}


def test_a_kind_without_a_lane_has_a_running_limit(q: Any) -> None:
    one_of_each(q)
    q.enqueue("second", kind=LAST)
    q.configure(kinds={LAST: Kind(max_running=1)})
    (lease,) = q.claim(5, kinds=[LAST])
    none = q.claim(kinds=[LAST])
    assert (list(none), none.reason) == ([], "running_limit")
    assert len(q.claim(99)) == len(KINDS) - 1
    lease.complete()
    assert [lease.payload for lease in q.claim(5, kinds=[LAST])] == ["second"]


def test_shards_hold_many_kinds_each(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(shards=3)
    for at in range(4):
        one_of_each(opened() if at else q)
    assert q.stats()["queued"] == 4 * len(KINDS)
    assert drain(q) == {kind: [kind] * 4 for kind in KINDS}
