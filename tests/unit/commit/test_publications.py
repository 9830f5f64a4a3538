"""What one writer knows of others' publications: where it looks, where it publishes, what it takes along."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.commit.publications import (
    COMBINED_MIN,
    CROWD_COMMITS,
    NEWCOMER_REQUESTS,
    NEWCOMERS_MAX,
    PUBLICATION_KEPT_MS,
    RECENT_COMMITS,
    Publications,
    are_few,
)
from osqueue.core.intents import DOORS, intent_body, publications_prefix
from osqueue.core.ops import Request
from osqueue.core.state import Session, State
from osqueue.limits import FEW_WRITERS_MAX
from osqueue.objects.layout import root_of
from osqueue.stores.base import Found, Get, List, Missing, Put
from osqueue.stores.memory import MemoryStore

ROOT = "87bb/mail/0/"
PLACE = publications_prefix(ROOT)


def state(rows: dict[str, int], seq: int = 100, n: int = NEWCOMER_REQUESTS + 1, **fields: Any) -> State:
    """Return a head in which each writer's latest commit is the one given."""
    sessions = {env: Session(n, 7, at, at, b"") for env, at in rows.items()}
    return State(b"c" * 16, epoch=1, seq=seq, now_ms=seq, sessions=sessions, **fields)


def request(env: str = "a", n: int = 9, born: int = 99) -> Request:
    return Request(env, n, 9, born, 1, ())


def led(rows: dict[str, int]) -> State:
    """Return a head that its writer makes again and again, with what others publish."""
    return state(rows, streak=3, combined=COMBINED_MIN)


def keys(looks: list[Any]) -> list[str]:
    return [look.key.removeprefix(PLACE) for look in looks]


def test_writers_are_few_by_their_latest_commits() -> None:
    many = {f"w{at}": 100 - CROWD_COMMITS + 1 for at in range(FEW_WRITERS_MAX + 1)}
    assert not are_few(state(many))
    assert are_few(state(dict(list(many.items())[1:])))
    assert are_few(state({**dict.fromkeys(many, 100 - CROWD_COMMITS), "now": 100}))
    newcomers = {f"w{at}": 100 for at in range(NEWCOMERS_MAX + 1)}
    assert are_few(state(newcomers))
    assert not are_few(state(newcomers, n=NEWCOMER_REQUESTS))


def test_names_are_read_only_where_a_leader_combines() -> None:
    rows = {"a": 100, "b": 99, "old": 100 - RECENT_COMMITS, "me": 100}
    known = Publications(ROOT)
    assert keys(known.looks(led(rows), "me", contended=True)) == [*DOORS, "a", "b"]
    assert keys(known.looks(state(rows), "me", contended=True)) == [*DOORS]
    assert keys(known.looks(led(rows), "me", contended=False)) == [DOORS[0]]


def test_a_writer_publishes_where_the_next_commit_looks() -> None:
    known = Publications(ROOT)
    assert known.publish(request("a"), led({"a": 99}), True, 0.0).key == PLACE + "a"
    assert known.publish(request("new"), led({"a": 99}), True, 0.0).key == PLACE + DOORS[0]
    assert known.publish(request("a"), state({"a": 99}), False, 0.9).key == PLACE + DOORS[0]


def test_a_writer_goes_to_the_door_at_which_nobody_waits() -> None:
    known, head = Publications(ROOT), led({"me": 100})
    looks = known.looks(head, "me", contended=True)
    replies = [Found(intent_body(request("other")), "v", 0), *[Missing()] * (len(looks) - 1)]
    assert [each.env for each in known.take_in(head, "me", looks, replies)] == ["other"]
    assert known.publish(request("new"), head, True, 0.0).key == PLACE + DOORS[1]


@pytest.mark.parametrize(
    "body",
    [
        b"not a request",
        intent_body(request("a", n=1)),  # applied before
        intent_body(request("me")),  # the reader's own
        intent_body(request("a", born=0)),  # older than what the head remembers
    ],
    ids=["unreadable", "applied", "own", "too old"],
)
def test_what_may_not_be_applied_is_passed_over(body: bytes) -> None:
    known, head = Publications(ROOT), state({"a": 99}, floor=1)
    assert known.take_in(head, "me", [Get(PLACE + "a")], [Found(body, "v", 0)]) == []


def test_a_request_that_is_published_twice_is_taken_along_once() -> None:
    known, head = Publications(ROOT), led({"a": 99})
    looks = [Get(PLACE + name) for name in (DOORS[0], "a")]
    assert len(known.take_in(head, "me", looks, [Found(intent_body(request()), "v", 0)] * 2)) == 1


def test_a_reap_deletes_publications_that_no_commit_took_for_long(machine: Any) -> None:
    store = MemoryStore(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    q.enqueue(1)
    place = publications_prefix(root_of("mail", 0))
    for name in (DOORS[0], "old"):
        store.perform(Put(place + name, intent_body(request(name))))
    machine.sleep(PUBLICATION_KEPT_MS / 1000 + 1)
    store.perform(Put(place + "young", intent_body(request("young"))))
    assert q.reap().combined == 0
    assert list(store.perform(List(place)).keys) == [place + "young"]
