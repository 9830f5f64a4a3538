"""The window of the group commit: the daily work of callers that meet waits for others, and nothing else does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from osqueue import AsyncQueue, NotSupported, Queue, Rejected
from osqueue.commit import group
from osqueue.commit.window import CALL_SHARE, LEASE_SHARE, MEETING_WINDOWS
from osqueue.core.job_ops import ClaimJobs, ExtendLeases, LeaseBeat, ReleaseJobs
from osqueue.stores.base import PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support.patience import PATIENCE

LONG = 10.0  # seconds; no test waits for so long


class Counter(WrappedStore):
    """Counts the swaps of the head."""

    swaps = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        self.swaps += isinstance(request, PutIfMatch | PutIfAbsent) and request.key.endswith("/head")
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.fixture
def store() -> Counter:
    counter = Counter(MemoryStore())
    Queue[Any](counter, "mail").enqueue("first")
    counter.swaps = 0
    return counter


def meet(q: Any) -> Any:
    """Let two calls of this object have met just now; return the group of its first shard."""
    commits = q._group(0)
    commits.window.start_by((), 0.0, meets=True)
    return commits


def meeting(store: Any, window: float = LONG, **options: Any) -> Queue[Any]:
    """Return a queue object whose callers have met."""
    q: Queue[Any] = Queue(store, "mail", window=window, **options)
    meet(q)
    return q


def later(call: Callable[..., Any], *args: Any) -> Future[Any]:
    """Make a call on another thread."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call, *args)
    pool.shutdown(wait=False)
    return future


def wait_until_held(q: Queue[Any]) -> None:
    """Wait until a leader waits for others."""
    commits = q._group(0)
    while commits._lingering is None:
        threading.Event().wait(0.001)


def test_callers_of_a_window_share_one_commit(store: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "WINDOW_ITEMS_MAX", 6)  # so that it ends when all have come
    q = meeting(store)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(q.enqueue, range(6)))
    assert {answer.status for answer in answers} == {"queued"}
    assert store.swaps == 1


def test_tasks_share_one_as_well(store: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "WINDOW_ITEMS_MAX", 6)

    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=LONG)
        meet(q)

        async def enqueue(at: int) -> None:
            await asyncio.sleep(0.001 * at)
            assert (await q.enqueue(at)).status == "queued"

        await asyncio.gather(*map(enqueue, range(6)))

    asyncio.run(main())
    assert store.swaps == 1


def test_all_daily_work_shares_a_window(store: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    q = meeting(store, 0.2)
    q.enqueue_many([{"payload": n} for n in range(4)])
    held = [q.claim(limit=1)[0] for _ in range(4)]
    store.swaps = 0
    monkeypatch.setattr(group, "WINDOW_ITEMS_MAX", 6)
    q._group(0).window.seconds = LONG
    calls = [
        lambda: q.enqueue("second"),
        q.claim,
        held[0].complete,
        held[1].heartbeat,
        lambda: held[2].fail("why not"),
        held[3].release,
    ]
    for each in [later(call) for call in calls]:
        each.result(PATIENCE)
    assert store.swaps == 1


def test_what_an_operator_changes_ends_a_window(store: Counter) -> None:
    q = meeting(store)
    waiting = later(q.enqueue, "second")
    wait_until_held(q)
    q.configure(max_running=7)
    assert waiting.result(PATIENCE).status == "queued"
    assert store.swaps == 1


def test_what_an_operator_changes_ends_a_window_of_tasks(store: Counter) -> None:
    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=LONG)
        commits = meet(q)
        waiting = asyncio.create_task(q.enqueue("second"))
        while commits._hurry is None:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0)
        await q.configure(max_running=7)
        assert (await waiting).status == "queued"

    asyncio.run(main())
    assert store.swaps == 1


# ── Callers that are alone ───────────────────────────────────────────────────
def test_a_caller_that_is_alone_does_not_wait(store: Counter) -> None:
    q: Queue[Any] = Queue(store, "mail", window=LONG)
    q.enqueue("second")
    (lease,) = q.claim()
    lease.heartbeat()
    lease.complete()
    assert store.swaps == 4


def test_a_task_that_is_alone_does_not_wait(store: Counter) -> None:
    async def main() -> None:
        async with AsyncQueue[Any](store, "mail", window=LONG) as q:
            await q.enqueue("second")
            (lease,) = await q.claim()
            await lease.complete()

    asyncio.run(main())
    assert store.swaps == 3


