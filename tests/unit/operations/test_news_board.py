"""Processes that wait at many heads: how often they look, how soon they claim, and what a lost notice costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Queue
from osqueue.commit.news import NEWS, REST_MS, encoded, place_in_news
from osqueue.commit.news import News as NewsOfStore
from osqueue.commit.writer import HEAD
from osqueue.core.encoding import decode_head, encode_head
from osqueue.core.state import State
from osqueue.errors import Unavailable
from osqueue.limits import HOUR_MS
from osqueue.objects.layout import root_of
from osqueue.operations.head_board import JITTER_SHARE, REST_SECONDS, HeadBoard, Pace, WorkWaiter
from osqueue.operations.news_board import HEADS_WITHOUT_NEWS, NewsBoard
from osqueue.stores.base import Failed, Found, Get, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.file import FileStore
from osqueue.stores.memory import MemoryStore
from tests.support.waiters import Process
from tests.unit.operations.test_waiting import TINY, Worker, let_pass

SETTLED = 3 * REST_SECONDS  # seconds after which idle heads are at rest
LOOK_MAX = 1 + JITTER_SHARE  # seconds between two looks at the news
CLAIM = 0.2  # seconds for the looks after a notice
REFUSED = Failed(Unavailable("403", permanent=True))


class Tenants:
    """Workers of some queues in one process, and a producer in another one."""

    def __init__(self, machine: Any, count: int) -> None:
        self.machine = machine
        store = MemoryStore(machine)
        self.here, self.there = Process(store, machine), Process(store, machine)
        names = [f"tenant{number}" for number in range(count)]
        self.producers = [Queue[Any](self.there, name, machine=machine) for name in names]
        self.workers = [Worker(Queue(self.here, name, machine=machine)) for name in names]
        self.pass_by(SETTLED)
        self.here.seen.clear()

    def pass_by(self, seconds: float) -> None:
        let_pass(self.machine, seconds, self.workers)

    def wait_of(self, at: int = 0) -> float:
        """Enqueue a job. Return the seconds until it is started."""
        worker = self.workers[at]
        before, came = len(worker.started), self.machine.seconds
        self.producers[at].enqueue(1)
        while len(worker.started) == before:
            self.pass_by(0.2)
            assert self.machine.seconds < came + 1_000
        return worker.started[-1] - came

    def looks(self) -> Counter[str]:
        """Return how often the process has read the news, and heads, since the last call."""
        keys = [request.key for _, request in self.here.seen if isinstance(request, Get)]
        found = Counter("news" if key == NEWS else "head" for key in keys)
        self.here.seen.clear()
        return found


Place = Callable[[int], Tenants]


@pytest.fixture
def tenants(machine: Any) -> Place:
    return lambda count: Tenants(machine, count)


def fail(process: Process, fails: Callable[[StoreRequest], bool], reply: StoreReply = REFUSED) -> None:
    """Let requests of a process fail."""
    real = process.inner.perform
    process.perform = lambda request: reply if fails(request) else real(request)  # type: ignore[method-assign]


def is_of_news(request: StoreRequest) -> bool:
    return getattr(request, "key", "") == NEWS


@pytest.mark.parametrize("count", [1, HEADS_WITHOUT_NEWS, HEADS_WITHOUT_NEWS + 1, 40])
def test_an_idle_process_sends_two_gets_a_second_at_most(tenants: Place, count: int) -> None:
    place = tenants(count)
    place.pass_by(300)
    looks = place.looks()
    assert looks.total() <= 2 * 300
    assert (looks["news"] > 0) == (count > HEADS_WITHOUT_NEWS)
    assert looks["head"] >= 300 / LOOK_MAX - 2


def test_a_job_that_ends_a_rest_starts_after_one_look_at_the_news(tenants: Place) -> None:
    place = tenants(20)
    for number in range(20):
        place.pass_by(SETTLED)
        assert place.wait_of(number) <= LOOK_MAX + CLAIM


def test_commits_of_a_process_that_reads_no_heads_cost_an_idle_process_no_looks(tenants: Place) -> None:
    place = tenants(40)
    busy = Queue[Any](place.there, "busy", machine=place.machine)
    busy.enqueue(1)
    (lease,) = busy.claim(lease=600)
    place.pass_by(SETTLED)
    place.looks()
    for _ in range(10):
        lease.heartbeat()
        place.pass_by(20)
    assert place.looks().total() <= 2 * 200


def test_only_the_head_that_a_notice_names_is_looked_at(tenants: Place) -> None:
    place = tenants(20)
    place.wait_of()
    place.pass_by(SETTLED)
    place.looks()
    place.wait_of(1)
    assert place.here.seen
    heads = Counter(request.key for _, request in place.here.seen if isinstance(request, Get))
    assert len(heads) <= 4  # those of two looks in turn besides, and the news


def test_jobs_that_follow_soon_start_as_soon_although_nothing_is_reported(tenants: Place) -> None:
    place = tenants(20)
    place.wait_of()
    for _ in range(10):
        place.pass_by(REST_MS / 1000 - 1)
        assert place.wait_of() <= LOOK_MAX + CLAIM


def test_a_process_that_finds_a_gap_looks_at_all_of_its_heads(tenants: Place) -> None:
    place = tenants(20)
    for number in range(3):
        place.wait_of(number)
    place.pass_by(SETTLED)
    place.producers[7].enqueue(1)
    place.here.inner.put(Put(NEWS, encoded(("0" * 20,))))  # another process replaces the notice
    place.pass_by(LOOK_MAX + CLAIM)
    assert len(place.workers[7].started) == 1


@pytest.mark.parametrize("trouble", ["the notice fails once", "the commit has no response"])
def test_a_passing_failure_loses_no_notice(tenants: Place, trouble: str) -> None:
    place = tenants(20)
    for number in range(8):
        place.wait_of(number)
    real = place.there.inner.perform
    failed: list[str] = []

    def perform(request: StoreRequest) -> StoreReply:
        is_notice = isinstance(request, PutIfMatch) and request.key == NEWS
        if is_notice and trouble == "the notice fails once" and not failed:
            failed.append(NEWS)
            return Failed(Unavailable("503"))
        if is_notice and trouble != "the notice fails once":
            real(Put(NEWS, encoded(("0" * 20,))))  # another writer is quicker
        reply = real(request)
        if (
            isinstance(request, PutIfMatch)
            and not is_notice
            and trouble != "the notice fails once"
            and not failed
        ):
            failed.append(request.key)
            return Failed(Unavailable("no response"))
        return reply

    place.there.perform = perform  # type: ignore[method-assign]
    for number in range(1, 8):
        place.pass_by(SETTLED)
        failed.clear()
        assert place.wait_of(number) <= LOOK_MAX + CLAIM
        assert failed


@pytest.mark.parametrize("count", [5, 20])
def test_a_lost_notice_makes_a_job_late_by_one_turn_of_looks_at_most(tenants: Place, count: int) -> None:
    place = tenants(count)
    place.wait_of()
    place.pass_by(SETTLED)
    fail(place.there, is_of_news)
    turn = count * LOOK_MAX
    assert LOOK_MAX < max(place.wait_of(number) for number in range(1, count)) <= turn + CLAIM


def test_a_head_found_in_turn_is_looked_at_often_again(tenants: Place) -> None:
    place = tenants(20)
    place.wait_of()
    place.pass_by(SETTLED)
    fail(place.there, is_of_news)
    place.wait_of(3)
    for _ in range(5):
        place.pass_by(5)
        assert place.wait_of(3) <= LOOK_MAX + CLAIM


def test_a_commit_on_a_head_that_is_ahead_of_the_clock_is_reported(tenants: Place) -> None:
    place = tenants(20)
    for number in range(5):
        place.wait_of(number)
        key = root_of(f"tenant{number}", 0) + HEAD
        found = place.there.inner.get(Get(key))
        assert isinstance(found, Found)
        state = decode_head(found.body)
        place.there.inner.put(Put(key, encode_head(replace(state, now_ms=state.now_ms + HOUR_MS))))
    for number in range(5):
        place.pass_by(2 * SETTLED)
        assert place.wait_of(number) <= LOOK_MAX + CLAIM


def test_a_notice_may_come_before_its_commit(tenants: Place) -> None:
    place = tenants(20)
    place.wait_of()
    place.pass_by(SETTLED)
    place.there.inner.put(Put(NEWS, encoded((f"{1:08x}{place_in_news(root_of('tenant0', 0))}",))))
    place.pass_by(5)
    fail(place.there, is_of_news)
    assert place.wait_of() <= LOOK_MAX + CLAIM


@pytest.mark.parametrize("reply", [REFUSED, Failed(Unavailable("503"))])
def test_where_the_news_cannot_be_read_each_head_is_looked_at(tenants: Place, reply: StoreReply) -> None:
    place = tenants(5)
    fail(place.here, is_of_news, reply)
    place.pass_by(SETTLED)
    for number in range(5):
        assert place.wait_of(number) <= LOOK_MAX + CLAIM
        place.pass_by(SETTLED)


def test_a_process_that_may_not_create_the_news_tries_it_once(tenants: Place) -> None:
    place = tenants(HEADS_WITHOUT_NEWS)
    tried: list[StoreRequest] = []

    def is_creation(request: StoreRequest) -> bool:
        creates = isinstance(request, PutIfAbsent) and request.key == NEWS
        if creates:
            tried.append(request)
        return creates

    fail(place.here, is_creation)
    more = [Queue[Any](place.here, f"more{number}", machine=place.machine) for number in range(3)]
    place.workers += [Worker(each) for each in more]
    place.pass_by(20)
    assert len(tried) == 1
    assert place.wait_of(1) <= LOOK_MAX + CLAIM


def test_heads_are_looked_at_often_once_no_waiter_reads_the_news(tenants: Place, machine: Any) -> None:
    place = tenants(20)
    place.wait_of()
    place.pass_by(SETTLED)
    readers = place.workers[HEADS_WITHOUT_NEWS:]
    for worker in readers:
        worker.flow.close()
        place.workers.remove(worker)
    place.pass_by(2 * LOOK_MAX)
    for number in range(HEADS_WITHOUT_NEWS):
        assert place.wait_of(number) <= LOOK_MAX + CLAIM


def test_a_waiter_that_looks_often_reads_the_news_itself(tenants: Place) -> None:
    place = tenants(HEADS_WITHOUT_NEWS)  # whose rests began before the process waited at more heads
    names = [f"slow{number}" for number in range(20)]
    place.producers += [Queue[Any](place.there, name, machine=place.machine) for name in names]
    place.workers += [Worker(Queue(place.here, name, machine=place.machine), poll=60.0) for name in names]
    place.pass_by(600)
    assert place.wait_of() <= LOOK_MAX + CLAIM


def test_a_body_that_cannot_be_read_makes_a_process_look_at_all_of_its_heads(tenants: Place) -> None:
    place = tenants(20)
    place.wait_of()
    place.there.inner.put(Put(NEWS, b"of a later format"))
    place.pass_by(SETTLED)
    fail(place.there, is_of_news)
    place.producers[3].enqueue(1)
    place.there.inner.put(Put(NEWS, b"of a later format too"))
    place.pass_by(LOOK_MAX + CLAIM)
    assert len(place.workers[3].started) == 1


def test_on_a_folder_no_news_are_read(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "__init__", _on_a_folder)
    place = Tenants(machine, 5)
    place.pass_by(10)
    assert place.looks()["news"] == 0


def _on_a_folder(self: Process, inner: MemoryStore, machine: Any, real: Any = Process.__init__) -> None:
    real(self, inner, machine)
    self.look_pace = FileStore.look_pace


def test_a_shard_is_a_head_like_any_other(machine: Any) -> None:
    store = MemoryStore(machine)
    here, there = Process(store, machine), Process(store, machine)
    producer = Queue[Any](there, "mail", machine=machine)
    producer.configure(shards=16)
    worker = Worker(Queue(here, "mail", machine=machine))
    let_pass(machine, SETTLED, [worker])
    here.seen.clear()
    let_pass(machine, 100, [worker])
    assert len(here.seen) <= 2 * 100
    producer.enqueue(1)
    came = machine.seconds
    let_pass(machine, LOOK_MAX + CLAIM, [worker])
    assert worker.started
    assert worker.started[-1] >= came


# ── The board of one head ────────────────────────────────────────────────────
class News:
    """News that are always read."""

    heads = 10

    def covers(self, since: float, now: float) -> bool:
        return True


def resting(now: float) -> tuple[HeadBoard, WorkWaiter]:
    """Return a board at rest, whose waiter looks."""
    board, waiter = HeadBoard("root/"), WorkWaiter(Pace(0.1, 1.0))
    board.news = News()
    with board._lock:
        board._enter(waiter, now, False)
    for passed in range(int(REST_SECONDS) + 2):
        board.look_at(waiter, now)
        board.looking(waiter.pace, now + passed, 0.0)
    return board, waiter


def test_a_head_at_rest_is_looked_at_in_as_many_pauses_as_there_are_heads() -> None:
    board, waiter = resting(0.0)
    assert board.look_at(waiter, board.looked) == board.looked + News.heads * 1.0


def test_a_waiter_that_joins_ends_no_rest() -> None:
    board, waiter = resting(0.0)
    at = board.look_at(waiter, board.looked)
    with board.present(WorkWaiter(Pace(0.1, 1.0)), board.looked + 1):
        assert board.look_at(waiter, board.looked + 1) == at


@pytest.mark.parametrize("end", ["notice", "failure"])
def test_a_notice_and_a_failure_end_a_rest_for_good(end: str) -> None:
    board, waiter = resting(0.0)
    if end == "notice":
        board.rouse()
        assert waiter.news
    else:
        board.note_failure(Unavailable("503"))
    now = board.look_at(waiter, board.looked)
    assert now <= board.looked + waiter.pace.quick
    for _ in range(5):  # what the notice is about may come later than the notice
        board.looking(waiter.pace, now, 0.0)
        following = board.look_at(waiter, now)
        assert following - now <= waiter.pace.slow + TINY
        now = following


def test_a_new_version_ends_a_rest() -> None:
    board, waiter = resting(0.0)
    board.see(State(commit=b"1" * 16, epoch=1), "new")
    assert waiter.news
    assert board.look_at(waiter, board.looked) <= board.looked + waiter.pace.quick


def test_a_rest_ends_when_the_last_reader_of_the_news_leaves() -> None:
    board, waiter = resting(0.0)
    readers = NewsBoard(NewsOfStore())
    readers.add(board)
    with readers.present(WorkWaiter(Pace(0.1, 1.0)), board.looked):
        assert not waiter.news
    assert waiter.news
    assert board.look_at(waiter, board.looked) <= board.looked + waiter.pace.quick
