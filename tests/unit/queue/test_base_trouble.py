"""When something is wrong around a queue: what goes on, what is told, and what must never happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Damaged, Queue, Rejected, Timeout, Unavailable, limits
from osqueue.commit import steps
from osqueue.core import intents
from osqueue.core.encoding import decode_head
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.core.ops import Request as OpRequest
from osqueue.core.reduce import reduce
from osqueue.objects.layout import root_of
from osqueue.stores.base import (
    Delete,
    Failed,
    Get,
    List,
    Put,
    PutIfAbsent,
    PutIfMatch,
    StoreReply,
    StoreRequest,
)
from osqueue.stores.memory import MemoryStore

HOUR_S = 3_600


Call = Callable[[], Any]


class Remote(MemoryStore):
    """A store whose clock has to be measured, and that fails requests to some keys for a while."""

    failing = ""  # part of a key
    failures = 0  # how many requests to it fail yet
    error: type[Any] = Unavailable

    def clock_ms(self) -> int | None:
        return None

    def perform(self, request: StoreRequest) -> StoreReply:
        if self.failing and self.failures and self.failing in getattr(request, "key", ""):
            self.failures -= 1
            return Failed(self.error("503 (injected)"))
        return super().perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def queue(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def names(store: MemoryStore, folder: str, shard: int = 0) -> list[str]:
    keys = store.perform(List(root_of("mail", shard) + folder)).keys  # type: ignore[union-attr]
    return list(keys)


def spoil(store: MemoryStore, key: str) -> bytes:
    good: bytes = store.perform(Get(key)).body  # type: ignore[union-attr]
    store.perform(Put(key, good[:40] + bytes([good[40] ^ 255]) + good[41:]))
    return good


# ── A store that fails for a while ───────────────────────────────────────────
class Outage(MemoryStore):
    """Answers 503 to each request until a moment."""

    until = 0.0  # monotonic seconds

    def perform(self, request: StoreRequest) -> StoreReply:
        if self._machine.monotonic() < self.until:
            return Failed(Unavailable("503 SlowDown"))
        return super().perform(request)


LARGE = "x" * 2_000


def _large_payload(q: Queue[Any]) -> Call:
    return lambda: q.enqueue(LARGE)


def _id(q: Queue[Any]) -> Call:
    return lambda: q.enqueue(1, id="a")


def _large_result(q: Queue[Any]) -> Call:
    (lease,) = q.claim()
    return lambda: lease.complete(LARGE)


def _schedule(q: Queue[Any]) -> Call:
    return lambda: q.schedule("s", "0 3 * * *", payload=LARGE)


def _redrive(q: Queue[Any]) -> Call:
    return q.redrive


def _bulk(q: Queue[Any]) -> Call:
    return lambda: q.enqueue_many([{"payload": n} for n in range(1_001)])


ENTRIES_OVER_1_KB = [_large_payload, _id, _large_result, _schedule, _redrive, _bulk]


class Slow(Remote):
    """Its requests take 20 ms each."""

    def __init__(self, machine: Any, own_clock: bool) -> None:
        super().__init__(machine)
        self.machine = machine
        self.own_clock = own_clock
        self.asked = 0

    def clock_ms(self) -> int | None:
        return MemoryStore.clock_ms(self) if self.own_clock else None

    def perform(self, request: StoreRequest) -> StoreReply:
        self.asked += 1
        self.machine.sleep(0.02)
        if self.failing == "every write" and isinstance(request, Put | PutIfMatch | PutIfAbsent):
            return Failed(Unavailable("503 (injected)"))
        return super().perform(request)


@pytest.mark.parametrize(
    ("failing", "own_clock", "known"),
    [
        ("every write", True, True),
        ("head", True, True),
        ("head", True, False),
        ("clock", False, False),
        ("8a05/", True, True),
    ],
)
def test_a_store_that_fails_is_asked_less_and_less_often(
    machine: Any, failing: str, own_clock: bool, known: bool
) -> None:
    store = Slow(machine, own_clock)
    q: Queue[Any] = Queue(store, "mail", machine=machine, timeout=20)
    if known:
        q.enqueue(1)
    store.failing, store.failures, store.asked = failing, 10**9, 0
    began = machine.monotonic()
    with pytest.raises(Unavailable, match=r"503 \(injected\)"):
        q.enqueue(2)
    assert 19 < machine.monotonic() - began < 21, "it does not give up early"
    assert 10 < store.asked < 130, "20 s full of requests would be 1,000"


@pytest.mark.parametrize("error", [Unavailable, Timeout])
def test_a_call_that_looks_tries_for_as_long_as_it_may_take(machine: Any, error: type[Exception]) -> None:
    store = Slow(machine, own_clock=True)
    q = queue(store, machine)
    q.enqueue(1)
    store.failing, store.failures, store.error = "head", 10**9, error
    store.asked = 0
    began = machine.monotonic()
    with pytest.raises(Unavailable, match="injected"):
        q.stats()
    assert q.timeout - 1 < machine.monotonic() - began < q.timeout + 1
    assert 10 < store.asked < 60


@pytest.mark.parametrize("seconds", [0.5, 15.0])
@pytest.mark.parametrize("entry", ENTRIES_OVER_1_KB)
def test_what_a_call_needs_is_tried_until_the_store_takes_it(
    machine: Any, entry: Callable[[Queue[Any]], Any], seconds: float
) -> None:
    store = Outage(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    q.enqueue_many([{"payload": n} for n in range(3)])
    q.machine.advance(1)
    call = entry(q)
    store.until = machine.monotonic() + seconds
    call()


@pytest.mark.parametrize("entry", ENTRIES_OVER_1_KB)
@pytest.mark.parametrize("timeout", [1.0, 10.0])
def test_a_call_ends_with_its_time_and_states_that_nothing_happened(
    machine: Any, entry: Callable[[Queue[Any]], Any], timeout: float
) -> None:
    store = Outage(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine, timeout=timeout)
    q.enqueue_many([{"payload": n} for n in range(3)])
    call = entry(q)
    before = q.stats()
    began = machine.monotonic()
    store.until = began + 100
    with pytest.raises(Unavailable, match=r"503 SlowDown") as caught:
        call()
    assert timeout - 0.5 < machine.monotonic() - began < timeout + 0.5
    if entry not in (_redrive, _schedule):  # these read the head first
        assert "Nothing was enqueued or changed." in caught.value.message
    store.until = 0.0
    assert q.stats()["counters"] == before["counters"]


def test_segments_that_cannot_be_read_are_asked_for_less_and_less_often(machine: Any) -> None:
    store = Slow(machine, own_clock=True)
    q: Queue[Any] = Queue(store, "mail", machine=machine, timeout=20)
    q.enqueue_many([{"payload": "x" * 300} for _ in range(2_000)])
    store.failing, store.failures, store.asked = "segments/", 10**9, 0
    with pytest.raises(Unavailable, match=r"503 \(injected\)"):
        Queue[Any](store, "mail", machine=machine, timeout=20).claim(10)
    assert 10 < store.asked < 130


# ── Announced twice ──────────────────────────────────────────────────────────
def test_a_request_that_stands_under_two_keys_is_taken_once(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As runs of one batch announce theirs in hours of different seals."""
    store = MemoryStore(machine)
    q = queue(store, machine)
    q.enqueue(1)
    state = decode_head(store.perform(Get(root_of("mail", 0) + "head")).body)  # type: ignore[union-attr]
    (env,) = state.sessions
    request = OpRequest(
        f"{env[:-1]}x", 1, 7, state.seq, state.epoch, (EnqueueJobs((JobSpec(bytes(16), b"2"),)),)
    )
    for seals in (state.seals, (b"of another hour",)):
        key = intents.intent_key(request, 255, seals)
        store.perform(Put(intents.intents_prefix(root_of("mail", 0)) + key, intents.intent_body(request)))
    taken: list[list[Any]] = []

    def watched(head: Any, requests: Any, *more: Any, **options: Any) -> Any:
        taken.append([each.identity for each in requests])
        return reduce(head, requests, *more, **options)

    monkeypatch.setattr(steps, "reduce", watched)
    q.reap()
    assert sum(each.count(request.identity) for each in taken) == 1
    assert q.stats()["queued"] == 2


