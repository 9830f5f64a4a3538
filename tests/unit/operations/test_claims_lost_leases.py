"""Completing many jobs whose leases are lost: which of them were completed before, and what it costs to know."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import OsqueueError, Queue, Unavailable, limits
from osqueue.commit.effects import Submit
from osqueue.core.queue_ops import RunTimers
from osqueue.objects.layout import read_state, root_of
from osqueue.server.app import Api
from osqueue.stores.base import Delete, Failed, Get, List, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.caller import QUEUE, Caller
from tests.support.stepping import LOST, Call

MANY = 300


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "mail", machine=machine)


def claimed(q: Queue[Any], count: int = MANY) -> list[Any]:
    q.enqueue_many([{"payload": at} for at in range(count)])
    return q.claim(limit=count)


def flush(q: Queue[Any]) -> None:
    """Let finished jobs leave the heads for tables."""

    def flow() -> Any:
        for shard in range(q.stats()["shards"]):
            yield Submit(shard, (RunTimers(flush=True),))

    q._run(flow())


def gets(q: Queue[Any]) -> int:
    return q.requests["get"]


def codes(done: list[Any]) -> list[str]:
    return [each.code for each in done]


def test_leases_that_others_hold_now_are_looked_up_at_once(q: Queue[Any], machine: Any) -> None:
    leases = claimed(q)
    machine.advance(limits.LEASE_MS_DEFAULT / 1000 + 1)
    q.claim(limit=MANY)
    before = gets(q)
    assert codes(q.complete_many(leases)) == ["lease_lost"] * MANY
    assert gets(q) - before <= 2


def test_completing_again_what_has_left_the_head_succeeds_and_reads_each_table_once(q: Queue[Any]) -> None:
    leases = claimed(q)
    q.complete_many(leases)
    flush(q)
    before = gets(q)
    assert codes(q.complete_many(leases)) == ["ok"] * MANY
    assert gets(q) - before < 20


def test_each_is_told_by_its_own_token(q: Queue[Any], machine: Any) -> None:
    leases = claimed(q, 40)
    q.complete_many(leases[:10])
    flush(q)
    q.complete_many(leases[10:20])
    machine.advance(limits.LEASE_MS_DEFAULT / 1000 + 1)
    again = q.claim(limit=20)
    q.complete_many(again[:10])
    stale = [{"job_id": each.job_id, "token": "another"} for each in leases[:3]]
    unknown = [{"job_id": "01890a5d-ac96-774b-bcce-b302099a8000", "token": "x"}]
    assert codes(q.complete_many([*leases, *stale, *unknown])) == [
        *["ok"] * 20,
        *["lease_lost"] * 24,
    ]


def test_every_shard_is_looked_at_once(q: Queue[Any]) -> None:
    q.configure(shards=4)
    for at in range(4):
        q.enqueue_many([{"payload": at}] * 20)
    leases: list[Any] = []
    while found := q.claim(limit=100):
        leases += found
    q.complete_many(leases)
    flush(q)
    before = gets(q)
    assert codes(q.complete_many(leases)) == ["ok"] * 80
    assert gets(q) - before < 20


def test_rows_are_found_below_an_index_and_in_the_youngest_table_that_knows_them(q: Queue[Any]) -> None:
    done = []
    for _ in range(40):  # so many tables that the oldest lie below an index
        leases = claimed(q, 5)
        q.complete_many(leases)
        flush(q)
        done += leases
    before = gets(q)
    assert codes(q.complete_many(done)) == ["ok"] * 200
    assert gets(q) - before < 100


def test_a_table_that_is_merged_away_meanwhile_is_found_again(q: Queue[Any], machine: Any) -> None:
    other: Queue[Any] = Queue(q.store, "mail", machine=machine)
    leases = claimed(q, 60)
    for at in range(0, 60, 20):
        q.complete_many(leases[at : at + 20])
        flush(q)
    call = Call(q, q._complete_many(leases))
    call.until(lambda request: isinstance(request, Get) and "/finished/" in request.key)
    root = root_of("mail", 0)
    there: Any = q.store.perform(List(f"{root}finished/"))
    for _ in range(3):
        other.reap()
    lost = [each for each in there.keys if each[len(root) :] not in repr(other._run(read_state("mail", 0)))]
    assert lost
    q.store.perform(Delete(tuple(lost)))  # as a collector would
    assert codes(call.finish()) == ["ok"] * 60


# ── When the look at what became of them fails ───────────────────────────────
class Mute(MemoryStore):
    """A store that, from the next head that is written on, gives no answer to some reads of it."""

    armed = False
    mute = 0  # reads

    def perform(self, request: StoreRequest) -> StoreReply:
        if not self.armed and self.mute and isinstance(request, Get) and request.key.endswith("/head"):
            self.mute -= 1
            return LOST
        if isinstance(request, PutIfMatch):
            self.armed = False
        return super().perform(request)

    def go_silent(self, reads: int) -> None:
        """Begin after the next commit."""
        self.armed, self.mute = True, reads


@pytest.fixture
def mute(machine: Any) -> Mute:
    return Mute(machine)


@pytest.fixture
def spoken(mute: Mute, machine: Any) -> Queue[Any]:
    return Queue(mute, "mail", machine=machine)


def test_an_answer_that_does_not_arrive_is_asked_for_again(spoken: Queue[Any], mute: Mute) -> None:
    leases = claimed(spoken, 10)
    leases[0].release()
    mute.go_silent(reads=1)
    assert codes(spoken.complete_many(leases)) == ["lease_lost", *["ok"] * 9]
    mute.mute = 1
    assert spoken.stats()["completed"] == 9
    mute.mute = 1
    job = spoken.status(leases[1].job_id)
    assert job is not None
    assert job.state == "completed"


def test_what_was_committed_is_told_though_the_fate_of_another_is_not_known(
    spoken: Queue[Any], mute: Mute
) -> None:
    leases = claimed(spoken, 10)
    leases[0].complete()
    flush(spoken)
    mute.go_silent(reads=10**9)
    assert codes(spoken.complete_many(leases)) == ["stale", *["ok"] * 9]
    mute.mute = 0
    assert codes(spoken.complete_many(leases)) == ["ok"] * 10, "said again"


def test_an_api_tells_it_just_so(spoken: Queue[Any], mute: Mute, machine: Any) -> None:
    caller = Caller(Api(mute, machine=machine))
    for _ in range(3):
        caller.enqueue(1)
    leases = caller.claim(3)
    items = [{name: each[name] for name in ("job_id", "token")} for each in leases]
    caller.end(leases[0])
    flush(spoken)
    caller.enqueue(1)  # so that its next swap is the first one
    mute.go_silent(reads=10**9)
    done = caller.post(f"{QUEUE}/completions", {"completions": items})
    assert [each.get("code", "ok") for each in done.body["completions"]] == ["stale", "ok", "ok"]
    assert caller.post(f"{QUEUE}/completions", {"completions": items[:1]}).status == 503
    mute.mute = 0
    done = caller.post(f"{QUEUE}/completions", {"completions": items})
    assert [each["ok"] for each in done.body["completions"]] == [True] * 3


@pytest.mark.parametrize("result", [None, "r" * 100_000], ids=["small", "large"])
def test_a_caller_with_nothing_else_to_hear_hears_the_error(
    spoken: Queue[Any], mute: Mute, result: Any
) -> None:
    (lease,) = claimed(spoken, 1)
    lease.complete()
    flush(spoken)
    mute.mute = 10**9
    item = {"job_id": lease.job_id, "token": lease.token, "result": result}
    for call in (lambda: spoken.complete_many([item]), lambda: lease.complete(result)):
        with pytest.raises(Unavailable, match="the reply was lost"):
            call()
    mute.mute = 0
    lease.complete(result)


def test_a_refusal_is_told_at_once(machine: Any) -> None:
    class Refusing(MemoryStore):
        def perform(self, request: StoreRequest) -> StoreReply:
            return Failed(Unavailable("AccessDenied", permanent=True))

    q: Queue[Any] = Queue(Refusing(machine), "mail", machine=machine)
    for call in (q.stats, lambda: q.status("01890a5d-ac96-774b-bcce-b302099a8000")):
        with pytest.raises(OsqueueError, match=r"^AccessDenied$"):
            call()
    assert machine.slept == []
