"""Handlers that take several jobs at once: what is in a batch, how its jobs end, and that none spoils another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from osqueue import AsyncQueue, Cancel, Fail, Queue, Retry, Snooze, WorkerJob
from osqueue.worker import loop
from osqueue.worker.loop import Worker
from tests.support.patience import PATIENCE


@pytest.fixture
def q() -> Queue[Any]:
    queue: Queue[Any] = Queue.connect("memory://", "rows")
    queue.configure(backoff_base=0.001)
    return queue


def add(q: Queue[Any], count: int, **options: Any) -> None:
    q.enqueue_many([{"payload": at, "kind": "row", **options} for at in range(count)])


def states(q: Queue[Any]) -> list[str]:
    return [job.state for job in sorted(q.jobs()[0], key=lambda job: job.job_id)]


def test_a_batch_has_up_to_so_many_jobs_and_all_are_completed(q: Queue[Any]) -> None:
    sizes: list[int] = []
    seen: list[int] = []

    @q.handler(kind="row", batch=40)
    def load(jobs: list[WorkerJob[Any]]) -> None:
        sizes.append(len(jobs))
        seen.extend(job.payload for job in jobs)

    add(q, 100)
    assert q.run(concurrency=1, until_empty=True).completed == 100
    assert sorted(seen) == list(range(100))
    assert sizes == [40, 40, 20]
    assert {q.result(job.job_id) for job in q.jobs()[0]} == {None}


def test_each_job_has_the_ending_at_its_place_in_the_list(q: Queue[Any]) -> None:
    q.configure(backoff_base=60)
    endings = [{"at": 0}, None, Snooze(60), Fail("no"), Cancel("so"), Retry(60), ValueError("caught")]

    @q.handler(kind="row", batch=10)
    def load(jobs: list[WorkerJob[Any]]) -> Any:
        return [endings[job.payload] for job in jobs]

    add(q, len(endings))
    tally = q.run(until_empty=True, concurrency=1)
    assert states(q) == ["completed", "completed", "scheduled", "failed", "cancelled", "failing", "failing"]
    assert (tally.completed, tally.released, tally.failing, tally.failed, tally.cancelled) == (2, 1, 2, 1, 1)
    first = min(q.jobs()[0], key=lambda job: job.job_id)
    assert q.result(first.job_id) == {"at": 0}
    last = max(q.jobs()[0], key=lambda job: job.job_id)
    assert "ValueError: caught" in (last.error or "")


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (None, "completed"),
        ("done", "completed"),
        (Snooze(60), "scheduled"),
        (Cancel("so"), "cancelled"),
        (Fail("no"), "failed"),
    ],
)
def test_one_ending_is_that_of_all(q: Queue[Any], ending: Any, state: str) -> None:
    q.handler(kind="row", batch=10)(lambda jobs: ending)
    add(q, 3)
    q.run(until_empty=True)
    assert states(q) == [state] * 3


@pytest.mark.parametrize("error", [ValueError("no"), Fail("no"), SystemExit(3)])
@pytest.mark.parametrize("awaits", [False, True])
def test_what_it_raises_becomes_of_all(q: Queue[Any], error: BaseException, awaits: bool) -> None:
    def load(jobs: list[WorkerJob[Any]]) -> None:
        raise error

    async def load_async(jobs: list[Any]) -> None:
        raise error

    q.handler(kind="row", batch=10)(load_async if awaits else load)
    add(q, 3, max_attempts=1)
    assert q.run(until_empty=True).failed == 3
    assert states(q) == ["failed"] * 3


def test_a_list_of_another_length_fails_all_and_says_so(q: Queue[Any]) -> None:
    q.handler(kind="row", batch=10)(lambda jobs: [1, 2])
    add(q, 3, max_attempts=1)
    q.run(until_empty=True)
    letters, _ = q.dead_letters()
    assert len(letters) == 3
    assert all("2 endings for 3 jobs" in letter.error for letter in letters)


def test_a_payload_that_does_not_decode_and_a_result_that_cannot_be_stored_spoil_no_other() -> None:
    raw: Queue[Any] = Queue.connect("memory://batch-types", "rows")
    q: Queue[int] = Queue.connect("memory://batch-types", "rows", type=int)
    raw.enqueue_many([{"payload": each, "kind": "row", "max_attempts": 1} for each in ("a", 1, 2)])
    q.handler(kind="row", batch=10)(lambda jobs: [object() if job.payload == 1 else "done" for job in jobs])
    tally = q.run(until_empty=True)
    assert (tally.completed, tally.failed) == (1, 2)


class BatchWaits:
    """The waits of batches for more jobs: they end when a test ends them. Batches look for jobs often meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []  # for which each would have lasted
        self._ends: list[Callable[[], object]] = []
        monkeypatch.setattr(loop, "LOOKS_PER_WAIT", 100 * PATIENCE)
        monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", self._patched())

    def _patched(self) -> Callable[..., asyncio.TimerHandle]:
        call_later = asyncio.BaseEventLoop.call_later

        def noted(of: Any, delay: float, callback: Any, *args: Any, **options: Any) -> asyncio.TimerHandle:
            if getattr(callback, "__func__", None) is Worker._begin_what_there_is:
                self._ends.append(partial(of.call_soon_threadsafe, callback, *args))
                self.seconds.append(delay)
            return call_later(of, delay, callback, *args, **options)

        return noted

    def end(self) -> None:
        """End the first wait."""
        self._ends[0]()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> BatchWaits:
    return BatchWaits(monkeypatch)