# ── Shards ───────────────────────────────────────────────────────────────────
def test_a_queue_never_shrinks_whatever_a_caller_believes(machine: Any) -> None:
    store = MemoryStore(machine)
    old, new = queue(store, machine), queue(store, machine)
    old.enqueue(0)
    new.configure(shards=4)
    with pytest.raises(Rejected, match="the queue has 4"):
        old.configure(shards=2)
    assert new.stats()["shards"] == 4


def test_a_pause_reaches_shards_that_the_caller_has_not_heard_of(machine: Any) -> None:
    store = MemoryStore(machine)
    old, new = queue(store, machine), queue(store, machine)
    old.enqueue(0)
    new.configure(shards=4)
    for at in range(8):
        new.enqueue(at)
    old.pause()
    assert [new.claim(100).reason for _ in range(8)] == ["paused"] * 8
    assert old.stats()["queued"] == 9


def test_new_shards_get_the_settings_of_the_old(machine: Any) -> None:
    q = queue(MemoryStore(machine), machine)
    q.enqueue(0)
    q.pause()
    q.configure(backoff_base=60)
    q.configure(shards=4)
    for at in range(8):
        q.enqueue(at)
    assert {q.claim(100).reason for _ in range(8)} == {"paused"}
    q.resume()
    for _ in range(8):
        for lease in q.claim(100):
            assert lease.fail("x") == "failing"
    due = [job.due_at for job in q.jobs("failing")[0]]
    assert len(due) == 9
    assert sum(each.timestamp() * 1000 > machine.now_ms() + 2_000 for each in due if each is not None) > 3


