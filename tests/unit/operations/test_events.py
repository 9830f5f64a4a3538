"""Reading recorded events: what it costs, what listeners do to heads, and shards that come while somebody listens."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Damaged, Expired, Queue, limits
from osqueue.commit.effects import AwaitNews, Submit
from osqueue.core.encoding import decode_head, encode_head
from osqueue.core.event_log import encode_events, object_of, rows_of
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings, RecordEvents
from osqueue.core.state import State
from osqueue.objects.layout import root_of
from osqueue.stores.base import Delete, Found, Get, List, Put
from osqueue.stores.memory import MemoryStore
from tests.support.shard import Shard


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def head(store: MemoryStore, shard: int = 0) -> State:
    found = store.perform(Get(root_of("mail", shard) + "head"))
    assert isinstance(found, Found)
    return decode_head(found.body)


def test_a_look_is_one_conditional_read_and_no_commit(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue(1)
    reader = q._flows.event_reader(0)
    q._run(reader.page())
    seq, before = head(store).seq, dict(q.requests)
    for _ in range(5):
        assert q._run(reader.page()) == []
    assert q.requests["get"] - before["get"] == 5
    assert {name: q.requests[name] - before[name] for name in ("put", "list")} == {"put": 0, "list": 0}
    assert head(store).seq == seq


def test_a_listener_reads_only_heads_that_outlast_a_power_cut(q: Queue[Any], store: MemoryStore) -> None:
    q.enqueue(1)
    reads: list[Get] = []
    perform = store.perform

    def watched(request: Any) -> Any:
        reads.extend([request] if isinstance(request, Get) else [])
        return perform(request)

    reader = q._flows.event_reader(0)
    store.perform = watched  # type: ignore[method-assign]
    q._run(reader.page())
    heads = [read for read in reads if read.key == root_of("mail", 0) + "head"]
    assert [read.flushed for read in heads[-1:]] == [True]


def test_a_listener_asks_again_once_an_hour(q: Queue[Any], store: MemoryStore, machine: Any) -> None:
    reader = q._flows.event_reader()
    q._run(reader.page())
    until = head(store).log.until_ms
    machine.advance(59 * 60)
    q._run(reader.page())
    assert head(store).log.until_ms == until
    machine.advance(120)
    q._run(reader.page())
    assert head(store).log.until_ms == until + 61 * limits.MINUTE_MS


def test_a_listener_that_pauses_until_its_recording_has_ended_reads_what_was_recorded(
    q: Queue[Any], store: MemoryStore, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = q._flows.event_reader()
    q._run(reader.page())
    q.enqueue(1)
    machine.advance(2 * 3_600)
    group = q._group(0)
    submit = group.submit

    def then_pause(*args: Any) -> Any:
        monkeypatch.setattr(group, "submit", submit)
        answer = submit(*args)
        machine.advance(2 * limits.DAY_MS / 1000)
        Queue[Any](store, "mail", machine=machine).enqueue(2)
        assert head(store).log.until_ms == 0
        return answer

    monkeypatch.setattr(group, "submit", then_pause)
    assert [event.name for event in q._run(reader.page())] == ["queued"]
    with pytest.raises(Expired):
        q._run(reader.page())


def test_no_listener_no_requests(q: Queue[Any], store: MemoryStore) -> None:
    """Nothing of it is stored, beside the head or in it."""
    for _ in range(20):
        q.enqueue("x" * 500, kind="k")
    assert not [key for key in store.perform(List("")).keys if "/events/" in key]  # type: ignore[union-attr]
    assert head(store).log.until_ms == 0


def test_a_shard_that_comes_while_somebody_listens_records_from_its_first_commit(
    q: Queue[Any], store: MemoryStore
) -> None:
    reader = q._flows.event_reader()
    q._run(reader.begin())
    Queue[Any](store, "mail").configure(shards=3)
    assert [head(store, shard).log.until_ms > 0 for shard in range(3)] == [True] * 3
    other: Queue[Any] = Queue(store, "mail")
    for at in range(9):
        other.enqueue(at)
    assert len(q._run(reader.page())) == 9


def test_shards_that_record_nothing_are_refused_where_somebody_has_begun_to_listen() -> None:
    shard = Shard()
    shard.enqueue()
    shard.apply(RecordEvents())
    assert shard.apply(ChangeSettings(shards=2))[0].code == Code.RETRY
    assert shard.state.settings.shards == 1
    assert shard.apply(ChangeSettings(shards=2, recorded=True))[0].code == Code.OK
    assert shard.state.settings.shards == 2
    assert shard.apply(ChangeSettings(shards=2, paused=True))[0].code == Code.OK  # none comes new


def test_a_listener_that_begins_while_shards_are_made_misses_nothing(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    """It asks between the two commits of another one's configure: that one begins again."""
    q.enqueue(1)
    other: Queue[Any] = Queue(store, "mail", machine=machine)
    submit = other._group(1).submit
    reader = q._flows.event_reader()

    def interrupted(*arguments: Any) -> Any:
        done = submit(*arguments)
        other._group(1).submit = submit  # type: ignore[method-assign]
        q._run(reader.begin())
        return done

    other._group(1).submit = interrupted  # type: ignore[method-assign]
    other.configure(shards=2)
    assert [head(store, shard).log.until_ms > 0 for shard in range(2)] == [True, True]
    for at in range(4):
        other.enqueue(at)
    assert len(q._run(reader.page())) == 4


