"""Edges of the commit protocol, each set up by hand: what others do, and what the store does, at the worst moment."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Queue, Throttled, Unavailable, Unknown
from osqueue import Timeout as StoreTimeout
from osqueue.commit.few_writers import STREAK_MIN
from osqueue.commit.publications import COMMITS_BETWEEN_LOOKS, Publications
from osqueue.commit.steps import PUBLISHED_MS_MAX
from osqueue.commit.writer import Head
from osqueue.core.encoding import decode_head
from osqueue.core.intents import intents_prefix, publications_prefix, read_publication
from osqueue.core.ops import Request
from osqueue.objects.layout import root_of
from osqueue.stores.base import Failed, Get, List, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from simulation.tight import limited

ROOT = root_of("mail", 0)
Trick = Callable[[StoreRequest, Callable[[StoreRequest], StoreReply]], StoreReply]
LOST = Failed(StoreTimeout("the reply was lost"))


class Script(WrappedStore):
    """Plays one trick after the other on the swaps of the head; afterwards it is an honest store."""

    def __init__(self, inner: MemoryStore, *tricks: Trick) -> None:
        super().__init__(inner)
        self.tricks = list(tricks)
        self.seen: list[StoreRequest] = []
        self.hidden: str | None = None  # the prefix of objects that others write over at once

    def perform(self, request: StoreRequest) -> StoreReply:
        self.seen.append(request)
        if self.hidden is not None and isinstance(request, Put) and request.key.startswith(self.hidden):
            return self.inner.perform(Put(request.key, b"another newcomer's"))
        swap = isinstance(request, PutIfMatch | PutIfAbsent) and request.key == ROOT + "head"
        if swap and self.tricks:
            return self.tricks.pop(0)(request, self.inner.perform)
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)

    def announced(self) -> list[str]:
        """The keys of the intents that were written."""
        return [
            each.key.removeprefix(intents_prefix(ROOT))
            for each in self.seen
            if isinstance(each, Put)
            and each.key.startswith(intents_prefix(ROOT))
            and not each.key.startswith(publications_prefix(ROOT))
        ]

    def published(self) -> set[Request]:
        """The requests that were published."""
        found = [
            read_publication(each.key, each.body)
            for each in self.seen
            if isinstance(each, Put) and each.key.startswith(publications_prefix(ROOT))
        ]
        return {each for each in found if each is not None}


def honest(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
    return perform(request)


def reply_lost(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
    perform(request)
    return LOST


def request_lost(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
    return LOST


def after(work: Callable[[], Any]) -> Trick:
    """Somebody else is faster."""

    def trick(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        work()
        return perform(request)

    return trick


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def opened(machine: Any, store: MemoryStore) -> Callable[..., Queue[Any]]:
    """Queue objects over one store; with tricks, a store of its own in front."""
    return lambda *tricks: Queue(Script(store, *tricks), "mail", machine=machine)


def script(q: Queue[Any]) -> Script:
    return q.store.inner  # type: ignore[return-value]


def payloads(q: Queue[Any]) -> list[Any]:
    return sorted(lease.payload for lease in q.claim(100))


def state_of(store: MemoryStore) -> Any:
    return decode_head(store.perform(Get(ROOT + "head")).body)  # type: ignore[union-attr]


def spent(q: Queue[Any], work: Callable[[], Any]) -> dict[str, int]:
    """The requests that the work took."""
    before = q.requests
    work()
    return {kind: count - before[kind] for kind, count in q.requests.items()}


# ── What things cost ─────────────────────────────────────────────────────────
def test_a_warm_operation_is_one_put_and_nothing_else(opened: Any) -> None:
    q = opened()
    q.enqueue(0)
    leases: list[Any] = []
    looks: list[int] = []
    for work in (
        lambda: q.enqueue(1),
        lambda: q.enqueue_many([{"payload": at} for at in range(100)]),
        lambda: leases.extend(q.claim(3)),
        lambda: leases[0].heartbeat(None),
        lambda: leases[0].complete("result"),
        lambda: leases[1].fail("no"),
        lambda: leases[2].release(0),
    ):
        used = spent(q, work)
        looks.append(used.pop("get"))
        assert used == {"put": 1, "list": 0, "delete": 0}
    # Every fourth commit reads, beside its swap, what a writer that this one has not met may have published.
    assert sum(looks) == (1 + len(looks)) // COMMITS_BETWEEN_LOOKS


def test_a_pause_asks_before_and_after_how_many_shards_there_are(opened: Any) -> None:
    q = opened()
    q.enqueue(0)
    assert spent(q, q.pause) == {"get": 2, "put": 1, "list": 0, "delete": 0}


def test_what_changes_nothing_writes_nothing(opened: Any) -> None:
    q = opened()
    q.enqueue(1)
    (lease,) = q.claim()
    lease.complete()
    for work in (
        q.claim,
        q.resume,
        q.redrive,
        q.stats,
        q.jobs,
        lambda: q.status(lease.job_id),
        lease.complete,
    ):
        assert spent(q, work)["put"] == 0


def test_a_claim_of_a_queue_that_does_not_exist_creates_nothing(opened: Any, store: MemoryStore) -> None:
    q = opened()
    assert q.claim().reason == "empty"
    assert q.stats()["queued"] == 0
    assert q.reap().archived == 0
    assert store.perform(List("")).keys == ()  # type: ignore[union-attr]


def test_a_direct_run_of_commits_looks_for_announced_requests_now_and_then(opened: Any, machine: Any) -> None:
    q = opened()
    for at in range(3 * PUBLISHED_MS_MAX // 500):
        q.enqueue(at)
        machine.advance(0.5)
    assert 2 <= q.requests["list"] <= 3


# ── Losing the race ──────────────────────────────────────────────────────────
def test_a_swap_that_is_refused_twice_is_published_under_the_identity_it_was_sent_with(
    opened: Any, store: MemoryStore
) -> None:
    other = opened()
    other.enqueue("first")
    theirs = after(lambda: other.enqueue("theirs"))
    q = opened(honest, theirs, theirs)
    q.enqueue("second")
    q.enqueue("mine")
    (published,) = script(q).published()
    sent = [
        decode_head(each.body).sessions[published.env]
        for each in script(q).seen
        if isinstance(each, PutIfMatch) and each.key == ROOT + "head"
    ]
    assert {(row.n, row.nonce) for row in sent[1:]} == {(published.n, published.nonce)}
    assert payloads(other) == ["first", "mine", "second", "theirs", "theirs"]


@pytest.mark.parametrize("trick", [reply_lost, request_lost])
def test_an_operation_without_an_answer_is_applied_once(opened: Any, trick: Trick) -> None:
    q = opened(honest, trick, trick)
    q.enqueue(1)
    assert q.enqueue(2).status == "queued"
    (lease, other) = q.claim(5)
    script(q).tricks.append(trick)
    lease.complete()
    script(q).tricks.append(trick)
    assert other.fail("no") == "failing"
    assert q.stats()["counters"]["enqueued"] == 2
    assert q.stats()["counters"]["completed"] == 1


def test_a_claim_whose_answer_was_lost_still_gets_its_leases(opened: Any) -> None:
    q = opened(honest)
    q.enqueue_many([{"payload": at} for at in range(5)])
    script(q).tricks.append(reply_lost)
    leases = q.claim(3)
    assert [lease.payload for lease in leases] == [0, 1, 2]
    assert [lease.attempt for lease in leases] == [1, 1, 1]
    assert all(done.ok for done in q.complete_many(leases))


@pytest.mark.parametrize("trick", [reply_lost, request_lost])
def test_a_creation_without_an_answer_is_one_head(opened: Any, trick: Trick) -> None:
    q = opened(trick, trick)
    q.enqueue("only")
    assert payloads(opened()) == ["only"]


def test_of_two_creators_one_wins_and_the_other_joins(opened: Any, store: MemoryStore) -> None:
    other = opened()
    q = opened(after(lambda: other.enqueue("theirs")))
    q.enqueue("mine")
    assert payloads(opened()) == ["mine", "theirs"]


def test_a_creation_that_lands_after_another_head_is_refused(opened: Any, store: MemoryStore) -> None:
    late: list[StoreRequest] = []

    def held(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        late.append(request)
        other.enqueue("theirs")
        return LOST

    other = opened()
    q = opened(held)
    q.enqueue("mine")
    store.perform(late[0])
    assert payloads(opened()) == ["mine", "theirs"]


def test_a_publication_that_lands_late_changes_nothing(opened: Any, store: MemoryStore) -> None:
    other = opened()
    other.enqueue("first")
    theirs = after(lambda: other.enqueue("theirs"))
    q = opened(theirs, theirs)
    q.enqueue("mine")
    late = next(each for each in script(q).seen if isinstance(each, Put) and "publication" in each.key)
    q.enqueue("next")
    store.perform(late)
    for at in range(2 * COMMITS_BETWEEN_LOOKS):
        other.enqueue(str(at))  # reads the doors
    assert payloads(other).count("mine") == 1


def test_a_publication_that_nobody_reads_is_announced_in_the_end(opened: Any, store: MemoryStore) -> None:
    other = opened()
    other.enqueue("first")

    q = opened(*[after(lambda: other.enqueue("theirs"))] * 60)
    script(q).hidden = publications_prefix(ROOT)
    q.enqueue("mine")
    assert script(q).announced()
    assert payloads(other).count("mine") == 1


# ── Answers that no swap backs ───────────────────────────────────────────────
def test_a_token_is_judged_by_the_store_not_by_the_cache(opened: Any) -> None:
    q, other = opened(), opened()
    q.enqueue(1)
    (lease,) = other.claim()
    (done,) = q.heartbeat_many(
        [{"job_id": lease.job_id, "token": lease.token}]
    )  # q's cache knows no such lease
    assert done.ok
    lease.complete()
    (done,) = q.heartbeat_many([{"job_id": lease.job_id, "token": lease.token}])
    assert done.code == "lease_lost"


def test_a_claim_that_finds_nothing_in_the_cache_looks_into_the_store(opened: Any) -> None:
    q, other = opened(), opened()
    q.enqueue(1)
    q.claim()
    other.enqueue(2)
    assert [lease.payload for lease in q.claim()] == [2]


# ── Who speaks ───────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ahead", [1, 3])
def test_a_clone_of_a_writer_is_noticed_and_takes_another_identity(
    opened: Any, new_machine: Any, ahead: int
) -> None:
    q, clone = opened(), opened()
    q.enqueue("first")
    twin = clone._writers[0] = copy.copy(q._writers[0])  # as a snapshot of the process would
    twin.machine, twin.blocks = new_machine(seed=99), {}
    for at in range(ahead):
        q.enqueue(f"q{at}")
    assert twin.env == q._writers[0].env
    sent, unknown = [], 0
    for at in range(3):
        try:
            clone.enqueue(f"clone{at}")
            sent.append(f"clone{at}")
        except Unknown:
            unknown += 1  # the one honest answer when the row has moved past it
    assert unknown <= 1
    assert twin.env != q._writers[0].env
    assert {*sent, "first"} <= set(payloads(opened()))


def test_a_clone_that_knows_a_head_with_its_row_publishes_under_another_identity(opened: Any) -> None:
    q, clone = opened(), opened()
    q.enqueue("first")
    own = q._writers[0]
    twin = clone._writers[0] = copy.copy(own)
    twin.publications = Publications(own.root)
    for at in range(3):
        q.enqueue(f"q{at}")
    led = replace(own.head.state, hot=8, streak=STREAK_MIN)
    twin.head, twin.won_version = Head(led, own.head.version, twin.machine.moment()), None
    clone.enqueue("clone")  # a request of its old identity could not be applied any more
    assert payloads(opened()).count("clone") == 1


def test_when_sessions_are_full_a_new_writer_is_throttled_and_nothing_is_written(
    opened: Any, store: MemoryStore
) -> None:
    with limited({"SESSIONS_BYTES_MAX": 300}):
        writers = [opened() for _ in range(4)]
        for q in writers[:3]:
            q.enqueue(1)
        before = state_of(store).seq
        with pytest.raises(Throttled, match="too many writers") as caught:
            writers[3].enqueue(2)
        assert caught.value.retry_after
        assert state_of(store).seq == before
        assert writers[0].enqueue(3).status == "queued"


def test_a_commit_that_the_store_forbids_is_told_at_once_and_did_not_happen(opened: Any) -> None:
    def forbidden(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        return Failed(Unavailable("403", permanent=True))

    q = opened(*[forbidden] * 50)
    store = script(q)
    q.claim()  # it knows the head, and the head is one that may be replaced
    before = len(store.seen)
    with pytest.raises(Unavailable) as caught:
        q.enqueue(1)
    assert "may still" not in caught.value.message
    assert len(store.seen) - before < 10
    assert store.announced() == []


def test_a_commit_that_the_store_forbids_once_it_was_announced_may_still_happen(opened: Any) -> None:
    def forbidden(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        return Failed(Unavailable("403", permanent=True))

    q = opened()
    q.enqueue(0)
    script(q).tricks = [request_lost, *[forbidden] * 500]
    with pytest.raises(Unavailable, match="may still be applied"):
        q.enqueue(1)
    assert script(q).published()


def test_an_object_that_is_there_is_not_written_over(machine: Any, store: MemoryStore) -> None:
    """Another writer may have written it, and a purge may have blanked it since."""
    with limited({"TAIL_BYTES_MAX": 300, "READY_BYTES_MAX": 300}):
        names: list[str] = []

        class Blanked(WrappedStore):
            def perform(self, request: StoreRequest) -> StoreReply:
                if isinstance(request, PutIfAbsent) and "/segments/" in request.key:
                    names.append(request.key)
                    self.inner.perform(Put(request.key, b"blank"))
                return self.inner.perform(request)

            async def perform_async(self, request: StoreRequest) -> StoreReply:
                return self.perform(request)

        late: Queue[Any] = Queue(Blanked(store), "mail", machine=machine)
        while len(names) < 2:
            assert late.enqueue("more").status == "queued"
    assert store.get(Get(names[0])).body == b"blank"  # type: ignore[union-attr]
    named = {span.name for lane in state_of(store).lanes for span in lane.backlog.spans}
    assert names[0].removeprefix(ROOT) in named
