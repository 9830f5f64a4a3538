"""Damaged, missing and newer objects in the store: a clear error, and the store is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Damaged, NewerFormat, NotFound, OsqueueError, Queue, Unavailable
from osqueue.core.encoding import Footer, decode_footer
from osqueue.core.intents import intents_prefix
from osqueue.objects.layout import root_of
from osqueue.stores.base import Delete, Get, List, Put
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited

ROOT = root_of("mail", 0)
SMALL = {"READY_BYTES_MAX": 600, "TAIL_BYTES_MAX": 500, "DELAYED_BYTES_MAX": 600}


class Shop:
    """A store with a queue in it, and its content as plain bytes."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.store = MemoryStore(machine)

    def queue(self, **options: Any) -> Queue[Any]:
        return Queue(self.store, "mail", machine=self.machine, **options)

    def names(self, prefix: str = "") -> list[str]:
        return list(self.store.perform(List(prefix)).keys)  # type: ignore[union-attr]

    def read(self, key: str) -> bytes:
        return self.store.perform(Get(key)).body  # type: ignore[union-attr]

    def write(self, key: str, data: bytes) -> None:
        self.store.perform(Put(key, data))

    def everything(self) -> dict[str, bytes]:
        return {key: self.read(key) for key in self.names()}

    def head(self) -> dict[str, bytes]:
        """What must not change: the head, and every object it may refer to."""
        return {key: data for key, data in self.everything().items() if not key.startswith("intents/")}


@pytest.fixture
def shop(machine: Any) -> Shop:
    return Shop(machine)


CALLS: dict[str, Callable[[Queue[Any]], Any]] = {
    "enqueue": lambda q: q.enqueue(1),
    "claim": lambda q: q.claim(),
    "stats": lambda q: q.stats(),
    "jobs": lambda q: q.jobs(),
    "pause": lambda q: q.pause(),
    "reap": lambda q: q.reap(),
    "redrive": lambda q: q.redrive(),
}


def turned(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def newer(data: bytes) -> bytes:
    return data[:20] + (9).to_bytes(2, "big") + data[22:]


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("spoil", "error"),
    [(turned, Damaged), (lambda d: d[:-3], Damaged), (lambda d: b"", Damaged), (newer, NewerFormat)],
    ids=["turned", "cut", "emptied", "newer"],
)
def test_a_head_that_cannot_be_read_is_left_alone(
    shop: Shop, spoil: Any, error: type[OsqueueError], call: Any, warm: bool
) -> None:
    q = shop.queue()
    q.enqueue(1)
    good = shop.read(ROOT + "head")
    shop.write(ROOT + "head", spoil(good))
    before = shop.head()
    with pytest.raises(error, match=r"head.*(operations|Upgrade)") as caught:
        call(q if warm else shop.queue())
    assert caught.value.code in ("damaged", "newer_format")
    assert shop.head() == before
    shop.write(ROOT + "head", good)  # restored: the same objects go on
    assert [lease.payload for lease in (q if warm else shop.queue()).claim()] == [1]


@pytest.fixture
def deep(shop: Shop) -> Any:
    """A queue with jobs in segments."""
    with limited(SMALL):
        q = shop.queue()
        for at in range(10):
            q.enqueue_many([{"payload": at * 10 + each} for each in range(10)])
        yield shop


def drain(q: Queue[Any]) -> list[Any]:
    found = []
    while leases := q.claim(10):
        found.extend(lease.payload for lease in leases)
        q.complete_many(leases)
    return found


@pytest.mark.parametrize("how", ["turned", "cut", "missing", "newer"])
def test_a_segment_that_cannot_be_read_stops_the_claim_and_loses_nothing(deep: Shop, how: str) -> None:
    q = deep.queue()
    key = deep.names(ROOT + "segments/")[0]
    good = deep.read(key)
    if how == "missing":
        deep.store.perform(Delete((key,)))
    else:
        first = bytes([*good[:4], 0, 9, *good[6:]])
        deep.write(
            key,
            {"turned": good[:40] + bytes([good[40] ^ 1]) + good[41:], "cut": good[:50], "newer": first}[how],
        )
    found: list[Any] = []

    def take_all() -> None:
        while leases := q.claim(1):
            found.extend(lease.payload for lease in leases)
            q.complete_many(leases)

    with pytest.raises(Damaged, match="missing, damaged or of a newer format") as caught:
        take_all()
    assert "docs/operations.md" in caught.value.message
    assert found == list(range(len(found)))
    before = deep.head()
    with pytest.raises(Damaged):
        deep.queue().claim()
    assert deep.head() == before
    assert q.enqueue("new ones are still taken").status == "queued"
    deep.write(key, good)
    assert found + drain(q) == [*range(100), "new ones are still taken"]