def until(condition: Callable[[], object]) -> None:
    while not condition():
        threading.Event().wait(0.001)


@contextmanager
def working(q: Queue[Any]) -> Iterator[Worker]:
    """Run a worker until the queue is empty, beside the block."""
    worker = Worker(q, poll=0.05, until_empty=True, signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield worker
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_the_first_job_waits_for_others_until_the_batch_is_full(q: Queue[Any], waits: BatchWaits) -> None:
    sizes: list[int] = []
    q.handler(kind="row", batch=3, within=PATIENCE)(lambda jobs: sizes.append(len(jobs)))
    add(q, 1)
    with working(q):
        until(lambda: waits.seconds)
        add(q, 2)
    assert sizes == [3]


def test_it_begins_with_what_there_is_when_the_time_is_up(q: Queue[Any], waits: BatchWaits) -> None:
    sizes: list[int] = []
    q.handler(kind="row", batch=100, within=PATIENCE)(lambda jobs: sizes.append(len(jobs)))
    add(q, 2)
    with working(q) as worker:
        until(lambda: waits.seconds)
        add(q, 3)
        until(lambda: worker.tally.claimed == 5)
        waits.end()
    assert (sizes, waits.seconds) == ([5], [PATIENCE])


def test_a_job_with_a_time_limit_does_not_spend_it_in_waiting(q: Queue[Any], waits: BatchWaits) -> None:
    sizes: list[int] = []
    q.handler(kind="row", batch=10, within=PATIENCE)(lambda jobs: sizes.append(len(jobs)))
    add(q, 2, run_within=PATIENCE)
    with working(q):
        until(lambda: waits.seconds)
        waits.end()
    assert (sizes, waits.seconds) == ([2], [PATIENCE / 2])


def test_a_stop_gives_back_what_waits_for_others(q: Queue[Any]) -> None:
    called: list[int] = []
    q.handler(kind="row", batch=100, within=PATIENCE)(lambda jobs: called.append(len(jobs)))
    add(q, 2)
    worker = Worker(q, signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    while worker.tally.claimed < 2:
        threading.Event().wait(0.01)
    worker.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert (called, worker.tally.released, states(q)) == ([], 2, ["queued"] * 2)
    assert [job.attempt for job in q.jobs()[0]] == [0, 0]


def test_a_job_that_times_out_fails_alone_and_the_others_complete(q: Queue[Any]) -> None:
    @q.handler(kind="row", batch=3)  # full: it begins before a job times out
    def load(jobs: list[WorkerJob[Any]]) -> list[int]:
        short = next(job for job in jobs if job.payload == 1)
        assert short.timed_out.wait(PATIENCE)
        assert not any(job.lease_lost for job in jobs if job is not short)
        return [job.payload for job in jobs]

    q.enqueue(0, kind="row")
    q.enqueue(1, kind="row", run_within=0.05, max_attempts=1)
    q.enqueue(2, kind="row")
    tally = q.run(until_empty=True)
    assert (tally.completed, tally.failed, tally.stuck) == (2, 1, 0)


def test_a_batch_of_which_every_job_timed_out_is_cancelled() -> None:
    stopped: list[bool] = []

    async def main() -> Any:
        async with AsyncQueue.connect("memory://", "rows") as q:
            await q.enqueue_many([{"payload": at, "kind": "row", "max_attempts": 1} for at in range(3)])

            @q.handler(kind="row", batch=3, run_within=0.05)
            async def load(jobs: list[Any]) -> None:
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    stopped.append(all(job.timed_out for job in jobs))

            return await q.run(until_empty=True)

    assert asyncio.run(main()).failed == 3
    assert stopped == [True]


def test_a_lost_lease_and_a_cancel_concern_their_job_alone(q: Queue[Any]) -> None:
    @q.handler(kind="row", batch=10)
    def load(jobs: list[WorkerJob[Any]]) -> Any:
        q.cancel(jobs[0].job_id)
        jobs[0].heartbeat()
        q.fail_many([{"job_id": jobs[1].job_id, "token": jobs[1].token, "error": "by another"}])
        assert [bool(job.cancelled) for job in jobs] == [True, False, False]
        return [Cancel() if job.cancelled else "mine" for job in jobs]

    add(q, 3, max_attempts=1)
    tally = q.run(until_empty=True)
    assert (tally.cancelled, tally.completed, tally.lost) == (1, 1, 1)
    assert states(q) == ["cancelled", "failed", "completed"]


def test_endings_of_a_batch_and_the_next_claim_share_one_commit(q: Queue[Any]) -> None:
    q.handler(kind="row", batch=50)(lambda jobs: None)
    add(q, 200)
    before = q.stats()["commits"]
    assert q.run(concurrency=1, until_empty=True).completed == 200
    assert q.stats()["commits"] - before <= 6


# ── So many calls at once ────────────────────────────────────────────────────
def test_no_more_calls_of_a_handler_run_than_it_says_and_no_more_jobs_are_claimed(q: Queue[Any]) -> None:
    at_once: list[int] = []
    running = [0]
    lock = threading.Lock()
    held: list[int] = []
    others = threading.Event()
    count = [0]

    @q.handler(kind="gpu", concurrency=1)
    def render(job: WorkerJob[Any]) -> None:
        with lock:
            running[0] += 1
            at_once.append(running[0])
        others.wait(PATIENCE)
        held.append(sum(job.state == "processing" for job in q.jobs(kinds=["gpu"])[0]))
        with lock:
            running[0] -= 1

    @q.handler(kind="mail")
    def send(job: WorkerJob[Any]) -> None:
        with lock:
            count[0] += 1
            if count[0] == 30:
                others.set()

    q.enqueue_many([{"payload": at, "kind": "gpu"} for at in range(4)])
    q.enqueue_many([{"payload": at, "kind": "mail"} for at in range(30)])
    assert q.run(concurrency=4, until_empty=True).completed == 34
    assert at_once == [1] * 4
    assert set(held) == {1}


def test_two_workers_of_one_process_share_the_places(q: Queue[Any]) -> None:
    at_once: list[int] = []
    running = [0]
    lock = threading.Lock()

    @q.handler(kind="gpu", concurrency=2)
    def render(job: WorkerJob[Any]) -> None:
        with lock:
            running[0] += 1
            at_once.append(running[0])
        job.stopping.wait(0.01)
        with lock:
            running[0] -= 1

    q.enqueue_many([{"payload": at, "kind": "gpu"} for at in range(20)])
    workers = [Worker(q, poll=0.05, until_empty=True, signals=False) for _ in range(2)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sum(worker.tally.completed for worker in workers) == 20
    assert max(at_once) == 2


@pytest.mark.parametrize("concurrency", [1, 2, 8])
def test_until_empty_waits_for_jobs_that_handlers_of_other_lines_make(
    q: Queue[Any], concurrency: int
) -> None:
    done: list[Any] = []

    @q.handler(kind="split", concurrency=1)
    def split(job: WorkerJob[Any]) -> None:
        for at in range(3):
            q.enqueue(at, kind="row")

    @q.handler(kind="row", batch=2)
    def load(jobs: list[WorkerJob[Any]]) -> None:
        done.extend(job.payload for job in jobs)
        if len(done) == 3:
            q.enqueue("end", kind="tell")

    q.handler(kind="tell")(lambda job: done.append(job.payload))
    q.enqueue(0, kind="split")
    q.run(concurrency=concurrency, until_empty=True)
    assert sorted(done, key=str) == [0, 1, 2, "end"]


def test_a_handler_all_of_whose_calls_hang_ends_the_worker(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from osqueue import Timeout
    from osqueue.worker import in_hand

    monkeypatch.setattr(in_hand, "HANG_SECONDS", 0.05)
    over = threading.Event()
    q.handler(kind="gpu", concurrency=1, run_within=0.05)(lambda job: over.wait(PATIENCE))
    q.handler(kind="mail")(lambda job: None)
    q.enqueue(0, kind="gpu", max_attempts=1)
    with pytest.raises(Timeout, match="all 1 calls of"):
        q.run(concurrency=4)
    over.set()


def test_over_several_shards_batches_are_made_too(q: Queue[Any]) -> None:
    q.configure(shards=3)
    seen: list[int] = []

    @q.handler(kind="row", batch=20)
    def load(jobs: list[WorkerJob[Any]]) -> None:
        seen.extend(job.payload for job in jobs)

    q.handler(kind="mail", concurrency=2)(lambda job: seen.append(-1))
    add(q, 100)
    for _ in range(5):
        q.enqueue(0, kind="mail")
    assert q.run(concurrency=4, until_empty=True).completed == 105
    assert sorted(seen) == [-1] * 5 + list(range(100))
