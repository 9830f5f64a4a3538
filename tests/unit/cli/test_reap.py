"""``osqueue reap --every``: upkeep in a loop, of which one works and the others wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osqueue import OsqueueError, Queue, Unavailable
from osqueue.cli.output import Output, OutputFailed
from osqueue.cli.reap import keep_reaping, passes
from osqueue.election.blocking import Election
from osqueue.election.upkeep import ELECTION, election_of
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore
from tests.support.commands import Run
from tests.support.refusing import RefusingStore


class After:
    """A stop that comes after some pauses; each may do something."""

    def __init__(self, pauses: int, then: Callable[[int], object] = lambda count: None) -> None:
        self.left = pauses
        self.paused: list[float] = []
        self.then = then

    def is_set(self) -> bool:
        return self.left <= 0

    def wait(self, timeout: float) -> bool:
        self.left -= 1
        self.paused.append(timeout)
        self.then(len(self.paused))
        return self.is_set()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


def test_a_loop_reaps_until_it_is_stopped_and_tells_only_of_what_it_did(
    store: CountingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    q: Queue[Any] = Queue(store, "emails")
    q.enqueue(1)
    q.claim()[0].complete()
    stop = After(3)
    election = election_of(store, None, 60)
    keep_reaping(Output(), election, lambda: passes(store, None, 5), 60, stop)
    assert stop.paused == [60, 60, 60]
    (told,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told["queue"], told["archived"]) == ("emails", 1)
    assert not election.is_leader


def test_of_two_loops_one_works_and_the_other_takes_over_when_it_ends(store: CountingStore) -> None:
    first = election_of(store, None, 60)
    assert first.campaign() == "elected"
    done: list[int] = []

    def one_pass() -> Iterator[tuple[str, dict[str, Any] | OsqueueError]]:
        done.append(1)
        yield from ()

    stop = After(4, lambda count: first.resign() if count == 2 else None)
    keep_reaping(Output(), election_of(store, None, 60), one_pass, 60, stop)
    assert stop.paused == [20.0, 20.0, 60, 60]
    assert len(done) == 2


def test_loops_over_different_queues_do_not_wait_for_each_other(store: CountingStore) -> None:
    names = {election_of(store, queue, 60).name for queue in (None, "a", "b" * 64)}
    assert len(names) == 3
    assert ELECTION in names


def test_trouble_is_told_once_and_passes(store: CountingStore, capsys: pytest.CaptureFixture[str]) -> None:
    class Troubled(Election):
        calls = 0

        def lead(self, timeout: float | None = None) -> Any:
            Troubled.calls += 1
            if Troubled.calls < 4:
                raise Unavailable("the store is away.")
            return super().lead(timeout)

    def one_pass() -> Iterator[tuple[str, dict[str, Any] | OsqueueError]]:
        yield "emails", Unavailable("no answer.")

    keep_reaping(Output(), Troubled(store, "x", stale_after=600), one_pass, 9, After(4))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["error: unavailable: the store is away.", "error: unavailable: queue emails: no answer."]


def test_the_loop_goes_on_once_a_store_that_refused_everything_allows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusing = RefusingStore(MemoryStore())
    Queue[Any](refusing, "emails").enqueue(1)
    refusing.refuses = True
    store = CountingStore(refusing)

    def mend(pauses: int) -> None:
        refusing.refuses = pauses < 3

    passed: list[str] = []

    def one_pass() -> Iterator[tuple[str, dict[str, Any] | OsqueueError]]:
        for told in passes(store, None, 5):
            passed.append(told[0])
            yield told

    keep_reaping(Output(), election_of(store, None, 60), one_pass, 60, After(6, mend))
    assert passed
    assert capsys.readouterr().err.splitlines() == ["error: unavailable: 403 AccessDenied (injected)"]


@pytest.mark.parametrize("every", ["0.5", "2d"])
def test_a_pace_that_makes_no_sense_is_refused(run: Run, every: str) -> None:
    result = run("reap", "--every", every)
    assert result.exit_code == 2
    assert "--every" in result.stderr


@pytest.mark.parametrize("trouble", [OutputFailed("standard output takes no answer."), BrokenPipeError()])
def test_a_loop_goes_on_when_nobody_can_be_told_what_it_did(
    store: CountingStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    trouble: Exception,
) -> None:
    def full(*args: Any) -> None:
        raise trouble

    monkeypatch.setattr(Output, "document", full)
    q: Queue[Any] = Queue(store, "emails")

    def work(count: int = 0) -> None:
        q.enqueue(1)
        q.claim()[0].complete()

    work()
    stop = After(3, work)
    keep_reaping(Output(), election_of(store, None, 60), lambda: passes(store, None, 5), 60, stop)
    assert stop.paused == [60, 60, 60]
    assert capsys.readouterr().err.count("error: output:") == 3