@pytest.mark.parametrize("how", ["turned", "newer"])
def test_jobs_in_front_of_a_damaged_block_are_handed_out_however_many_are_asked_for(
    shop: Shop, how: str
) -> None:
    shop.queue().enqueue_many([{"payload": str(at) * 100} for at in range(2000)])
    key = max(shop.names(ROOT + "segments/"), key=lambda name: len(shop.read(name)))
    good = shop.read(key)
    footer = decode_footer(good, key)
    assert isinstance(footer, Footer)
    bad = footer.blocks[3]
    at = bad.offset + (5 if how == "newer" else 100)  # its format, or its content
    shop.write(key, good[:at] + bytes([good[at] ^ 8]) + good[at + 1 :])
    in_front = sum(each.count for each in footer.blocks[:3])
    assert footer.blocks[4:]
    q = shop.queue()
    leases = q.claim(limit=1000)
    assert [lease.payload for lease in leases] == [str(at) * 100 for at in range(in_front)]
    with pytest.raises(Damaged):
        q.claim(limit=1000)
    shop.write(key, good)
    assert shop.queue().claim(limit=1000)[0].payload == str(in_front) * 100


@pytest.mark.parametrize("how", ["cut", "missing"])
def test_a_segment_that_cannot_be_read_is_never_rewritten(deep: Shop, how: str) -> None:
    q = deep.queue()
    jobs, _ = q.jobs("queued", limit=100)
    with limited({"TOMBSTONES_MAX": 1}):
        inside = [job.job_id for job in jobs if q.status(job.job_id) is not None][30:34]
        assert q.cancel(inside[0]) == "cancelled"
        keys = deep.names(ROOT + "segments/")
        spoiled = {key: deep.read(key) for key in keys}
        for key in keys:
            deep.write(key, spoiled[key][:100]) if how == "cut" else deep.store.perform(Delete((key,)))
        with pytest.raises((Damaged, Unavailable)):
            q.cancel(inside[1])
        for key, data in spoiled.items():
            deep.write(key, data)
        assert q.cancel(inside[1]) == "cancelled"
    assert len(drain(q)) == 98


@pytest.mark.parametrize("how", ["cut", "missing", "changed"])
def test_a_payload_that_is_not_there_is_told_and_the_job_is_not_lost(shop: Shop, how: str) -> None:
    q = shop.queue()
    done = q.enqueue("x" * 5_000)
    (key,) = shop.names(ROOT + "bodies/")
    good = shop.read(key)
    if how == "missing":
        shop.store.perform(Delete((key,)))
    else:
        shop.write(key, good[:100] if how == "cut" else good.replace(b"xx", b"xy", 1))
    q.enqueue("small")
    large, small = q.claim(2)
    with pytest.raises((Damaged, NotFound), match="bodies/"):
        _ = large.payload
    assert small.payload == "small"
    small.complete()
    assert q.status(done.job_id).state == "processing"  # type: ignore[union-attr, arg-type]
    shop.write(key, good)
    shop.machine.advance(31)
    assert q.claim()[0].payload == "x" * 5_000


@pytest.mark.parametrize("how", ["missing", "turned"])
def test_a_delayed_segment_that_cannot_be_read_stops_nobody_else(shop: Shop, how: str) -> None:
    q = shop.queue()
    q.enqueue("now")
    (lease,) = q.claim()
    q.enqueue_many([{"payload": at, "delay": 60} for at in range(1_500)])
    (key,) = shop.names(ROOT + "segments/")
    good = shop.read(key)
    if how == "missing":
        shop.store.perform(Delete((key,)))
    else:
        shop.write(key, good[:40] + bytes([good[40] ^ 1]) + good[41:])
    for _ in range(3):
        shop.machine.advance(25)
        lease.heartbeat()
    lease.complete()
    q.enqueue("later")
    assert [each.payload for each in q.claim(10)] == ["later"]
    assert q.stats()["scheduled"] == 1_500
    shop.write(key, good)
    assert len(shop.queue().claim(1_000)) > 0


def test_announcements_that_cannot_be_read_are_left_for_those_who_can(shop: Shop) -> None:
    q = shop.queue()
    q.enqueue(1)
    strange = [
        "000000000001.00000000000000aa.1.00000000000000bb.7.2.AAAA",
        "000000000001.00000000000000aa.1.00000000000000bb.1.1.",
        "README",
    ]
    for name in strange:
        shop.write(intents_prefix(ROOT) + name, b"\x00 written by a later release")
    q.reap()
    assert q.enqueue(2).status == "queued"
    left = [key.removeprefix(intents_prefix(ROOT)) for key in shop.names(intents_prefix(ROOT))]
    assert strange[0] in left
    assert strange[2] in left


def test_foreign_objects_beside_the_segments_do_not_stop_the_collector(shop: Shop) -> None:
    q = shop.queue()
    q.enqueue(1)
    shop.write(ROOT + "segments/README", b"hello")
    shop.write(ROOT + "bodies/notes.txt", b"hello")
    for _ in range(30):
        shop.machine.advance(3_600)
        q.enqueue(1)
        q.reap()
    assert shop.read(ROOT + "segments/README") == b"hello"
    assert shop.read(ROOT + "bodies/notes.txt") == b"hello"