class Held(Counter):
    """A store that holds the first swap of the head until it is let go."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.reached, self.go = threading.Event(), threading.Event()

    def perform(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, PutIfMatch) and not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(PATIENCE)
        return super().perform(request)


def test_callers_wait_once_two_of_them_met(store: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "WINDOW_ITEMS_MAX", 2)
    held = Held(store)
    q: Queue[Any] = Queue(held, "mail", window=LONG)
    first = later(q.enqueue, "second")
    assert held.reached.wait(PATIENCE)
    second = later(q.enqueue, "third")
    while not q._group(0)._waiting:
        threading.Event().wait(0.001)
    held.go.set()
    assert first.result(PATIENCE).status == "queued"
    wait_until_held(q)
    assert later(q.enqueue, "fourth").result(PATIENCE).status == "queued"
    assert second.result(PATIENCE).status == "queued"
    assert store.swaps == 2


def test_tasks_wait_once_two_of_them_met(store: Counter) -> None:
    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=0.01)
        await asyncio.gather(q.enqueue("second"), q.enqueue("third"))
        assert q._group(0).window._met_at > 0

    asyncio.run(main())


def test_callers_that_met_long_ago_do_not_wait(machine: Any) -> None:
    q = meeting(MemoryStore(machine), machine=machine)
    commits = q._group(0)
    ops = (ReleaseJobs(()),)
    now = machine.monotonic()
    assert commits.window.start_by(ops, now + 25, meets=False) == now + LONG
    machine.sleep(MEETING_WINDOWS * LONG + 1)
    now = machine.monotonic()
    assert commits.window.start_by(ops, now + 25, meets=False) == now


# ── What a window never costs ────────────────────────────────────────────────
def waits(q: Any, ops: Any, seconds: float = 25.0) -> float:
    """Return how long operations of a call with so much time would wait."""
    now = q.machine.monotonic()
    return float(q._group(0).window.start_by(ops, now + seconds, meets=True)) - now


def beat_of(lease: Any) -> tuple[ExtendLeases]:
    """Return the operation of a heartbeat."""
    return (ExtendLeases((LeaseBeat(lease.key, lease.token),)),)


def test_a_claim_waits_for_a_quarter_of_its_lease(store: Counter) -> None:
    assert waits(meeting(store), (ClaimJobs(1, "me", 8_000),)) == pytest.approx(2.0, abs=0.1)


def test_a_heartbeat_waits_for_a_quarter_of_what_is_left_of_its_lease(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue("first")
    (lease,) = q.claim(lease=8)
    q._group(0).set_window(LONG)
    assert waits(q, beat_of(lease)) == pytest.approx(LEASE_SHARE * 8, abs=0.1)
    machine.sleep(6)
    assert waits(q, beat_of(lease)) == pytest.approx(LEASE_SHARE * 2, abs=0.1)
    machine.sleep(3)
    assert waits(q, beat_of(lease)) == 0


def test_an_ending_waits_for_a_part_of_the_time_limit_of_its_job(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue("first", run_within=4)
    (lease,) = q.claim(lease=30)
    q._group(0).set_window(LONG)
    assert waits(q, beat_of(lease)) == pytest.approx(LEASE_SHARE * 4, abs=0.1)


def test_an_ending_of_a_lease_that_another_process_granted_does_not_wait(store: Counter) -> None:
    other: Queue[Any] = Queue(store, "mail")
    (lease,) = other.claim()
    q = meeting(store)
    assert waits(q, beat_of(lease)) == pytest.approx(0, abs=0.1)
    q.heartbeat_many([{"job_id": lease.job_id, "token": lease.token}])
    assert waits(q, beat_of(lease)) == pytest.approx(LEASE_SHARE * 30, abs=0.1)


def test_a_call_waits_for_half_of_its_own_time(store: Counter) -> None:
    assert waits(meeting(store), (ReleaseJobs(()),), 4.0) == pytest.approx(CALL_SHARE * 4, abs=0.1)


def test_a_short_lease_shortens_the_window_of_all_that_wait(store: Counter) -> None:
    q = meeting(store)
    waiting = later(q.enqueue, "second")
    wait_until_held(q)
    (lease,) = q.claim(lease=1)
    assert lease.payload == "first"
    assert waiting.result(PATIENCE).status == "queued"
    assert store.swaps == 1


def test_a_short_lease_shortens_the_window_of_tasks(store: Counter) -> None:
    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=LONG)
        commits = meet(q)
        waiting = asyncio.create_task(q.enqueue("second"))
        while commits._hurry is None:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0)
        (lease,) = await q.claim(lease=1)
        assert (lease.payload, (await waiting).status) == ("first", "queued")

    asyncio.run(main())
    assert store.swaps == 1


# ── Ends ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("end", [Queue.close, lambda q: q._suspend_window(True)], ids=["close", "suspend"])
def test_an_end_commits_what_waits(store: Counter, end: Callable[[Any], None]) -> None:
    q = meeting(store)
    waiting = later(q.enqueue, "second")
    wait_until_held(q)
    end(q)
    assert waiting.result(PATIENCE).status == "queued"


def test_a_close_of_tasks_commits_what_waits_before_it_returns(store: Counter) -> None:
    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=LONG)
        commits = meet(q)
        waiting = asyncio.create_task(q.enqueue("second"))
        while commits._hurry is None:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0)
        await q.close()
        assert store.swaps == 1
        assert (await waiting).status == "queued"

    asyncio.run(main())


def test_a_suspended_window_holds_nothing_until_it_is_resumed(store: Counter) -> None:
    q = meeting(store)
    q._suspend_window(True)
    assert q._group(0).window is None
    q._suspend_window(False)
    assert waits(q, (ReleaseJobs(()),)) == pytest.approx(LONG, abs=0.1)


def test_a_cancelled_task_lets_the_window_end(store: Counter) -> None:
    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=LONG)
        commits = meet(q)
        waiting = asyncio.create_task(q.enqueue("second"))
        while commits._hurry is None:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0)
        waiting.cancel()
        task = commits._task
        assert task is not None
        await asyncio.wait_for(task, PATIENCE)

    asyncio.run(main())
    assert store.swaps == 0


# ── What is refused ──────────────────────────────────────────────────────────
@pytest.mark.parametrize(("window", "timeout"), [(-1, 25), ("2", 25), (11, 25), (3, 5)])
def test_a_window_that_is_not_valid_is_refused(window: Any, timeout: float) -> None:
    with pytest.raises(Rejected, match=r"^window: ") as caught:
        Queue.connect("memory://", "mail", window=window, timeout=timeout)
    assert caught.value.field == "window"


def test_an_api_has_no_window() -> None:
    with pytest.raises(NotSupported, match=r"^window: "):
        Queue.connect("http://127.0.0.1:1", "mail", window=1)
