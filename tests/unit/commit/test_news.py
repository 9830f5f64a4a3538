"""The object that names heads whose rest has ended: what it holds, who writes it, and what that costs."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.commit import news
from osqueue.commit.news import NEWS, News, decoded, encoded, place_in_news, place_of
from osqueue.errors import Unavailable
from osqueue.objects.layout import root_of
from osqueue.stores.base import (
    Failed,
    Found,
    Get,
    LookPace,
    Missing,
    Put,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    Unchanged,
)
from osqueue.stores.memory import MemoryStore
from tests.support.waiters import Process

REST = news.REST_MS / 1000
ROOT = root_of("mail", 0)
OTHER = root_of("letters", 0)


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def wanted(store: MemoryStore) -> MemoryStore:
    """The store, and a process has asked for its news."""
    store.put(Put(NEWS, encoded(())))
    return store


@pytest.fixture
def here(store: MemoryStore, machine: Any) -> Process:
    return Process(store, machine)


@pytest.fixture
def elsewhere(store: MemoryStore, machine: Any) -> Process:
    return Process(store, machine)


def notices(store: MemoryStore) -> list[str]:
    """Return the places that the object names now."""
    found = store.get(Get(NEWS))
    assert isinstance(found, Found)
    return [place_of(each) for each in decoded(found.body)]


def sent(process: Process, key: str = NEWS) -> list[str]:
    """Return the requests for a key, and forget all."""
    kinds = [type(request).__name__ for _, request in process.seen if getattr(request, "key", "") == key]
    process.seen.clear()
    return kinds


def test_the_first_commit_of_a_head_is_reported(wanted: MemoryStore, here: Process, machine: Any) -> None:
    Queue[Any](here, "mail", machine=machine).enqueue(1)
    assert notices(wanted) == [place_in_news(ROOT)]


def test_a_rest_is_reported_once_by_one_write_beside_the_swap(
    wanted: MemoryStore, here: Process, elsewhere: Process, machine: Any
) -> None:
    q = Queue[Any](here, "mail", machine=machine)
    q.enqueue(1)
    Queue[Any](elsewhere, "mail", machine=machine).claim()
    machine.advance(REST)
    sent(here)
    q.enqueue(2)
    q.enqueue(3)
    assert sent(here) == ["PutIfMatch", "Get", "PutIfMatch"]  # the first one beside a swap that was lost
    assert notices(wanted)[-1] == place_in_news(ROOT)


def test_a_commit_soon_after_another_one_reports_nothing(
    wanted: MemoryStore, here: Process, machine: Any
) -> None:
    q = Queue[Any](here, "mail", machine=machine)
    q.enqueue(1)
    sent(here)
    machine.advance(REST - 1)
    q.enqueue(2)
    assert sent(here) == []


def test_nothing_is_written_where_no_process_wants_news(
    store: MemoryStore, here: Process, machine: Any
) -> None:
    q = Queue[Any](here, "mail", machine=machine)
    q.enqueue(1)
    machine.advance(REST)
    q.enqueue(2)
    assert sent(here) == ["Get", "Get"]
    assert store.get(Get(NEWS)) is not None
    assert not isinstance(store.get(Get(NEWS)), Found)


def test_a_process_learns_later_that_news_are_wanted(store: MemoryStore, here: Process, machine: Any) -> None:
    q = Queue[Any](here, "mail", machine=machine)
    q.enqueue(1)
    store.put(Put(NEWS, encoded(())))
    machine.advance(REST)
    q.enqueue(2)
    assert notices(store) == [place_in_news(ROOT)]


def test_reports_of_two_processes_stand_beside_each_other(
    wanted: MemoryStore, here: Process, elsewhere: Process, machine: Any
) -> None:
    Queue[Any](here, "mail", machine=machine).enqueue(1)
    Queue[Any](elsewhere, "letters", machine=machine).enqueue(1)
    assert notices(wanted) == [place_in_news(ROOT), place_in_news(OTHER)]


@pytest.mark.parametrize("cheap", [LookPace(0.01, free=True), None])
def test_news_are_left_alone_where_looks_are_free_or_writes_scarce(
    wanted: MemoryStore, here: Process, machine: Any, cheap: LookPace | None
) -> None:
    if cheap is None:
        here.swap_gap_s = 1.0
    else:
        here.look_pace = cheap
    Queue[Any](here, "mail", machine=machine).enqueue(1)
    assert sent(here) == []


@pytest.mark.parametrize("reply", [Failed(Unavailable("403", permanent=True)), Failed(Unavailable("503"))])
def test_a_report_that_fails_fails_no_enqueue(
    wanted: MemoryStore, here: Process, machine: Any, monkeypatch: pytest.MonkeyPatch, reply: StoreReply
) -> None:
    real = here.perform

    def perform(request: StoreRequest) -> StoreReply:
        return reply if getattr(request, "key", "") == NEWS else real(request)

    monkeypatch.setattr(here, "perform", perform)
    q = Queue[Any](here, "mail", machine=machine)
    assert q.enqueue(1).status == "queued"
    assert notices(wanted) == []


# ── What a report replaces ───────────────────────────────────────────────────
def known(machine: Any, count: int = 1) -> tuple[News, tuple[str, ...]]:
    before = tuple(f"{number:08x}{place_in_news(OTHER)}" for number in range(count))
    read = News()
    look = read.look()
    read.see((look,), (Found(encoded(before), "v1", 0),), machine.monotonic())
    return read, before


def test_a_report_continues_what_was_just_read(machine: Any) -> None:
    read, before = known(machine, news.NOTICES_KEPT)
    (request,) = read.report(ROOT, machine)
    assert isinstance(request, PutIfMatch)
    assert request.version == "v1"
    after = decoded(request.body)
    assert after[:-1] == before[1:]
    assert place_of(after[-1]) == place_in_news(ROOT)


def replies_of(read: News, machine: Any, *replies: StoreReply) -> list[Any]:
    """Return the requests of one report, each of which has the next reply. The last of them is the last request."""
    requests: list[Any] = [*read.report(ROOT, machine)]
    for at, reply in enumerate(replies):
        last = at == len(replies) - 1
        requests += read.report_again(requests[-1], reply, machine.monotonic(), ROOT, machine, last=last)
    return requests


def test_a_report_continues_what_was_read_long_ago(machine: Any) -> None:
    read, before = known(machine)
    machine.advance(3_600)
    (request,) = replies_of(read, machine)
    assert isinstance(request, PutIfMatch)
    assert decoded(request.body)[:-1] == before


def test_a_report_that_is_refused_continues_what_is_there(machine: Any) -> None:
    read, before = known(machine)
    others = (*before, f"{7:08x}{place_in_news(OTHER)}")
    found = Found(encoded(others), "v2", 0)
    _, look, again = replies_of(read, machine, Refused(), found)
    assert look == Get(NEWS, unless="v1")
    assert isinstance(again, PutIfMatch)
    assert again.version == "v2"
    assert decoded(again.body)[:-1] == others


@pytest.mark.parametrize("reply", [Refused(), Failed(Unavailable("503"))])
def test_a_report_that_fails_again_and_again_replaces_all_others(machine: Any, reply: StoreReply) -> None:
    read, _ = known(machine)
    *_, again = replies_of(read, machine, reply, Unchanged(), reply)
    assert isinstance(again, Put)
    assert [place_of(each) for each in decoded(again.body)] == [place_in_news(ROOT)]


def test_a_report_whose_second_look_fails_replaces_all_others(machine: Any) -> None:
    read, _ = known(machine)
    *_, again = replies_of(read, machine, Refused(), Failed(Unavailable("503")))
    assert isinstance(again, Put)


@pytest.mark.parametrize("reply", [Missing(), Failed(Unavailable("403", permanent=True))])
def test_a_report_ends_where_no_process_wants_news_or_none_may_be_written(
    machine: Any, reply: StoreReply
) -> None:
    read, _ = known(machine)
    assert len(replies_of(read, machine, Refused(), reply)) == 2


def test_a_report_never_repeats_a_notice(machine: Any) -> None:
    read, _ = known(machine)
    (first,), (second,) = read.report(ROOT, machine), read.report(ROOT, machine)
    assert first.body != second.body


@pytest.mark.parametrize("body", [b"", b"{", b'{"notices": [1]}', b"[]"])
def test_a_body_that_is_not_readable_holds_no_notices(body: bytes) -> None:
    assert decoded(body) == ()
