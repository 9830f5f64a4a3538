"""Callers that count in one object: nothing is lost in a store that compares, and what another one loses is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from osqueue.clock import MACHINE
from osqueue.errors import Unavailable
from osqueue.maintenance import store_races
from osqueue.maintenance.store_probes import OK, TROUBLE, WARNING
from osqueue.maintenance.store_races import count_up, races
from osqueue.stores.address import open_store
from osqueue.stores.base import Get, List, Put, PutIfAbsent, PutIfMatch, Refused, Written
from osqueue.stores.memory import MemoryStore


class Counts(MemoryStore):
    """Writes every second replacement, and says ``Written`` of all."""

    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        reply = super().put_if_match(request)
        if isinstance(reply, Written) and self._writes % 2:
            return self.put(Put(request.key, b"%d" % (int(request.body) - 1)))
        return reply


def test_threads_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    address = f"memory://{tmp_path}"
    store = open_store(address)
    (found,) = races(address, store, MACHINE)  # no other process can open it
    assert (found.level, found.check) == (OK, "store: threads")
    assert "made 20 writes" in found.found
    assert store.list(List("")).keys == ()


def test_a_write_that_is_lost_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counts()
    monkeypatch.setattr(store_races, "open_store", lambda _: store)
    (found,) = races("memory://", store, MACHINE)
    assert found.level == TROUBLE
    assert found.remedy


def test_a_store_that_fails_meanwhile_is_no_loss(tmp_path: Path) -> None:
    address = f"memory://{tmp_path}?error_rate=1"
    (found,) = races(address, open_store(f"memory://{tmp_path}"), MACHINE)
    assert (found.level, found.found.partition(":")[0]) == (WARNING, "injected error")


def test_who_never_succeeds_does_not_try_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class NeverMatches(MemoryStore):
        def put_if_match(self, request: PutIfMatch) -> Written | Refused:
            return Refused()

    monkeypatch.setattr(store_races, "REFUSED_MAX", 10)
    store = NeverMatches()
    store.perform(PutIfAbsent("counter", b"0"))
    with pytest.raises(Unavailable, match="never the current one"):
        count_up(store, "counter", 1)


def test_what_is_counted_is_what_was_asked_for() -> None:
    store = MemoryStore()
    store.perform(PutIfAbsent("counter", b"7"))
    count_up(store, "counter", 5)
    found = store.get(Get("counter"))
    assert getattr(found, "body", None) == b"12"
