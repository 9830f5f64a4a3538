"""Collection: bounded work in one pass, the next one goes on behind it, and nothing that is referred to goes."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue, Unavailable, limits
from osqueue.commit.effects import Submit
from osqueue.core.encoding import staged_name
from osqueue.core.queue_ops import RunTimers
from osqueue.maintenance import garbage_collection
from osqueue.objects import backups
from osqueue.stores.base import Delete, Get, List, Put, PutIfMatch
from osqueue.stores.memory import MemoryStore
from tests.support.scene import HEAD, HOUR, ROOT, done, head, names, reaping
from tests.support.stepping import Call

DAY = limits.DAY_MS // 1000
FEW = 10  # names that a pass looks at


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "NAMES_MAX", FEW)


def litter(store: MemoryStore, count: int, born: int = 0) -> list[str]:
    """Objects that nobody refers to, in every folder."""
    folders = [folder.strip("/") for folder in garbage_collection.FOLDERS]
    found = [staged_name(folders[at % 3], born, at) for at in range(count)]
    for name in found:
        store.put(Put(ROOT + name, b"garbage"))
    return found


def staged(store: MemoryStore) -> set[str]:
    """Every staged object there is."""
    return {key[len(ROOT) :] for folder in garbage_collection.FOLDERS for key in names(store, ROOT + folder)}


def grow_old(q: Queue[Any], machine: Any) -> None:
    """A day passes, and commits mark it."""
    q.enqueue("before")
    machine.advance(DAY + 2 * HOUR)
    q.enqueue("after")


@pytest.mark.usefixtures("few")
def test_a_pass_looks_at_so_many_names_and_the_next_one_goes_on_behind_them(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    litter(store, 3 * FEW + 1)
    grow_old(q, machine)
    left = [q.reap().collected for _ in range(4)]
    assert left == [FEW, FEW, FEW, 1]
    assert staged(store) == set()
    assert head(store).gc_after == ""
    assert q.reap().collected == 0


@pytest.mark.usefixtures("few")
def test_names_that_are_referred_to_are_passed_by_and_not_looked_at_for_ever(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    for at in range(3 * FEW):
        q.enqueue(str(at) * 2_000)
    live = staged(store)
    assert len(live) == 3 * FEW
    old = litter(store, FEW, born=head(store).seq)
    machine.advance(2 * HOUR)  # commits are marked once an hour
    q.enqueue("mark")
    grow_old(q, machine)
    seen = [q.reap().collected for _ in range(5)]
    assert sum(seen) == len(old)
    assert staged(store) == live


@pytest.mark.usefixtures("few")
def test_a_pass_asks_for_no_more_names_than_it_looks_at(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    litter(store, 5 * FEW)
    grow_old(q, machine)
    call = reaping(q)
    looked = 0
    while not call.over:
        request = call.next
        if isinstance(request, List) and request.prefix[len(ROOT) :] in garbage_collection.FOLDERS:
            looked += len(store.list(request).keys)
        call.step()
    assert looked == FEW


@pytest.mark.usefixtures("few")
def test_what_a_pass_that_died_left_is_collected_with_the_next_floor(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    litter(store, 2 * FEW)
    grow_old(q, machine)
    dying = reaping(Queue(store, "mail", machine=machine))
    dying.until(lambda request: isinstance(request, Delete) and "/bodies/" in request.keys[0])
    assert head(store).gc_after
    for _ in range(2):
        while head(store).gc_after:
            q.reap()
        grow_old(q, machine)
        q.reap()
    assert staged(store) == set()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(6))
def test_passes_at_once_collect_all_garbage_and_nothing_else(
    store: MemoryStore, machine: Any, new_machine: Any, seed: int
) -> None:
    chance = new_machine(seed).chance
    q = Queue[Any](store, "mail", machine=machine)
    for at in range(FEW):
        q.enqueue(str(at) * 2_000)
    live = staged(store)
    litter(store, 3 * FEW, born=1)
    grow_old(q, machine)
    for _ in range(5):
        calls = [reaping(Queue(store, "mail", machine=machine)) for _ in range(2)]
        while going := [call for call in calls if not call.over]:
            chance.choice(going).step()
        assert [call.error for call in calls] == [None, None]
        assert live <= staged(store)
    machine.advance(2 * DAY)
    q.enqueue("and now")
    machine.advance(2 * DAY)
    q.enqueue("and then")
    for _ in range(10):
        q.reap()
    assert staged(store) == live


@pytest.mark.parametrize("old", [True, False])
def test_tables_are_read_for_the_bodies_they_name_only_where_there_are_old_bodies(
    q: Queue[Any], store: MemoryStore, machine: Any, old: bool
) -> None:
    if old:
        store.put(Put(ROOT + staged_name("bodies", 0, 1), b"garbage"))
    store.put(Put(ROOT + staged_name("segments", 0, 1), b"garbage"))
    grow_old(q, machine)
    done(q, 1, result="x" * 2_000, result_ttl=DAY)
    q._run(_swept())
    read = []
    call = Call(q, garbage_collection.collect("mail", 0, head(store)))
    while not call.over:
        read.append(call.step())
    assert call.answer == 1 + old
    assert old == any(isinstance(each, Get) and "/finished/" in each.key for each in read)


def _swept() -> Any:
    return (yield Submit(0, (RunTimers(flush=True),)))


def test_nothing_is_deleted_when_the_head_is_gone_by_the_time_it_is_read(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    litter(store, 3)
    grow_old(q, machine)
    before = staged(store)
    call = Call(q, garbage_collection.collect("mail", 0, head(store)))
    call.until(lambda request: isinstance(request, PutIfMatch)).step()
    store.delete(Delete((HEAD,)))
    assert call.finish() == 0
    assert staged(store) == before


def test_what_only_a_backup_of_the_last_day_names_is_spared(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue("x" * 2_000)
    (body,) = staged(store)
    grow_old(q, machine)
    q._run(backups.save("mail", 0, machine.now_ms()))
    for lease in q.claim(3):
        lease.complete()
    assert q._run(garbage_collection.collect("mail", 0, head(store))) == 0
    assert body in staged(store)
    for _ in range(2 * 24):  # by then there are younger copies
        machine.advance(HOUR)
        q.enqueue("mark")
        q.reap()
    assert body not in staged(store)


def with_an_old_table(q: Queue[Any], store: MemoryStore, machine: Any) -> str:
    """A table that names a body, which is old, as is some garbage."""
    done(q, 1, result="x" * 2_000, result_ttl=10 * DAY)
    q._run(_swept())
    litter(store, 3)
    grow_old(q, machine)
    (table,) = head(store).tables
    return table.name


def test_what_is_referred_to_is_looked_up_again_when_a_table_was_merged_meanwhile(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    old = with_an_old_table(q, store, machine)
    call = Call(q, garbage_collection.collect("mail", 0, head(store)))
    call.until(lambda request: isinstance(request, Get) and request.key == ROOT + old)
    Queue[Any](store, "mail", machine=machine).reap()
    assert old not in staged(store)
    assert call.finish() == 3
    (table,) = head(store).tables
    (body,) = [name for name in staged(store) if name != table.name]
    assert body.startswith("bodies/")


def test_a_lost_table_is_told_and_what_it_may_name_is_spared(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    old = with_an_old_table(q, store, machine)
    store.delete(Delete((ROOT + old,)))
    bodies = {name for name in staged(store) if name.startswith("bodies/")}
    with pytest.raises(Unavailable, match=old):
        q._run(garbage_collection.collect("mail", 0, head(store)))
    assert staged(store) == bodies


def test_of_a_head_that_never_stands_still_only_what_is_certain_is_collected(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    old = with_an_old_table(q, store, machine)
    store.delete(Delete((ROOT + old,)))
    bodies = {name for name in staged(store) if name.startswith("bodies/")}
    call = Call(q, garbage_collection.collect("mail", 0, head(store)))
    other = Queue[Any](store, "mail", machine=machine)
    while not call.over:
        if isinstance(call.next, Get) and call.next.key == ROOT + old:
            other.enqueue("the head moves on")
        call.step()
    assert call.error is None
    assert staged(store) == bodies
