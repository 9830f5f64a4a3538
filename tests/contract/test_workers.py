"""The registry of workers, over every store and API, blocking and async: who is told of, and what a crash leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from osqueue import Queue, Rejected, limits
from osqueue.model.worker import WorkerEntry
from osqueue.objects.worker_registry import folder_of
from osqueue.stores.base import List
from osqueue.worker import registration
from osqueue.worker.loop import Worker
from tests.support.patience import PATIENCE

MINUTE, HOUR = 60_000, 3_600_000


@pytest.fixture
def q(opened: Callable[..., Any]) -> Any:
    queue = opened()
    queue.configure(priority=5)  # now there is one
    return queue


@pytest.fixture
def working(new_store: Callable[[], Any], clock: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """While the block lasts, a worker of another process runs, and says at once that it is there."""
    monkeypatch.setattr(registration, "FIRST_SECONDS", 0.0)

    @contextmanager
    def work(handler: Callable[[Any], Any], kind: str | None = None, **options: Any) -> Iterator[Worker]:
        with Queue(new_store(), "mail", machine=clock) as other:
            other.handler(kind=kind)(handler)
            worker = Worker(other, signals=False, **options)
            thread = threading.Thread(target=worker.run)
            thread.start()
            try:
                yield worker
            finally:
                worker.stop()
                thread.join(PATIENCE)
                assert not thread.is_alive()

    return work


def until(happened: Callable[[], Any]) -> Any:
    """Wait for what must come; answers it."""
    for _ in range(20 * PATIENCE):
        if found := happened():
            return found
        threading.Event().wait(0.05)
    pytest.fail("it did not come")


def say(q: Any, worker_id: str, **entry: Any) -> bool:
    """What a worker says of itself that ends without a word."""
    done: bool = q._run(q._flows.put_worker(worker_id, WorkerEntry(**{"name": "mailer", **entry})))
    return done


def states(q: Any) -> dict[str, str]:
    return {each.id or each.name: each.state for each in q.workers()}


def entries(behind: Any) -> list[str]:
    return [key.rpartition("/")[2] for key in behind.perform(List(folder_of("mail"))).keys]


def test_a_worker_is_told_of_with_what_it_holds_from_its_first_word_to_its_end(
    q: Any, working: Any, behind: Any
) -> None:
    go_on = threading.Event()
    q.enqueue_many([{"payload": n, "kind": "welcome"} for n in range(3)])
    assert q.workers() == []
    with working(lambda job: go_on.wait(PATIENCE), kind="welcome", name="mailer", concurrency=2) as worker:
        until(lambda: worker.in_hand == 2)
        found = until(lambda: [each for each in q.workers() if each.id])
        (one,) = found
        assert (one.name, one.state, one.kinds) == ("mailer", "running", ["welcome"])
        assert (one.holds, one.concurrency) == (2, 2)
        assert (one.host, one.pid) == (worker.queue.machine.host(), worker.queue.machine.process())
        assert one.since <= one.seen
        assert one.oldest_start is not None
        worker.stop()
        until(lambda: states(q)[one.id] == "draining")
        go_on.set()
    assert (q.workers(), entries(behind)) == ([], [])
    assert q.stats()["queued"] == 1


def test_who_holds_leases_and_says_nothing_of_itself_is_told_of_as_well(q: Any) -> None:
    q.configure(shards=2)
    q.enqueue_many([{"payload": n} for n in range(4)])
    for _ in range(4):
        q.claim(4, worker="by hand")
    (found,) = q.workers()
    assert (found.name, found.state, found.holds, found.id, found.seen) == (
        *("by hand", "unregistered", 4),
        *(None, None),
    )
    assert found.oldest_start is not None


def test_a_worker_that_crashed_is_lost_and_forgotten_after_an_hour(q: Any, clock: Any, behind: Any) -> None:
    q.enqueue(1)
    q.claim(1, worker="mailer", lease=7200)
    assert say(q, "crashed", busy=1)
    clock.shift_ms += 2 * MINUTE
    assert say(q, "alive", name="other")
    assert states(q) == {"crashed": "running", "alive": "running"}
    clock.shift_ms += 2 * MINUTE
    assert say(q, "alive", name="other")
    assert states(q) == {"crashed": "lost", "alive": "running"}
    (lost, _) = q.workers()  # first of all, with the job that it took along
    assert (lost.id, lost.holds, lost.busy) == ("crashed", 1, 1)
    q.reap()
    assert states(q)["crashed"] == "lost"
    clock.shift_ms += HOUR
    assert say(q, "alive", name="other")
    assert states(q) == {"mailer": "unregistered", "alive": "running"}
    q.reap()
    assert entries(behind) == ["alive"]


def test_two_of_one_name_are_two(q: Any) -> None:
    q.enqueue(1)
    q.claim(1, worker="mailer")
    say(q, "first", busy=1)
    say(q, "second", draining=True)
    assert states(q) == {"first": "running", "second": "draining"}
    assert {each.holds for each in q.workers()} == {1}  # by its name alone: nobody can tell whose it is
    q._run(q._flows.delete_worker("first"))
    q._run(q._flows.delete_worker("first"))  # again is harmless
    assert states(q) == {"second": "draining"}


def test_hostile_names_are_told_as_they_are(q: Any) -> None:
    for name in ("<script>alert(1)</script>", "ü/../head", "工人", "a\"b'c", "x" * 128, " "):
        assert say(q, "w-1", name=name, host=name, version=name, kinds=[name[:64]])
        (found,) = q.workers()
        assert (found.name, found.host, found.version, found.kinds) == (name, name, name, [name[:64]])


def test_what_breaks_its_bounds_is_refused(q: Any, behind: Any) -> None:
    for field, wrong in (
        ("name", {"name": ""}),
        ("name", {"name": "x" * (limits.WORKER_CHARS_MAX + 1)}),
        ("name", {"name": "line\nbreak"}),
        ("host", {"host": "\x1b[2J"}),
        ("kind", {"kinds": ["k\x00"]}),
        ("kinds", {"kinds": ["k"] * (limits.WORKER_KINDS_TOLD_MAX + 1)}),
        ("concurrency", {"concurrency": 0}),
        ("busy", {"busy": -1}),
        ("every", {"every": 0.5}),
        ("every", {"every": limits.WORKER_EVERY_MS_MAX / 1000 + 0.001}),
        ("uptime", {"uptime": -1.0}),
    ):
        with pytest.raises(Rejected) as refused:
            say(q, "w-1", **wrong)
        assert refused.value.field == field
    assert entries(behind) == []
    kinds = ["k"] * limits.WORKER_KINDS_TOLD_MAX
    assert say(q, "w-1", kinds=kinds, every=limits.WORKER_EVERY_MS_MAX / 1000)


def test_an_id_that_is_none_is_refused(q: Any, behind: Any) -> None:
    for worker_id in ("", ".", "..", "../head", "a/b", "-x", "x" * 65, "ü", "a b"):
        for call in (partial(say, q), lambda name: q._run(q._flows.delete_worker(name))):
            with pytest.raises(Rejected, match="worker"):
                call(worker_id)
    assert entries(behind) == []


def test_a_queue_that_is_not_there_has_no_workers_and_gets_no_entry(opened: Any, behind: Any) -> None:
    q = opened("mail")
    assert q.workers() == []
    assert not say(q, "w-1")
    assert behind.perform(List("")).keys == ()
    q.enqueue(1)
    assert say(q, "w-1")
