"""A batch of any number of runs comes in once, or not at all, wherever they die and whoever finishes it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from osqueue import Queue, Throttled, Unavailable, Unknown, limits
from osqueue.bulk.receipts import _FixedWriter, forget, identified, receipt_key
from osqueue.bulk.writer import BulkWriter, StagedJobs
from osqueue.commit.driver import BlockingDriver
from osqueue.commit.protocol import commit
from osqueue.commit.steps import RequestRefused
from osqueue.core.encoding import encode_head
from osqueue.core.job_ops import AttachBulk
from osqueue.core.ops import nonce_digest
from osqueue.core.state import Refusals, State
from osqueue.objects.layout import root_of
from osqueue.stores.base import Delete, DeleteIfMatch, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.faulty import FaultyStore
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.staged import Crash, Meddled, stage, store_keys, waiting

CROWD = 250  # writers, more than a head remembers that is made small


# ── Once ─────────────────────────────────────────────────────────────────────
def test_a_second_run_of_a_batch_enqueues_nothing() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    assert not bulks.is_decided("monday")
    assert not bulks.attach([stage(bulks, 10)], "monday").repeated
    assert bulks.is_decided("monday")
    again = bulks.attach([stage(bulks, 99)], "monday")
    assert (again.jobs, again.repeated) == (10, True)
    assert bulks.resume("monday").jobs == 10
    assert waiting(store) == 10
    bulks.attach([stage(bulks, 5)], "tuesday")
    assert waiting(store) == 15


@pytest.mark.parametrize("shards", [1, 3])
def test_wherever_a_run_dies_the_next_one_finishes_the_batch_and_adds_nothing_twice(shards: int) -> None:
    deaths = 0
    for die_at in range(200):
        store = MemoryStore()
        Queue(store, "q").configure(shards=shards)
        bulks = BulkWriter(store, "q")
        staged = [stage(bulks, 10, shard) for shard in range(shards)]
        requests = 0

        def die(
            request: StoreRequest, perform: Callable[[StoreRequest], StoreReply], at: int = die_at
        ) -> StoreReply:
            nonlocal requests
            requests += 1
            if requests == at // 2 + 1:
                if at % 2:  # after it had its effect
                    perform(request)
                raise Crash
            return perform(request)

        try:
            BulkWriter(Meddled(store, die), "q").attach(staged, "b")
        except Crash:
            deaths += 1
        else:
            assert deaths > 10
            return
        for _ in range(2):
            BulkWriter(store, "q").attach([stage(bulks, 10, shard) for shard in range(shards)], "b")
            assert waiting(store) == 10 * shards
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("seed", range(30))
def test_a_store_that_fails_and_loses_replies_makes_nothing_twice(seed: int, machine: Any) -> None:
    store = MemoryStore(machine)
    Queue(store, "q", machine=machine).enqueue("first")
    bulks = BulkWriter(store, "q", machine)
    staged = [stage(bulks, 10)]
    faulty = FaultyStore(store, error_rate=0.3, lost_reply_rate=0.3, seed=seed, machine=machine)
    try:
        BulkWriter(faulty, "q", machine).attach(staged, "b")
    except Unavailable:
        BulkWriter(store, "q", machine).attach([stage(bulks, 10)], "b")
    assert waiting(store) == 11


@pytest.mark.parametrize("seed", range(30))
def test_without_a_batch_id_a_lost_reply_makes_nothing_twice_either(seed: int, machine: Any) -> None:
    store = MemoryStore(machine)
    Queue(store, "q", machine=machine).enqueue("first")
    staged = [stage(BulkWriter(store, "q", machine), 10)]
    faulty = FaultyStore(store, lost_reply_rate=0.5, seed=seed, machine=machine)
    with contextlib.suppress(Unavailable):
        BulkWriter(faulty, "q", machine).attach(staged)
    assert waiting(store) in (1, 11)


def test_of_two_runs_at_once_one_decides_and_both_finish() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    Queue(store, "q").enqueue("first")
    mine, theirs = [stage(bulks, 10)], [stage(bulks, 20)]
    answers = []

    def overtake(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        if isinstance(request, PutIfAbsent) and request.key == receipt_key("q", "b") and not answers:
            answers.append(BulkWriter(store, "q").attach(theirs, "b"))
        return perform(request)

    mine_done = BulkWriter(Meddled(store, overtake), "q").attach(mine, "b")
    assert (mine_done.jobs, mine_done.repeated) == (20, True)
    assert (answers[0].jobs, answers[0].repeated) == (20, False)
    assert waiting(store) == 21


def test_two_runs_that_send_the_same_requests_at_once_attach_once() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    Queue(store, "q").enqueue("first")
    staged = [stage(bulks, 10)]
    done = []

    def overtake(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        if isinstance(request, PutIfMatch) and request.key.endswith("/head") and not done:
            done.append(BulkWriter(store, "q").resume("b"))
        return perform(request)

    BulkWriter(Meddled(store, overtake), "q").attach(staged, "b")
    assert done[0].repeated
    assert waiting(store) == 11


def dead_after_deciding(store: Any, machine: Any, jobs: int = 10, committed: bool = False) -> StagedJobs:
    """A run that died after it wrote the batch down: before its commit, or right after it."""
    bulks = BulkWriter(store, "q", machine)
    staged = stage(bulks, jobs)

    def die(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        if isinstance(request, PutIfMatch) and request.key.endswith("/head"):
            if committed:
                perform(request)
            raise Crash
        return perform(request)

    with pytest.raises(Crash):
        BulkWriter(Meddled(store, die), "q", machine).attach([staged], "b")
    return staged


def forget_writers(store: Any, machine: Any) -> None:
    """Let the head forget its idle writers: others crowd them out."""
    machine.advance(600)
    with limited({"SESSIONS_BYTES_MAX": 16 * limits.KB}):  # a quarter of what a head keeps
        for _ in range(CROWD):
            Queue(store, "q", machine=machine).enqueue("crowd")
            machine.advance(1)


def test_a_batch_whose_writer_is_forgotten_is_known_by_its_jobs(machine: Any) -> None:
    store = MemoryStore(machine)
    Queue(store, "q", machine=machine).enqueue("first")
    dead_after_deciding(store, machine, committed=True)
    forget_writers(store, machine)
    before = waiting(store)
    BulkWriter(store, "q", machine).resume("b")
    assert waiting(store) == before == CROWD + 11


def test_a_batch_of_which_nobody_can_tell_says_where_to_look_and_adds_nothing(machine: Any) -> None:
    store = MemoryStore(machine)
    Queue(store, "q", machine=machine).enqueue("first")
    dead_after_deciding(store, machine)
    forget_writers(store, machine)
    with pytest.raises(Unknown, match=r"batch_id: .* delete the object batches/q/"):
        BulkWriter(store, "q", machine).resume("b")
    assert waiting(store) == CROWD + 1
    store.perform(Delete((receipt_key("q", "b"),)))
    BulkWriter(store, "q", machine).attach([stage(BulkWriter(store, "q", machine), 10)], "b")
    assert waiting(store) == CROWD + 11


def test_a_batch_that_is_done_is_known_long_after_its_jobs_and_its_writer_are_forgotten(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    bulks = BulkWriter(store, "q", machine)
    bulks.attach([stage(bulks, 10, result_ttl_ms=1_000)], "b")
    q.complete_many(q.claim(10))
    forget_writers(store, machine)
    for _ in range(60):
        machine.advance(3_600)
        q.reap()
    again = bulks.attach([stage(bulks, 10)], "b")
    assert (again.jobs, again.repeated) == (10, True)
    assert waiting(store) == CROWD


def test_a_batch_is_known_for_thirty_days_and_then_forgotten_by_reaps(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    bulks = BulkWriter(store, "q", machine)
    ids = [f"day-{at}" for at in range(40)]
    for each in ids:
        bulks.attach([stage(bulks, 1)], each)
    for _ in range(30 * 24):
        assert all(map(bulks.is_decided, ids))
        machine.advance(3_600)
        q.reap()
    for _ in range(25):  # each hour those of a slice, each day another one in the same hour
        machine.advance(3_600)
        q.enqueue("time goes on")
        q.reap()
    assert not any(map(bulks.is_decided, ids))


def test_passes_that_come_once_a_day_come_to_every_batch(machine: Any) -> None:
    store = MemoryStore(machine)
    bulks = BulkWriter(store, "q", machine)
    for at in range(60):
        bulks.attach([], f"b{at}")
    machine.advance(30 * 24 * 3_600)
    driver = BlockingDriver(store, machine)
    for _ in range(24):
        machine.advance(24 * 3_600)
        driver.run(forget("q", machine.now_ms()))
    assert not [key for key in store_keys(store) if key.startswith("batches/")]


def test_more_batches_than_one_pass_looks_at_are_all_forgotten_in_some_days(machine: Any) -> None:
    store = MemoryStore(machine)
    bulks = BulkWriter(store, "q", machine)
    for at in range(240):
        bulks.attach([], f"b{at}")
    machine.advance(31 * 24 * 3_600)
    driver = BlockingDriver(store, machine)
    with limited({"LOOKED_AT_MAX": 4}):
        for _ in range(40 * 24):
            driver.run(forget("q", machine.now_ms()))
            machine.advance(3_600)
    assert not [key for key in store_keys(store) if key.startswith("batches/")]


# ── Refused ──────────────────────────────────────────────────────────────────
@pytest.fixture
def little_room() -> Iterator[None]:
    """A shard has room for two segments of delayed jobs."""
    with limited({"DELAYED_SPANS_MAX": 2}):
        yield


def late(bulks: BulkWriter, jobs: int, shard: int = 0) -> StagedJobs:
    return stage(bulks, jobs, shard, delay_ms=3_600_000)


def fill(bulks: BulkWriter, shard: int = 0) -> None:
    """Take all the room that a shard has."""
    bulks.attach([late(bulks, 1, shard), late(bulks, 1, shard)])


def make_room(q: Queue[Any], machine: Any) -> None:
    """Let time pass, and work off what was delayed."""
    machine.advance(3_601)
    while leases := q.claim(1_000):
        q.complete_many(leases)


def counts(store: Any) -> tuple[int, int]:
    """How many jobs wait, and how many are delayed."""
    told = Queue(store, "q").stats()
    return int(told["queued"]), int(told["scheduled"])


def test_a_bulk_that_the_queue_does_not_take_says_why_and_may_be_run_again(
    little_room: None, machine: Any
) -> None:
    store = MemoryStore(machine)
    bulks = BulkWriter(store, "q", machine)
    fill(bulks)
    with pytest.raises(Throttled, match="delay: the bulk has 1 segments of delayed jobs for shard 0"):
        bulks.attach([late(bulks, 3), stage(bulks, 3)], "b")
    assert counts(store) == (0, 2)
    assert not bulks.is_decided("b")
    make_room(Queue(store, "q", machine=machine), machine)
    assert not bulks.attach([late(bulks, 3), stage(bulks, 4)], "b").repeated
    assert counts(store) == (4, 3)


def test_one_shard_without_room_keeps_every_shards_part_out(little_room: None) -> None:
    store = MemoryStore()
    Queue(store, "q").configure(shards=2)
    bulks = BulkWriter(store, "q")
    fill(bulks, 1)
    with pytest.raises(Throttled, match=r"delay: .* for shard 1"):
        bulks.attach([late(bulks, 3, shard) for shard in range(2)], "b")
    assert counts(store) == (0, 2)
    assert not bulks.is_decided("b")


def test_room_that_is_taken_between_the_look_and_the_commit_leaves_nothing_behind(little_room: None) -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    Queue(store, "q").enqueue("x")
    staged = [late(bulks, 3), stage(bulks, 3)]

    def meddle(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        if isinstance(request, PutIfAbsent) and request.key == receipt_key("q", "b"):
            fill(bulks)
        return perform(request)

    with pytest.raises(Throttled, match=r"delay: .* for shard 0"):
        BulkWriter(Meddled(store, meddle), "q").attach(staged, "b")
    assert not bulks.is_decided("b")
    assert counts(store) == (1, 2)


def test_of_a_refused_bulk_nothing_joins_later_by_a_run_that_finds_room(
    little_room: None, machine: Any
) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    bulks = BulkWriter(store, "q", machine)
    q.enqueue("x")
    staged = [late(bulks, 3), stage(bulks, 3)]

    def fill_and_empty(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        if isinstance(request, PutIfAbsent) and request.key == receipt_key("q", "b"):
            fill(bulks)
        if isinstance(request, DeleteIfMatch):  # another run has found the batch, and now there is room
            make_room(q, machine)
            with pytest.raises(Throttled, match=r"delay: .* for shard 0"):
                BulkWriter(store, "q", machine).resume("b")
        return perform(request)

    with pytest.raises(Throttled, match=r"delay: .* for shard 0"):
        BulkWriter(Meddled(store, fill_and_empty), "q", machine).attach(staged, "b")
    assert counts(store) == (0, 0)
    assert not bulks.attach([late(bulks, 3), stage(bulks, 4)], "b").repeated
    assert counts(store) == (4, 3)


def test_where_some_shards_took_their_part_the_next_run_adds_what_is_missing(
    little_room: None, machine: Any
) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    q.configure(shards=2)
    bulks = BulkWriter(store, "q", machine)
    for shard in range(2):
        bulks.attach([stage(bulks, 1, shard)])
    staged = [late(bulks, 3, shard) for shard in range(2)]

    def meddle(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        if isinstance(request, PutIfAbsent) and request.key == receipt_key("q", "b"):
            fill(bulks, 1)
        return perform(request)

    with pytest.raises(Throttled, match=r"1 of 2 shards did not take their part.*same batch_id"):
        BulkWriter(Meddled(store, meddle), "q", machine).attach(staged, "b")
    assert counts(store) == (2, 3 + 2)
    with pytest.raises(Throttled, match=r"1 of 2 shards did not take their part"):  # there is no room yet
        bulks.resume("b")
    assert bulks.is_decided("b")
    make_room(q, machine)
    assert bulks.attach([stage(bulks, 99)], "b").repeated
    assert counts(store) == (0, 3)


def test_a_part_that_was_collected_before_its_shard_got_it_is_told_by_its_shard(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    q.configure(shards=2)
    bulks = BulkWriter(store, "q", machine)
    for shard in range(2):
        bulks.attach([stage(bulks, 1, shard)])
    staged = [stage(bulks, 3, shard) for shard in range(2)]
    heads: list[str] = []

    def die(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        if isinstance(request, PutIfMatch) and request.key.endswith("/head"):
            heads.append(request.key)
            if len(heads) == 2:
                raise Crash
        return perform(request)

    with pytest.raises(Crash):
        BulkWriter(Meddled(store, die), "q", machine).attach(staged, "b")
    assert waiting(store) == 5
    for _ in range(30):
        machine.advance(3_600)
        for _ in range(2):
            q.enqueue("later")
        q.reap()
    for _ in range(2):  # and so does every further run
        with pytest.raises(Throttled, match=r"what was staged for 1 is gone.* under another batch_id"):
            bulks.resume("b")
    assert waiting(store) == 5 + 60


def test_a_bulk_older_than_the_collectors_floor_is_refused_as_a_whole(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    q.enqueue("first")
    bulks = BulkWriter(store, "q", machine)
    staged = [stage(bulks, 10)]
    for _ in range(30):
        machine.advance(3_600)
        q.enqueue("later")
        q.reap()
    with pytest.raises(Throttled, match="longer than a day"):
        bulks.attach(staged, "b")
    assert waiting(store) == 31


def test_what_is_staged_and_never_attached_is_collected(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    q.enqueue("first")
    staged = stage(BulkWriter(store, "q", machine), 10)
    name = staged.parts[0].spans[0].name
    (key,) = [key for key in store_keys(store) if key.endswith(name)]
    for _ in range(30):
        machine.advance(3_600)
        q.enqueue("later")
        q.reap()
    assert key not in store_keys(store)


def test_a_part_that_was_turned_away_before_is_told_so_and_not_that_nobody_knows(machine: Any) -> None:
    store = MemoryStore(machine)
    state = State(commit=bytes(16), epoch=5, seq=10, now_ms=machine.now_ms())
    request = identified(machine, state, (AttachBulk(()),))
    refusals = (Refusals(11, state.now_ms, frozenset({nonce_digest(request.nonce)})),)
    head = msgspec.structs.replace(state, seq=11, refusals=refusals)
    store.put(Put(root_of("mail", 0) + "head", encode_head(head)))
    writer = _FixedWriter(root_of("mail", 0), "mail", machine, store.clock_ms)
    writer.fix(request)
    with pytest.raises(RequestRefused):
        BlockingDriver(store, machine).run(commit(writer, request.ops, machine.monotonic() + 5))