def test_one_damaged_shard_does_not_stop_claims_of_the_others(machine: Any) -> None:
    store = MemoryStore(machine)
    q = queue(store, machine)
    q.configure(shards=2)
    for _ in range(2):
        q.enqueue_many([{"payload": at} for at in range(1_500)])
    spoil(store, names(store, "segments/", 0)[0])
    found: list[Any] = []

    def take_all() -> None:
        while True:
            found.extend(q.complete_many(q.claim(500)))

    with pytest.raises(Damaged, match="Other operations go on"):
        take_all()
    assert len(found) >= 1_500
    with pytest.raises(Damaged):
        queue(store, machine).claim()
    q.reap()


# ── Time ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("failures", [1, 3])
def test_a_lease_is_never_granted_at_an_old_time(machine: Any, failures: int) -> None:
    store = Remote(machine)
    queue(store, machine).enqueue("a", max_attempts=1)
    machine.advance(600)
    store.failing, store.failures = "/clock", failures
    (lease,) = queue(store, machine).claim(lease=30)
    assert lease.expires_at.timestamp() * 1000 > machine.now_ms() + 25_000
    queue(store, machine).enqueue("b")
    lease.complete()


def test_a_machine_that_slept_measures_its_clock_again(machine: Any) -> None:
    store = Remote(machine)
    asleep = type(machine)(seed=2, now_ms=machine.now_ms())
    q = queue(store, asleep)
    q.enqueue("a", max_attempts=1)
    machine.advance(HOUR_S)
    asleep.time_ms += HOUR_S * 1_000  # its monotonic clock stood still
    (lease,) = q.claim(lease=30)
    queue(store, machine).enqueue("b")
    assert queue(store, machine).status(lease.job_id).state == "processing"  # type: ignore[union-attr]
    lease.complete()


def test_a_cold_claim_of_nothing_writes_nothing_although_the_clock_is_not_known(machine: Any) -> None:
    store = Remote(machine)
    q = queue(store, machine)
    assert not q.claim()
    assert q.requests["put"] == 0


# ── What cannot be read ──────────────────────────────────────────────────────
def test_a_damaged_delayed_segment_holds_up_nothing_that_is_due_after_it(machine: Any) -> None:
    store = MemoryStore(machine)
    q = queue(store, machine)
    q.enqueue_many([{"payload": at, "delay": 60} for at in range(1_001)])
    (key,) = names(store, "segments/")
    good = spoil(store, key)
    machine.advance(61)
    q.enqueue("good")
    (lease,) = q.claim()
    lease.fail("x", retry_in=1)
    q.enqueue("later", delay=2)
    machine.advance(60)
    assert [each.payload for each in q.claim(10)] == ["good", "later"]
    store.perform(Put(key, good))
    assert len(queue(store, machine).claim(400)) > 100


def test_delayed_segments_are_merged_around_a_damaged_one(machine: Any) -> None:
    store = MemoryStore(machine)
    q = queue(store, machine)
    q.enqueue_many([{"payload": at, "delay": 900_000} for at in range(1_001)])
    spoil(store, names(store, "segments/")[0])
    for at in range(60):
        done = q.enqueue_many([{"payload": "x" * 900, "delay": 800_000 + at} for _ in range(40)])
        assert all(each.status == "queued" for each in done)
    assert q.stats()["scheduled"] == 1_001 + 60 * 40


def test_a_payload_that_cannot_be_fetched_at_once_is_fetched_again() -> None:
    store = Remote()
    q: Queue[Any] = Queue(store, "mail")
    ran = []

    @q.handler
    def handle(job: Any) -> None:
        ran.append(job.payload)

    q.enqueue("x" * 5_000, max_attempts=1)
    store.failing, store.failures = "/bodies/", 1
    assert q.run(until_empty=True, concurrency=1, signals=False).completed == 1
    assert ran == ["x" * 5_000]


def test_a_payload_that_cannot_be_fetched_just_now_can_be_given_back(machine: Any) -> None:
    store = Remote(machine)
    q = queue(store, machine)
    q.enqueue("x" * 5_000, max_attempts=1)
    store.failing, store.failures = "/bodies/", 5
    (lease,) = q.claim()
    with pytest.raises(Unavailable):
        _ = lease.payload
    lease.release()
    store.failures = 0
    assert q.claim()[0].payload == "x" * 5_000


