"""Entries of ids that stand for nothing, or cannot be read: swept safely, told, repaired."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Damaged, Queue, limits
from osqueue.core.turns import SLICES, turn_of
from osqueue.errors import Throttled, Unavailable
from osqueue.maintenance import orphan_ids
from osqueue.model.keys import key_of
from osqueue.objects import id_index
from osqueue.stores.base import Delete, Found, Get, List, Listed, Put, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from simulation.tight import limited
from tests.support.clinic import HEAD, Clinic
from tests.support.scene import HOUR, ROOT, done, head, names
from tests.support.stepping import LOST, Call, interleave, writes

PLACE = id_index.entry_key("mail", "a")
DAY = limits.DAY_MS / 1000


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def opened(machine: Any, store: MemoryStore) -> Callable[..., Queue[Any]]:
    return lambda front=None: Queue(front or store, "mail", machine=machine)


@pytest.fixture
def q(opened: Any) -> Queue[Any]:
    q = opened()
    q.enqueue("before")
    q.claim()[0].complete()
    return q  # type: ignore[no-any-return]


def left_behind(opened: Any) -> Call:
    """A caller that created the entry of "a", and stands still before it hears so."""
    q = opened()
    q.claim(kinds=["none"])
    call = Call(q, q._enqueue("creator", id="a"))
    call.lose()
    return call


def sweeping(q: Queue[Any], machine: Any) -> Call:
    """The sweep of the hour whose turn the entry of "a" is."""
    q.claim(kinds=["none"])
    turn = int(PLACE.rpartition("/")[2][:8], 16) * SLICES >> 32
    hours = (machine.time_ms + later * limits.HOUR_MS for later in range(SLICES + 1))
    return Call(q, orphan_ids.sweep("mail", next(at for at in hours if turn_of(at) == turn)))


def entry(store: MemoryStore) -> id_index.IdEntry | None:
    found = store.get(Get(PLACE))
    return id_index.entry_of(found, PLACE) if isinstance(found, Found) else None


def live(q: Queue[Any]) -> list[Any]:
    return [lease.payload for lease in q.claim(100)]


# ── Sweeping ─────────────────────────────────────────────────────────────────
def refuse(q: Queue[Any], count: int) -> None:
    """Calls that wrote the entry of their id, and were refused then."""
    for at in range(count):
        with limited({"DELAYED_SPANS_MAX": 0}), pytest.raises(Throttled):
            q.enqueue(at, id=f"refused{at}", delay=60)


def test_an_entry_that_stands_for_nothing_is_removed_a_day_after_it_was_written(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    left_behind(opened)
    assert sweeping(opened(), machine).finish() == 0  # its turn comes before the day is over
    assert entry(store) is not None
    machine.advance(DAY)
    assert sweeping(opened(), machine).finish() == 1
    assert entry(store) is None


def test_passes_of_a_day_come_to_every_entry(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    for at in range(40):
        q.enqueue(at, id=f"kept{at}")
    refuse(q, 30)
    assert len(names(store, id_index.FOLDER)) == 70
    freed = 0
    for _ in range(50):
        machine.advance(HOUR)
        freed += q.reap().freed
    assert freed == 30
    assert len(names(store, id_index.FOLDER)) == 40


def test_passes_that_come_once_a_day_come_to_every_entry(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    refuse(q, 30)
    for _ in range(SLICES + 2):
        machine.advance(DAY)
        q.reap()
    assert names(store, id_index.FOLDER) == []


def test_however_many_entries_there_are_each_has_its_day(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphan_ids, "SWEEP_MAX", 1)
    begins = set()
    for day in range(1_000):
        sweep = orphan_ids.sweep("mail", machine.time_ms + day * limits.DAY_MS)
        first = next(sweep)
        assert isinstance(first, List)
        again = sweep.send(Listed((first.after + "0",), more=True))
        assert isinstance(again, List)
        begins.add(again.after)
    assert len(begins) == 1_000


def test_an_entry_whose_job_is_there_is_not_touched(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    q.enqueue("live", id="a", delay=10 * DAY)
    before = entry(store)
    machine.advance(3 * DAY)
    assert sweeping(opened(), machine).finish() == 0
    assert entry(store) == before


def test_a_creator_that_was_frozen_for_a_day_begins_anew_and_is_known(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    creator = left_behind(opened)
    machine.advance(2 * DAY)
    assert sweeping(opened(), machine).finish() == 1
    made = creator.finish()
    assert made.status == "queued"
    assert entry(store).key == key_of(made.job_id)  # type: ignore[union-attr]
    again = q.enqueue("again", id="a")
    assert (again.status, again.job_id) == ("duplicate", made.job_id)
    assert live(q) == ["creator"]


@pytest.mark.parametrize("seed", range(60))
def test_however_a_sweep_and_callers_of_an_id_interleave_there_is_one_job(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any, seed: int
) -> None:
    creator = left_behind(opened)
    machine.advance(2 * DAY)
    helpers = []
    for at in range(2):
        each = opened()
        each.claim(kinds=["none"])
        helpers.append(Call(each, each._enqueue(f"helper{at}", id="a")))
    sweep = sweeping(opened(), machine)
    calls = [creator, *helpers, sweep]
    interleave(calls, random.Random(seed))
    told = [each.finish() for each in (creator, *helpers)]
    assert len({each.job_id for each in told}) == 1
    last = q.enqueue("last", id="a")
    assert (last.status, last.job_id) == ("duplicate", told[0].job_id)
    assert len(live(q)) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_sweep_that_died_anywhere_blocks_nobody(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any, lost: bool
) -> None:
    steps = 0
    over = False
    while not over:
        steps += 1
        machine.advance(2 * DAY)
        fresh = MemoryStore(machine)
        twin = Queue[Any](fresh, "mail", machine=machine)
        twin.enqueue("before")
        left_behind(lambda: Queue(fresh, "mail", machine=machine))  # noqa: B023
        machine.advance(2 * DAY)
        sweep = sweeping(Queue(fresh, "mail", machine=machine), machine)
        for _ in range(steps):
            if not sweep.over:
                sweep.step()
        over = sweep.over
        if lost and not over:
            sweep.lose()
        made = twin.enqueue("next", id="a")
        assert made.status == "queued"
        assert twin.enqueue("again", id="a").job_id == made.job_id


def test_a_helper_that_is_about_to_enqueue_under_a_swept_key_has_to_look_again(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    left_behind(opened)
    machine.advance(2 * DAY)
    each = opened()
    each.claim(kinds=["none"])
    helper = Call(each, each._enqueue("helper", id="a")).until(writes("/head"))
    assert sweeping(opened(), machine).finish() == 1
    other = q.enqueue("other", id="a")
    told = helper.finish()
    assert (told.status, told.job_id) == ("duplicate", other.job_id)
    assert live(q) == ["other"]


# ── What cannot be read ──────────────────────────────────────────────────────
def damage(store: MemoryStore, body: bytes = b"") -> None:
    store.put(Put(PLACE, body))


def test_an_id_whose_entry_is_damaged_is_told_with_its_remedy(q: Queue[Any], store: MemoryStore) -> None:
    q.enqueue(1, id="a")
    damage(store)
    for call in (lambda: q.enqueue(2, id="a"), lambda: q.purge("a"), lambda: q.status("a")):
        with pytest.raises(Damaged, match=r"'a'.*osqueue doctor ADDRESS mail --fix-ids"):
            call()


def test_an_item_whose_entry_is_damaged_fails_alone(q: Queue[Any], store: MemoryStore) -> None:
    damage(store)
    told = q.enqueue_many([{"payload": 1}, {"payload": 2, "id": "a"}, {"payload": 3, "id": "b"}])
    assert [each.status for each in told] == ["queued", "rejected", "queued"]
    assert isinstance(told[1].error, Damaged)
    assert live(q) == [1, 3]


def test_a_damaged_entry_keeps_no_row_from_being_forgotten(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    done(q, id="a")
    q.reap()
    damage(store)
    machine.advance(2 * DAY)
    with pytest.raises(Damaged):
        q.reap()
    assert head(store).tables == ()
    assert names(store, PLACE) == [PLACE]  # it was written after the job was over: it may stand for another


def test_a_damaged_entry_that_is_older_than_the_end_of_its_job_goes_with_it(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue(1, id="a")
    damage(store)
    machine.advance(60)
    q.claim()[0].complete()
    q.reap()
    machine.advance(2 * DAY)
    assert q.reap().freed == 1
    assert names(store, PLACE) == []
    assert q.enqueue(2, id="a").status == "queued"


def test_the_sweep_tells_of_entries_that_cannot_be_read(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    damage(store)
    with pytest.raises(Damaged, match="--fix-ids"):
        sweeping(opened(), machine).finish()


@pytest.mark.parametrize("where", ["head", "segment", "table", "dead", "nowhere"])
def test_the_doctor_finds_and_mends_damaged_entries(machine: Any, where: str) -> None:
    clinic = Clinic(machine)
    q = clinic.q
    made = q.enqueue(1, id="a")
    if where == "segment":
        q.enqueue_many([{"payload": "x" * 1000} for _ in range(900)])
    elif where == "table":
        q.claim()[0].complete("r")
        q.reap()
    elif where == "dead":
        q.claim()[0].fail("no", retry=False)
    elif where == "nowhere":
        q.purge(str(made.job_id))
    assert clinic.said()["ids"] == "ok"
    damage(clinic.store)
    assert clinic.said()["ids"] == "trouble"
    fixed = clinic.q._run(orphan_ids.fix("mail", [0]))
    assert clinic.said()["ids"] == "ok"
    if where == "nowhere":
        assert (fixed.restored, fixed.freed) == (0, 1)
        return
    assert (fixed.restored, fixed.freed, fixed.left) == (1, 0, ())
    assert entry(clinic.store).key == key_of(str(made.job_id))  # type: ignore[union-attr]


def test_an_entry_is_not_mended_from_rows_while_something_cannot_be_read(machine: Any) -> None:
    clinic = Clinic(machine)
    done(clinic.q, id="a")
    clinic.q.reap()
    damage(clinic.store)
    clinic.store.delete(Delete((ROOT + head(clinic.store).tables[0].name,)))
    assert clinic.q._run(orphan_ids.fix("mail", [0])).left == (PLACE,)


@pytest.mark.parametrize("backed_up", [True, False], ids=["lost", "never there"])
def test_an_entry_is_not_freed_while_a_head_is_lost(machine: Any, backed_up: bool) -> None:
    clinic = Clinic(machine)
    clinic.q.enqueue(1, id="a")
    if backed_up:
        machine.advance(3_600)
        assert clinic.q.reap().saved == 1
    clinic.remove(HEAD)
    damage(clinic.store)
    fixed = clinic.q._run(orphan_ids.fix("mail", [0]))
    assert (fixed.freed, fixed.left) == ((0, (PLACE,)) if backed_up else (1, ()))


def test_the_doctor_tells_of_entries_that_stand_for_nothing(
    q: Queue[Any], opened: Any, store: MemoryStore, machine: Any
) -> None:
    left_behind(opened)
    machine.advance(3 * DAY)
    (finding,) = Call(q, orphan_ids.examine("mail", machine.time_ms, False)).finish()
    assert (finding.level, finding.check) == ("warning", "ids")


# ── Parts of a call ──────────────────────────────────────────────────────────
class Failing(WrappedStore):
    """A store that goes down when it is told."""

    down = False

    def perform(self, request: StoreRequest) -> StoreReply:
        return LOST if self.down and not isinstance(request, Get) else self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def test_what_was_committed_before_the_store_went_down_is_answered(
    opened: Any, store: MemoryStore, monkeypatch: Any
) -> None:
    monkeypatch.setattr(limits, "ITEMS_PER_REQUEST_MAX", 10)
    front = Failing(store)
    q = opened(front)
    items = [{"payload": at, "id": f"id{at}"} for at in range(25)]
    call = Call(q, q._enqueue_many(items))
    call.until(writes(id_index.entry_key("mail", "id10")))
    front.down = True
    told = call.finish()
    assert [each.status for each in told] == ["queued"] * 10 + ["rejected"] * 15
    assert all(isinstance(each.error, Unavailable) for each in told[10:])
    front.down = False
    again = q.enqueue_many(items)
    assert [each.status for each in again] == ["duplicate"] * 10 + ["queued"] * 15


def test_a_call_of_which_nothing_arrives_is_raised(opened: Any, store: MemoryStore) -> None:
    front = Failing(store)
    q = opened(front)
    q.enqueue("before")
    front.down = True
    with pytest.raises(Unavailable):
        q.enqueue_many([{"payload": 1, "id": "a"}, {"payload": 2, "id": "b"}])


def test_a_lookup_that_meets_a_missing_table_fails_its_item_alone(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    done(q, id="a")
    q.reap()
    store.delete(Delete(tuple(ROOT + each.name for each in head(store).tables)))
    before = q.requests["get"]
    told = q.enqueue_many([{"payload": 1}, {"payload": 2, "id": "a"}])
    assert [each.status for each in told] == ["queued", "rejected"]
    assert "osqueue doctor" in told[1].error.message  # type: ignore[union-attr]
    assert q.requests["get"] - before < 10