def test_a_head_that_is_gone_is_an_error_and_no_new_queue(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue(1)
    store.perform(Delete((root_of("mail", 0) + "head",)))
    with pytest.raises(Damaged, match="shard 0 has no head"):
        q.events(wait=0)
    assert isinstance(store.perform(Get("queues/mail")), Found)


class Looks:
    """How often a waiting listener looks, and what the clock says after a while of virtual time."""

    def __init__(self, q: Queue[Any], reader: Any, machine: Any, seconds: float) -> None:
        self.steps = 0
        flow = reader.page(wait=seconds)
        reply: Any = None
        before = machine.monotonic()
        while machine.monotonic() - before < seconds and self.steps < 500:
            try:
                effect = flow.send(reply)
            except StopIteration:
                return
            reply = None
            if isinstance(effect, AwaitNews):
                self.steps += 1
                machine.advance(effect.seconds + 0.001)
            elif isinstance(effect, Submit):
                reply = q._group(effect.shard).submit(effect.ops, machine.monotonic() + 5, effect.look)
            else:
                reply = q._driver.perform(effect)


def test_a_listener_waits_although_others_have_added_shards(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue(1)
    reader = q._flows.event_reader()
    q._run(reader.page())
    Queue[Any](store, "mail", machine=machine).configure(shards=4)
    q._run(reader.page())
    assert Looks(q, reader, machine, 5).steps < 100


def test_a_listener_waits_after_its_queue_was_made_anew(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    q.enqueue(1)
    reader = q._flows.event_reader()
    q._run(reader.page())
    place = root_of("mail", 0) + "head"
    state = head(store)
    store.perform(Put(place, encode_head(replace(state, epoch=state.epoch ^ 1, seq=state.seq + 10))))
    with pytest.raises(Expired, match="restored or made anew"):
        q._run(reader.page())
    again = q._flows.event_reader()
    q._run(again.page())
    assert Looks(q, again, machine, 5).steps < 100


def test_a_removed_queue_is_not_made_anew_by_its_listener(q: Queue[Any], store: MemoryStore) -> None:
    q.enqueue(1)
    reader = q._flows.event_reader()
    q._run(reader.page())
    cursor = reader.cursor
    store.perform(Delete(tuple(store.perform(List("")).keys)))  # type: ignore[union-attr]
    with pytest.raises(Expired, match="the queue was removed"):
        q._run(reader.page())
    with pytest.raises(Expired, match="the queue was removed"):
        Queue[Any](store, "mail").events(cursor)
    assert store.perform(List("")).keys == ()  # type: ignore[union-attr]


def test_of_two_objects_that_tell_of_one_transition_the_younger_is_read(
    q: Queue[Any], store: MemoryStore
) -> None:
    """The older one was written for a commit that was lost, and a purge did not find it."""
    reader = q._flows.event_reader()
    q._run(reader.begin())
    q.enqueue_many([{"payload": at, "id": f"id {at}"} for at in range(300)])
    q.enqueue("spills them")
    keys = store.perform(List("")).keys  # type: ignore[union-attr]
    (key,) = [each for each in keys if "/events/" in each]
    found = store.perform(Get(key))
    assert isinstance(found, Found)
    name = object_of(key.removeprefix(root_of("mail", 0)))
    assert name is not None
    blank = [replace(row, client_id=None) for row in rows_of(found.body, key)]
    younger = key.replace(f"{name.born:012x}-", f"{name.born + 1:012x}-")
    store.perform(Put(younger, encode_events(blank)))
    assert [each.id for each in q._run(reader.page())][:300] == [None] * 300


def test_a_cursor_that_knows_no_later_shard_is_refused_once_the_beginning_of_that_shard_is_gone(
    q: Queue[Any], store: MemoryStore
) -> None:
    q.enqueue(1)
    reader = q._flows.event_reader()
    q._run(reader.begin())
    cursor = reader.cursor
    q.configure(shards=2)
    for _ in range(8):
        q.enqueue_many([{"payload": at} for at in range(600)])
    assert sum(1 for _ in q.events(cursor, wait=0)) == 4_800
    root = root_of("mail", 1)
    keys = [key for key in store.perform(List(root)).keys if "/events/" in key]  # type: ignore[union-attr]
    assert len(keys) > 1
    store.perform(Delete(tuple(keys[:1])))
    with pytest.raises(Expired, match="kept for a day"):
        list(q.events(cursor, wait=0))
