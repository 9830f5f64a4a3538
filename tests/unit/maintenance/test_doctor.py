"""The doctor's checks, one by one: a sound store and queue are fine, and everything that is wrong is told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue.commit.driver import BlockingDriver
from osqueue.core.encoding import decode_head
from osqueue.core.intents import intent_body, intent_key, intents_prefix
from osqueue.core.ops import Request as Announced
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.settings import KindSettings
from osqueue.errors import Rejected
from osqueue.maintenance import doctor as checks
from osqueue.maintenance.store_probes import OK, TROUBLE, WARNING, StoreProbes, measure, worst
from osqueue.model.worker import WorkerEntry
from osqueue.objects.worker_registry import folder_of
from osqueue.stores.base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Get,
    List,
    Listed,
    Put,
    PutIfAbsent,
    PutIfMatch,
    StoreReply,
    StoreRequest,
    Written,
)
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.clinic import HEAD, HOUR, ROOT, SMALL, Careless, Clinic, forbids


def ignores_if_match(request: StoreRequest) -> StoreRequest:
    return Put(request.key, request.body) if isinstance(request, PutIfMatch) else request


def ignores_if_none_match(request: StoreRequest) -> StoreRequest:
    return Put(request.key, request.body) if isinstance(request, PutIfAbsent) else request


def ignores_the_version_of_a_delete(request: StoreRequest) -> StoreRequest:
    return Delete((request.key,)) if isinstance(request, DeleteIfMatch) else request


def ignores_ranges(request: StoreRequest) -> StoreRequest:
    return Get(request.key, request.unless) if isinstance(request, Get) else request


def ignores_the_version_of_a_get(request: StoreRequest) -> StoreRequest:
    return replace(request, unless=None) if isinstance(request, Get) else request


def lists_in_another_order(request: StoreRequest) -> StoreRequest | StoreReply:
    return Listed((), more=False) if isinstance(request, List) and request.after else request


def keeps_what_is_deleted(request: StoreRequest) -> StoreRequest | StoreReply:
    return Deleted() if isinstance(request, Delete) else request


@pytest.fixture
def clinic(machine: Any) -> Clinic:
    return Clinic(machine)


# ── The store ────────────────────────────────────────────────────────────────
def test_a_sound_store_is_fine_and_nothing_is_left_in_it(clinic: Clinic) -> None:
    before = clinic.names()
    found = clinic.probe()
    assert {each.level for each in found} == {OK}
    assert len(found) == 12
    assert clinic.names() == before


@pytest.mark.parametrize(
    ("how", "check", "word"),
    [
        (ignores_if_match, "store: compare-and-swap", "ignores If-Match"),
        (ignores_if_none_match, "store: create-only", "ignores If-None-Match"),
        (ignores_if_none_match, "store: race", "8 of 8 writers created one object"),
        (ignores_the_version_of_a_delete, "store: conditional delete", "deleted"),
        (ignores_ranges, "store: range", "not as it should be"),
        (keeps_what_is_deleted, "store: delete", "deleted"),
        (lists_in_another_order, "store: order", "page by page"),
        (forbids(PutIfAbsent), "store: create", "access denied"),
        (forbids(PutIfMatch), "store: compare-and-swap", "access denied"),
        (forbids(Get), "store: get", "access denied"),
        (forbids(List), "store: list", "access denied"),
        (forbids(Put), "store: put", "access denied"),
        (forbids(Delete), "store: delete", "access denied"),
    ],
)
def test_a_store_that_breaks_a_promise_is_trouble(clinic: Clinic, how: Any, check: str, word: str) -> None:
    (found,) = [each for each in clinic.probe(how) if each.level == TROUBLE and each.check == check]
    assert word in found.found
    assert found.remedy


def test_a_store_whose_versions_come_back_is_trouble(clinic: Clinic) -> None:
    class Forgetful(MemoryStore):
        def _write(self, key: str, body: bytes) -> Written:
            self._writes %= 2
            return super()._write(key, body)

    clinic.store = Forgetful(clinic.machine)
    (found,) = [each for each in clinic.probe() if each.level == TROUBLE]
    assert found.check == "store: versions"
    assert "came back" in found.found
    assert found.remedy


def test_a_place_that_can_never_hold_a_store_is_trouble_with_its_own_remedy(clinic: Clinic) -> None:
    unfit = Failed(Rejected("the folder is unfit: take another", field="address"))
    (found,) = [
        each
        for each in clinic.probe(lambda request: unfit if isinstance(request, PutIfAbsent) else request)
        if each.level == TROUBLE
    ]
    assert "take another" in found.found
    assert "s3:" not in found.remedy


@pytest.mark.parametrize(
    ("how", "check"),
    [
        (ignores_the_version_of_a_get, "store: conditional get"),
        (forbids(DeleteIfMatch), "store: conditional delete"),
    ],
)
def test_what_only_costs_more_is_a_warning(clinic: Clinic, how: Any, check: str) -> None:
    found = clinic.probe(how)
    assert [each.check for each in found if each.level == WARNING] == [check]
    assert worst(found) == WARNING


@pytest.mark.parametrize(("shift", "level"), [(0, OK), (5_000, OK), (5_001, WARNING), (-90_000, WARNING)])
def test_the_machine_is_compared_with_the_store(clinic: Clinic, shift: int, level: str) -> None:
    there = clinic.machine.now_ms()
    clinic.machine.time_ms += shift
    found = StoreProbes(clinic.machine, there).clock()
    assert found.level == level


def test_the_clock_of_a_store_is_measured_by_an_object_that_is_removed(clinic: Clinic) -> None:
    class Late(MemoryStore):
        def clock_ms(self) -> None:  # type: ignore[override]
            return None

    clinic.store = Late(clinic.machine)
    assert clinic.run(measure(clinic.machine)) == 0
    assert clinic.names() == []


# ── Queues ───────────────────────────────────────────────────────────────────
def test_a_sound_queue_is_fine_in_every_respect(clinic: Clinic) -> None:
    with limited(SMALL):
        for at in range(30):
            clinic.q.enqueue_many([{"payload": "x" * at * 80} for _ in range(10)])
        for lease in clinic.q.claim(20):
            lease.complete()
        clinic.q.reap()
        for deep in (False, True):
            assert set(clinic.said(deep).values()) == {OK}


def test_a_queue_that_was_never_used_is_fine(clinic: Clinic) -> None:
    assert clinic.said()["head"] == OK


@pytest.mark.parametrize("body", [b"", b"x" * 100])
def test_a_damaged_head_is_trouble_and_the_remedy_is_named(clinic: Clinic, body: bytes) -> None:
    clinic.q.enqueue(1)
    clinic.write(HEAD, body)
    (found,) = [each for each in clinic.examine() if each.level == TROUBLE]
    assert (found.check, found.queue, found.shard) == ("head", "mail", 0)
    assert "doctor ADDRESS mail --restore" in found.remedy


def test_a_missing_head_of_a_shard_that_was_in_use_is_trouble(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    clinic.remove(HEAD)
    assert clinic.said()["head"] == TROUBLE


def test_a_head_of_a_newer_release_is_not_called_damaged(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    good = clinic.read(HEAD)
    clinic.write(HEAD, good[:20] + (9).to_bytes(2, "big") + good[22:])
    (found,) = [each for each in clinic.examine() if each.level == TROUBLE]
    assert found.remedy == "Upgrade osqueue here."


def test_a_head_that_contradicts_itself_is_trouble(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.change(leases_bytes=7)
    assert clinic.said()["head"] == TROUBLE


@pytest.mark.parametrize(("ahead", "level"), [(60_000, OK), (60_001, TROUBLE)])
def test_a_head_far_ahead_of_the_store_is_trouble(clinic: Clinic, ahead: int, level: str) -> None:
    clinic.q.enqueue(1)
    clinic.change(now_ms=clinic.machine.now_ms() + ahead)
    assert clinic.said()["clock"] == level


def test_objects_that_are_missing_or_damaged_are_named(clinic: Clinic) -> None:
    with limited(SMALL):
        for _ in range(30):
            clinic.q.enqueue_many([{"payload": 1}] * 10)
        first, second, *_ = clinic.names(ROOT + "segments/")
        clinic.remove(first)
        clinic.write(second, clinic.read(second)[:-9])
        told = [each.found for each in clinic.examine() if each.level == TROUBLE]
        assert any(first.removeprefix(ROOT) in each and "is not there" in each for each in told)
        assert any(second.removeprefix(ROOT) in each for each in told)


@pytest.mark.parametrize("how", ["missing", "cut"])
def test_a_table_that_is_missing_or_cut_short_is_named(clinic: Clinic, how: str) -> None:
    clinic.q.enqueue(1)
    clinic.q.claim()[0].complete()
    clinic.q.reap()
    (name,) = clinic.names(ROOT + "finished/")
    clinic.remove(name) if how == "missing" else clinic.write(name, clinic.read(name)[:-30])
    told = [each.found for each in clinic.examine() if each.level == TROUBLE]
    assert any(name.removeprefix(ROOT) in each for each in told)


def test_only_a_deep_look_finds_a_byte_that_is_wrong_in_the_middle(clinic: Clinic) -> None:
    with limited(SMALL):
        clinic.q.enqueue_many([{"payload": at} for at in range(300)])
        key = next(name for name in clinic.names(ROOT + "segments/") if len(clinic.read(name)) > 200)
        good = clinic.read(key)
        clinic.write(key, good[:60] + bytes([good[60] ^ 1]) + good[61:])
        assert clinic.said()["objects"] == OK
        assert clinic.said(deep=True)["objects"] == TROUBLE


def test_a_payload_that_is_not_there_is_trouble(clinic: Clinic) -> None:
    clinic.q.enqueue("x" * 5_000)
    (key,) = clinic.names(ROOT + "bodies/")
    clinic.remove(key)
    assert clinic.said()["objects"] == TROUBLE
    assert clinic.said(deep=True)["payloads"] == TROUBLE


def test_a_deep_look_checks_payloads(clinic: Clinic) -> None:
    clinic.q.enqueue("x" * 5_000)
    (key,) = clinic.names(ROOT + "bodies/")
    clinic.write(key, clinic.read(key).replace(b"xx", b"xy", 1))
    assert clinic.said()["objects"] == OK
    assert clinic.said(deep=True)["payloads"] == TROUBLE


def test_orphans_are_counted_and_are_no_trouble(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.write(ROOT + "segments/000000000000-00000000000000aa-1", b"left by a writer that died")
    (found,) = [each for each in clinic.examine() if each.check == "orphans"]
    assert (found.level, found.found[:9]) == (OK, "1 object ")


def test_what_workers_left_is_neither_trouble_nor_an_orphan(clinic: Clinic) -> None:
    clinic.write(f"{folder_of('mail')}w-0", b"of a worker that died before there was a queue")
    assert clinic.said()["head"] == OK
    clinic.q.enqueue(1)
    clinic.q._run(clinic.q._flows.put_worker("w-1", WorkerEntry(name="mailer")))
    clinic.q.reap()
    for deep in (False, True):
        found = {each.check: each for each in clinic.examine(deep)}
        assert {each.level for each in found.values()} == {OK}
        assert found["orphans"].found[:9] == "0 objects"


def test_announcements_nobody_can_read_are_a_warning(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.write(intents_prefix(ROOT) + "README", b"hello")
    assert clinic.said()["announcements"] == WARNING
    clinic.remove(intents_prefix(ROOT) + "README")
    clinic.write(intents_prefix(ROOT) + "000000000001.00000000000000aa.1.00000000000000bb.1.1.", b"cut")
    assert clinic.said()["announcements"] == OK
    assert clinic.said(deep=True)["announcements"] == WARNING


def test_an_announcement_whose_key_and_object_differ_is_a_warning(clinic: Clinic) -> None:
    """The commit believes the key: an object that says something else was written by somebody else."""
    clinic.q.enqueue(1)
    seals = decode_head(clinic.read(HEAD)).seals
    request = Announced("e" * 16, 1, 7, 1, 0, (ChangeSettings(paused=True),))
    key = intents_prefix(ROOT) + intent_key(request, 255, seals)
    clinic.write(key, intent_body(request))
    assert clinic.said(deep=True)["announcements"] == OK
    clinic.write(key, intent_body(replace(request, ops=(ChangeSettings(paused=False),))))
    assert clinic.said()["announcements"] == OK
    assert clinic.said(deep=True)["announcements"] == WARNING


def test_a_queue_that_nobody_reaps_is_a_warning(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    assert clinic.said()["backup"] == OK  # it is young
    clinic.q.claim()[0].complete()
    clinic.machine.advance(2 * HOUR + 1)
    clinic.q.enqueue(2)
    assert (clinic.said()["backup"], clinic.said()["reaper"]) == (WARNING, WARNING)
    clinic.q.reap()
    assert (clinic.said()["backup"], clinic.said()["reaper"]) == (OK, OK)
    clinic.machine.advance(4 * HOUR)
    assert clinic.said()["backup"] == WARNING


def test_a_backup_that_cannot_be_read_is_a_warning(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.reap()
    (name,) = clinic.names("backup/")
    clinic.write(name, b"cut")
    assert clinic.said()["backup"] == WARNING


def test_archive_parts_that_cannot_be_read_are_trouble(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    clinic.q.claim()[0].complete()
    clinic.q.reap()
    (name,) = clinic.names("archive/")
    assert clinic.said()["archive"] == OK
    clinic.write(name, b"cut")
    assert clinic.said()["archive"] == TROUBLE


def test_dead_letters_and_long_waits_are_warnings(clinic: Clinic) -> None:
    clinic.q.enqueue(1, max_attempts=1)
    clinic.q.claim()[0].fail("no")
    clinic.q.enqueue(2)
    assert (clinic.said()["dead letters"], clinic.said()["waiting"]) == (WARNING, OK)
    clinic.q.pause()
    clinic.machine.advance(HOUR + 1)
    (found,) = [each for each in clinic.examine() if each.check == "waiting"]
    assert found.level == WARNING
    assert "queue resume" in found.remedy


def test_shards_that_differ_are_a_warning(clinic: Clinic) -> None:
    clinic.q.configure(shards=3)
    assert clinic.said()["settings"] == OK
    clinic.change(settings=replace(decode_head(clinic.read(HEAD)).settings, paused=True))
    (found,) = [each for each in clinic.examine() if each.check == "settings"]
    assert (found.level, found.found) == (WARNING, "the shards differ in: paused")


def test_shards_whose_pauses_end_by_themselves_may_differ_in_them(clinic: Clinic) -> None:
    clinic.q.configure(shards=3)
    settings = decode_head(clinic.read(HEAD)).settings
    ends = clinic.machine.now_ms() + HOUR * 1000
    rows = (KindSettings("send", paused=True, paused_until_ms=ends),)
    clinic.change(settings=replace(settings, paused=True, paused_until_ms=ends, kinds=rows))
    assert clinic.said()["settings"] == OK


def test_a_queue_that_is_not_in_the_register_is_a_warning(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    assert clinic.said()["register"] == OK
    clinic.remove("queues/mail")
    assert clinic.said()["register"] == WARNING


def test_every_shard_is_looked_at_even_if_the_first_cannot_be_read(clinic: Clinic) -> None:
    clinic.q.configure(shards=3)
    clinic.write(HEAD, b"cut")
    assert {each.shard for each in clinic.examine() if each.check == "head"} == {0, 1, 2}


def test_what_stops_a_check_is_a_finding(clinic: Clinic) -> None:
    clinic.q.enqueue(1)
    driver = BlockingDriver(Careless(clinic.store, forbids(List)), clinic.machine)
    found = driver.run(checks.examine("mail", clinic.machine.now_ms(), False))
    assert worst(found) == TROUBLE
    assert any("access denied" in each.found for each in found)


def test_what_is_no_copy_of_a_head_keeps_nobody_from_looking(clinic: Clinic) -> None:
    clinic.q.enqueue("x")
    clinic.q.reap()
    clinic.write("backup/mail/", b"")  # as some consoles make folders
    clinic.write("backup/mail/notes/today", b"")
    clinic.remove(HEAD)
    assert clinic.said()["head"] == TROUBLE


def test_a_head_that_was_lost_is_told_for_as_long_as_there_is_a_copy_of_it(clinic: Clinic) -> None:
    for at in range(30):
        clinic.q.enqueue(at)
    clinic.q.reap()
    clinic.remove(HEAD)
    for hour in range(1, 4):
        clinic.machine.advance(HOUR)
        clinic.q = clinic.queue()
        for at in range(20 * hour):  # at last it has made more commits than the old one
            clinic.q.enqueue(at)
        clinic.q.reap()
        (told,) = [each for each in clinic.examine() if each.check == "backup"]
        assert told.level == TROUBLE
        assert "2027-01-15T08 is of commit 30" in told.found
        assert "--restore 2027-01-15T08 --yes" in told.remedy
    clinic.restore("2027-01-15T08", force=True)
    assert clinic.said()["backup"] == OK
