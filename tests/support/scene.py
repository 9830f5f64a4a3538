"""Scenes for tests of what becomes of finished jobs: jobs that are done, and what the store then holds."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from osqueue.clock import Machine
from osqueue.core.archive_record import ArchiveRecord, decode_part
from osqueue.core.encoding import decode_head
from osqueue.core.state import State
from osqueue.objects import archive
from osqueue.objects.layout import root_of
from osqueue.stores.base import Get, List
from osqueue.stores.memory import MemoryStore
from tests.support.stepping import Call

ROOT = root_of("mail", 0)
HEAD = ROOT + "head"
HOUR = 3_600  # seconds


def done(q: Queue[Any], count: int = 1, result: Any = "r", **options: Any) -> list[str]:
    """Jobs that are completed; their ids."""
    items = [{"payload": at, **options} for at in range(count)]
    found = [str(each.job_id) for each in q.enqueue_many(items)]
    for lease in q.claim(count):
        lease.complete(result)
    return found


def head(store: MemoryStore) -> State:
    return decode_head(store.get(Get(HEAD)).body)  # type: ignore[union-attr]


def names(store: MemoryStore, prefix: str) -> list[str]:
    return list(store.list(List(prefix)).keys)


def parts(store: MemoryStore) -> dict[str, list[ArchiveRecord]]:
    """What the archive holds, by part."""
    return {
        name: decode_part(store.get(Get(name)).body, name)  # type: ignore[union-attr]
        for name in names(store, archive.ROOT)
    }


def told(store: MemoryStore) -> list[tuple[str, int]]:
    """Every record of the archive, repeated ones too."""
    return sorted((each.job_id, each.run) for records in parts(store).values() for each in records)


def reaping(q: Queue[Any]) -> Call:
    return Call(q, q._reap())


def clone(store: MemoryStore, machine: Machine) -> MemoryStore:
    twin = MemoryStore(machine)
    twin._objects, twin._keys, twin._writes = dict(store._objects), list(store._keys), store._writes
    return twin
