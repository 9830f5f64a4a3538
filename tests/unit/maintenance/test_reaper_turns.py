"""Passes that are cut short: the next one begins where they ended, so every shard has its turn."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue, limits
from osqueue.maintenance.reaper import NOTE_SECONDS, place_of_turn
from osqueue.objects import archive
from osqueue.objects.backups import folder_of
from osqueue.stores.base import Found, Get, Put
from osqueue.stores.memory import MemoryStore
from tests.support.scene import names
from tests.support.stepping import LOST, Call, writes

REQUEST_SECONDS = 0.5  # of a slow store
PASS_SECONDS = 118.0  # until a pass is killed


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


def opened(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def build(store: MemoryStore, machine: Any, shards: int) -> None:
    """A queue in which every shard has something to archive and nothing has been backed up."""
    q = opened(store, machine)
    q.configure(shards=shards)
    for _ in range(shards):  # each goes to the next shard in turn
        q.enqueue(1)
    while leases := q.claim(shards):
        for lease in leases:
            lease.complete("r")


def cut_short(store: MemoryStore, machine: Any, seconds: float, request: float = REQUEST_SECONDS) -> bool:
    """A pass of a new process, killed after so many seconds; did it end before?"""
    q = opened(store, machine)
    call = Call(q, q._reap())
    until = machine.monotonic() + seconds
    while not call.over and machine.monotonic() < until:
        machine.advance(request)
        call.step()
    return call.over


def looked_after(store: MemoryStore, shards: int) -> set[int]:
    """The shards that have a backup and a part in the archive."""
    parts = {int(name.rpartition("/")[2][:2]) for name in names(store, archive.ROOT)}
    return {shard for shard in parts if names(store, folder_of("mail", shard))} & set(range(shards))


def test_at_a_slow_store_every_shard_has_its_turn_within_a_few_passes(
    store: MemoryStore, machine: Any
) -> None:
    shards = limits.SHARDS_MAX
    build(store, machine, shards)
    seen = []
    while len(looked_after(store, shards)) < shards and len(seen) < 12:
        assert not cut_short(store, machine, PASS_SECONDS)
        seen.append(len(looked_after(store, shards)))
    assert seen[-1] == shards, seen
    assert len(seen) <= 1 + shards // seen[0], seen  # no pass did much again


def test_a_shard_that_takes_a_whole_pass_does_not_keep_the_others_from_theirs(
    store: MemoryStore, machine: Any
) -> None:
    build(store, machine, 3)
    noted = []
    for _ in range(4):
        assert not cut_short(store, machine, 3 * NOTE_SECONDS, request=NOTE_SECONDS / 2)
        note = store.get(Get(place_of_turn("mail")))
        noted.append(note.body if isinstance(note, Found) else note)
    assert noted == [b"1", b"2", b"0", b"1"]


def test_a_quick_pass_notes_nothing(store: MemoryStore, machine: Any) -> None:
    build(store, machine, 4)
    opened(store, machine).reap()
    assert names(store, place_of_turn("mail")) == []


def test_a_queue_of_one_shard_never_asks_whose_turn_it_is(store: MemoryStore, machine: Any) -> None:
    build(store, machine, 1)
    q = opened(store, machine)
    call = Call(q, q._reap())
    while not call.over:
        machine.advance(NOTE_SECONDS)
        assert getattr(call.next, "key", "") != place_of_turn("mail")
        call.step()
    assert looked_after(store, 1) == {0}


@pytest.mark.parametrize("note", [b"", b"-1", b"two", b"99", b"\xff", b"9" * 5_000])
def test_a_note_that_means_nothing_harms_no_pass(store: MemoryStore, machine: Any, note: bytes) -> None:
    build(store, machine, 4)
    store.put(Put(place_of_turn("mail"), note))
    assert opened(store, machine).reap().archived == 4
    assert looked_after(store, 4) == {0, 1, 2, 3}


def test_a_note_that_cannot_be_read_or_written_harms_no_pass(store: MemoryStore, machine: Any) -> None:
    build(store, machine, 4)
    store.put(Put(place_of_turn("mail"), b"2"))
    q = opened(store, machine)
    call = Call(q, q._reap())
    while not call.over:
        machine.advance(REQUEST_SECONDS)
        about = getattr(call.next, "key", "") == place_of_turn("mail")
        call.step((lambda request: LOST) if about else None)
    assert call.error is None
    assert looked_after(store, 4) == {0, 1, 2, 3}


def test_passes_that_overlap_look_after_every_shard(store: MemoryStore, machine: Any) -> None:
    build(store, machine, 6)
    store.put(Put(place_of_turn("mail"), b"4"))
    calls = [Call(q, q._reap()) for q in (opened(store, machine), opened(store, machine))]
    calls[0].until(writes(archive.ROOT))
    while going := [call for call in calls if not call.over]:
        machine.advance(REQUEST_SECONDS)
        machine.chance.choice(going).step()
    assert [call.error for call in calls] == [None, None]
    assert looked_after(store, 6) == set(range(6))