def test_a_claim_finds_the_job_behind_many_cancelled_segments(machine: Any) -> None:
    store = MemoryStore(machine)
    q = queue(store, machine)
    last = []
    for at in range(20):
        lanes = [{"payload": 0, "kind": "a"}] * 1_000 + [{"payload": at, "kind": "b"}]
        last.append(q.enqueue_many(lanes)[-1].job_id)
    for job in last[:-1]:
        assert q.cancel(str(job)) == "cancelled"
    assert [lease.payload for lease in queue(store, machine).claim(kinds=["b"])] == [19]


# ── Upkeep ───────────────────────────────────────────────────────────────────
def test_garbage_of_a_queue_that_is_seldom_written_is_collected(machine: Any) -> None:
    store = MemoryStore(machine)
    q = queue(store, machine)
    for _ in range(6):
        q.enqueue("x" * 5_000)
        q.claim()[0].complete()
        for _ in range(12):
            machine.advance(4 * HOUR_S)
            q.reap()
    assert len(names(store, "bodies/")) <= 2


def test_a_result_that_the_collector_overtook_is_staged_again(machine: Any) -> None:
    store = MemoryStore(machine)
    silent, busy = queue(store, machine), queue(store, machine)
    silent.enqueue(0)
    for at in range(50):
        machine.advance(HOUR_S)
        busy.enqueue(at)
        busy.reap()
    (lease,) = busy.claim()
    held = {"job_id": lease.job_id, "token": lease.token, "result": "x" * 2_000}
    assert silent.complete_many([held])[0].ok


def test_a_key_that_no_queue_drew_is_a_lost_lease_of_that_item_alone(machine: Any) -> None:
    q = queue(MemoryStore(machine), machine)
    q.enqueue(1)
    (lease,) = q.claim()
    foreign = {"job_id": "00000000-0000-7000-8000-0000000000ff", "token": "x"}
    assert [done.code for done in q.complete_many([lease, foreign])] == ["ok", "lease_lost"]


def test_a_bulk_of_large_delayed_jobs_is_cut_into_segments(machine: Any) -> None:
    store = MemoryStore(machine)
    q = queue(store, machine)
    q.enqueue_many([{"payload": "x" * 1_000, "delay": 60 + at} for at in range(18_000)])
    sizes = [len(store.perform(Get(key)).body) for key in names(store, "segments/")]  # type: ignore[union-attr]
    assert len(sizes) == 3
    assert max(sizes) < limits.SEGMENT_BYTES_MAX * 1.1
    machine.advance(61)
    assert [lease.payload for lease in q.claim(1)] == ["x" * 1_000]


def test_a_segment_that_is_gone_is_told_and_other_operations_go_on(machine: Any) -> None:
    store = MemoryStore(machine)
    q = queue(store, machine)
    q.enqueue("first", priority=0)
    (lease,) = q.claim()
    q.enqueue_many([{"payload": at} for at in range(1_500)])
    store.perform(Delete(tuple(names(store, "segments/"))))
    with pytest.raises(Damaged, match=r"docs/operations\.md"):
        q.claim()
    lease.heartbeat()
    lease.complete()
    assert q.enqueue("urgent", priority=0).status == "queued"
    assert [each.payload for each in q.claim()] == ["urgent"]


def test_a_mistake_that_waiting_cannot_mend_is_told_at_once(machine: Any) -> None:
    class Wrong(MemoryStore):
        def perform(self, request: StoreRequest) -> StoreReply:
            return Failed(Unavailable("no such bucket", permanent=True))

    q = queue(Wrong(machine), machine)
    began = machine.monotonic()
    for work in (lambda: q.enqueue(1), q.claim, q.stats):
        with pytest.raises(Unavailable, match="no such bucket"):
            work()
    assert machine.monotonic() == began


# ── Clocks ───────────────────────────────────────────────────────────────────
def test_a_thread_that_reads_the_time_while_another_measures_it_sees_no_half(machine: Any) -> None:
    """Half of a new measurement with half of the old one would put the head minutes ahead."""
    store = Remote(machine)
    q = queue(store, machine)
    q.enqueue(1)
    writer = q._flows.writers[0]
    assert writer.head is not None
    machine.advance(601)
    times: list[int] = []

    class Spying:
        """The machine, for the thread that measures; at each look at it, another thread asks for the time."""

        def __getattr__(self, name: str) -> Any:
            writer.machine = machine
            assert writer.head is not None
            times.append(writer.now_ms(writer.head.state))
            writer.machine = spy
            return getattr(machine, name)

    spy: Any = Spying()
    writer.machine = spy
    q._driver.run(writer.measure_clock())
    writer.machine = machine
    assert len(times) >= 2
    assert max(times) <= machine.now_ms() + 1_000
