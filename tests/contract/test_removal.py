"""A queue is removed for good, over every store: nothing of it is left, and one of its name begins anew."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from osqueue import Conflict, NotFound, Queue, Unavailable, Unknown
from osqueue.bulk.receipts import receipt_key
from osqueue.commit.effects import All
from osqueue.core.queue_ops import ChangeSettings
from osqueue.maintenance import removal
from osqueue.model.worker import WorkerEntry
from osqueue.objects.layout import registered, root_of
from osqueue.stores.base import Delete, DeleteIfMatch, Failed, Get, List, Missing, Put, PutIfMatch, Refused

pytestmark = pytest.mark.embedded

HEAD = root_of("mail", 0) + "head"
Flow = Generator[Any, Any, Any]


@pytest.fixture
def opened(new_store: Callable[[], Any], clock: Any) -> Callable[..., Queue[Any]]:
    """Opens queues, as other processes would."""
    return lambda name="mail": Queue(new_store(), name, machine=clock)


def everything(q: Queue[Any], prefix: str = "") -> list[str]:
    listed = q.store.perform(List(prefix))
    assert not listed.more  # type: ignore[union-attr]
    return [*listed.keys]  # type: ignore[union-attr]


def used(q: Queue[Any], clock: Any, shards: int = 1) -> None:
    """Objects of every kind: ids, bodies, segments, dead letters, tables, archive, backups, batches, announcements,
    what a worker said of itself.
    """
    q.configure(shards=shards, dead_ttl=3600)
    for at in range(shards):
        q.enqueue({"large": "x" * 5_000}, id=f"done {at}")
        q.enqueue(at, max_attempts=1)
    while leases := q.claim(10):
        for lease in leases:
            if isinstance(lease.payload, int):
                lease.fail("no")
            else:
                lease.complete("y" * 5_000)
    q.enqueue_many([{"payload": at} for at in range(1_100)])
    q.reap()
    clock.shift_ms += 60_000
    q.reap()
    q.store.perform(Put(receipt_key(q.name, "some batch"), b"receipt"))
    assert q._run(q._flows.put_worker("w-1", WorkerEntry(name="mailer")))
    q.store.perform(Put(f"intents/{root_of(q.name, 0)}of a writer that died", b"request"))


def take(q: Queue[Any], with_archive: bool = False) -> int:
    count: int = q._run(removal.remove(q._run(removal.look(q.name)), q.machine, with_archive))
    return count


def interleaved(flow: Flow, when: Callable[[Any], bool], act: Callable[[], object]) -> Flow:
    """A flow; once, before the first effect that is wished, somebody acts."""
    reply: Any = None
    acted = False
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value
        if not acted and when(effect):
            acted = True
            act()
        reply = yield effect


def cut(flow: Flow, when: Callable[[Any], bool]) -> Flow:
    """A flow whose process dies before the first effect that is wished."""
    reply: Any = None
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration:
            raise AssertionError("it came to its end") from None
        if when(effect):
            return
        reply = yield effect


@pytest.mark.parametrize("shards", [1, 3])
def test_nothing_is_left_but_the_archive_and_other_queues(opened: Any, clock: Any, shards: int) -> None:
    q, other = opened(), opened("mail-2")
    used(other, clock)
    others = everything(other)
    used(q, clock, shards)
    found = q._run(removal.look("mail"))
    assert found.keys.keys() >= {
        *(
            "announcements",
            "archive",
            "backups",
            "batches",
            "bodies",
            "finished",
            "ids",
            "segments",
            "workers",
        )
    }
    assert (found.jobs()["queued"], found.jobs()["failed"]) == (1_100, shards)
    take(opened())
    left = sorted(set(everything(q)) - set(others))
    assert left, "the archive"
    assert all(key.startswith("archive/queue=mail/") for key in left)
    assert set(others) <= set(everything(q))
    assert q._run(registered()) == ["mail-2"]
    take(opened(), with_archive=True)
    assert sorted(everything(q)) == sorted(others)
    assert not q._run(removal.look("mail")).exists(True)
    assert len(other.claim(2)) == 2


def test_an_id_is_free_and_the_results_of_old_jobs_are_not_found(opened: Any, clock: Any) -> None:
    q = opened()
    old = q.enqueue("old", id="invoice-7")
    (lease,) = q.claim()
    lease.complete("paid")
    q.reap()
    take(opened(), with_archive=True)
    fresh = opened()
    with pytest.raises(NotFound):
        fresh.result(old.job_id)
    with pytest.raises(NotFound):
        fresh.result("invoice-7")
    new = fresh.enqueue("new", id="invoice-7")
    assert (new.status, new.job_id != old.job_id) == ("queued", True)
    assert fresh.stats()["commits"] == 1
    assert fresh._run(registered()) == ["mail"]
    assert [lease.payload for lease in fresh.claim(10)] == ["new"]


def test_jobs_that_somebody_waits_for_keep_a_queue(opened: Any, clock: Any) -> None:
    q = opened()
    q.enqueue(1)
    with pytest.raises(Conflict, match=r"1 queued.*cancel --all.*--force"):
        q._run(removal.look("mail")).check_idle()
    (lease,) = q.claim()
    with pytest.raises(Conflict, match="1 processing"):
        q._run(removal.look("mail")).check_idle()
    lease.complete()
    q.enqueue(2, delay=60)
    with pytest.raises(Conflict, match="1 scheduled"):
        q._run(removal.look("mail")).check_idle()
    q.store.perform(Put(HEAD, b"something else"))
    with pytest.raises(Conflict, match=r"shard 0.*--force"):
        q._run(removal.look("mail")).check_idle()


# ── Others meanwhile ─────────────────────────────────────────────────────────
@pytest.mark.parametrize("shards", [1, 3])
def test_a_queue_that_changed_since_it_was_shown_is_left_as_it_is(
    opened: Any, clock: Any, shards: int
) -> None:
    q, writer = opened(), opened()
    used(q, clock, shards)
    found = q._run(removal.look("mail"))
    before = everything(q)
    writer.claim(1)
    for _ in range(shards):  # the last shard among them
        writer.enqueue("late")
    with pytest.raises(Conflict, match=r"it has changed.*left as it is"):
        q._run(removal.remove(found, clock, True))
    assert set(before) <= set(everything(q))
    assert writer.stats()["queued"] == 1_099 + shards
    assert sum(len(writer.claim(1_000)) for _ in range(2 * shards)) == 1_099 + shards
    assert writer.enqueue("later", id="done 0").status == "completed"


def test_heads_marked_before_the_one_that_changed_are_put_back(opened: Any, clock: Any) -> None:
    q, writer = opened(), opened()
    q.configure(shards=3)
    for at in range(3):
        writer.enqueue(at)
    last = root_of("mail", 2) + "head"
    found = q._run(removal.look("mail"))
    flow = removal.remove(found, clock, False)

    def changed() -> None:
        body = q.store.perform(Get(last)).body  # type: ignore[union-attr]
        q.store.perform(Put(last, body[:-1]))
        q.store.perform(Put(last, body + b"\0"))

    def is_last(effect: Any) -> bool:
        return isinstance(effect, PutIfMatch) and effect.key == last

    with pytest.raises(Conflict, match="shard 2"):
        q._run(interleaved(flow, is_last, changed))
    q.store.perform(Put(last, found.heads[2].body))
    assert writer.stats()["queued"] == 3
    assert writer.enqueue(4).status == "queued"


def test_a_head_that_cannot_be_put_back_is_told_with_the_remedy(opened: Any, clock: Any) -> None:
    q, writer = opened(), opened()
    q.configure(shards=3)
    for at in range(3):
        writer.enqueue(at)
    found = q._run(removal.look("mail"))
    flow = failing_to_put_back(removal.remove(found, clock, False), found, root_of("mail", 1) + "head")
    with pytest.raises(
        Unavailable, match=r"\(shard 1\).*the mark of the removal stands.*run 'osqueue queue rm' again"
    ):
        q._run(interleaved(flow, is_swap(2), lambda: change(writer, 2)))
    stands = [head.marked for head in q._run(removal.look("mail")).heads]
    assert stands == [False, True, False]
    take(opened(), with_archive=True)
    assert not everything(q)


def test_a_head_is_put_back_where_the_store_refuses_or_loses_a_try(opened: Any, clock: Any) -> None:
    q, writer = opened(), opened()
    q.configure(shards=2)
    writer.enqueue(0)
    writer.enqueue(1)
    found = q._run(removal.look("mail"))
    flow = failing_to_put_back(removal.remove(found, clock, False), found, HEAD, times=2)
    with pytest.raises(Conflict, match="left as it is"):
        q._run(interleaved(flow, is_swap(1), lambda: change(writer, 1)))
    assert not q._run(removal.look("mail")).begun


def test_a_shard_that_comes_beside_the_marks_ends_the_removal(opened: Any, clock: Any) -> None:
    q, other = opened(), opened()
    q.enqueue(1)
    found = q._run(removal.look("mail"))
    q.store.perform(Put(root_of("mail", 2) + "head", found.heads[0].body))
    with pytest.raises(Conflict, match=r"more shards.*\(3\).*left as it is"):
        q._run(removal.remove(found, clock, False))
    assert other.enqueue(2).status == "queued"
    take(q, with_archive=True)
    assert not everything(q)


def change(q: Queue[Any], shard: int) -> None:
    """Commit something to one shard."""
    q._group(shard).submit((ChangeSettings(paused=True),), q.machine.monotonic() + 30)


def is_swap(shard: int) -> Callable[[Any], bool]:
    """A mark is about to be put in the place of this shard's head."""
    return lambda effect: isinstance(effect, PutIfMatch) and effect.key == root_of("mail", shard) + "head"


def failing_to_put_back(flow: Flow, found: removal.QueueFound, place: str, times: int = 1_000) -> Flow:
    """A flow to which the store refuses so many times to put one head back, although nothing changed."""
    reply: Any = None
    bodies = {head.body for head in found.heads}
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value
        if times and isinstance(effect, PutIfMatch) and effect.key == place and effect.body in bodies:
            times -= 1
            reply = Refused()
        else:
            reply = yield effect


def test_who_uses_a_queue_that_is_being_removed_is_told_so(opened: Any, clock: Any) -> None:
    q, caller, worker = opened(), opened(), opened()
    caller.enqueue("done", id="a")
    (lease,) = worker.claim()
    lease.complete()
    heard: list[str] = []

    def use() -> None:
        for call in (
            lambda: caller.enqueue("more"),  # sent to the head that it knows, then announced
            lambda: caller.enqueue("again", id="a"),
            lambda: opened().enqueue("first"),
            opened().stats,
        ):
            with pytest.raises((Conflict, Unknown), match="being removed") as error:
                call()
            assert ("nothing was done" in error.value.message) == (error.value.code == "conflict")
            heard.append(error.value.code)

    q._run(interleaved(removal.remove(q._run(removal.look("mail")), clock, True), is_deletion, use))
    assert heard == ["unknown", "conflict", "conflict", "conflict"]
    assert not everything(q)
    assert caller.enqueue("new", id="a").status == "queued"
    assert q._run(registered()) == ["mail"]


def is_deletion(effect: Any) -> bool:
    """The first objects are about to be deleted: all heads are marked."""
    return isinstance(effect, Delete)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_process_that_knew_the_old_queue_begins_a_new_one_and_registers_it(
    opened: Any, clock: Any, shards: int
) -> None:
    """It hears once for each shard that it knew, and no job goes to a shard that the new queue does not have."""
    q, caller = opened(), opened()
    q.configure(shards=shards)
    for at in range(shards - 1 or 1):  # one of several it has never met
        caller.enqueue(at)
    take(q, with_archive=True)
    sent = []
    for at in range(2 * shards):
        try:
            sent.append(caller.enqueue(f"new {at}").job_id)
        except Unknown as error:
            assert "its head is gone" in error.message  # noqa: PT017 - one of several
    assert 0 < len(sent) < 2 * shards
    assert q._run(registered()) == ["mail"]
    fresh = opened()
    assert sorted(each.job_id for each in fresh.claim(10)) == sorted(sent)
    assert fresh.stats()["shards"] == 1


def test_a_process_that_knew_more_shards_than_a_queue_begun_since_loses_no_job_in_them(
    opened: Any, clock: Any
) -> None:
    q, caller = opened(), opened()
    q.configure(shards=4)
    caller.enqueue("old")
    take(q, with_archive=True)
    fresh = opened()
    sent = [fresh.enqueue("new").job_id]
    for at in range(8):
        try:
            sent.append(caller.enqueue(at).job_id)
        except Unknown as error:
            assert "its head is gone" in error.message  # noqa: PT017 - one of several
    assert len(sent) > 1
    assert sorted(each.job_id for each in fresh.claim(20)) == sorted(sent)
    assert not everything(q, root_of("mail", 1))


# ── Interrupted ──────────────────────────────────────────────────────────────
def before_any_deletion(effect: Any) -> bool:
    return isinstance(effect, Delete)


def before_the_register(effect: Any) -> bool:
    return isinstance(effect, Delete) and effect.keys == ("queues/mail",)


def before_the_last_mark(effect: Any) -> bool:
    return isinstance(effect, DeleteIfMatch) and effect.key == HEAD and effect.version != removal.NO_VERSION


@pytest.mark.parametrize("when", [before_any_deletion, before_the_register, before_the_last_mark])
def test_a_removal_that_was_interrupted_is_run_again(opened: Any, clock: Any, when: Any) -> None:
    q = opened()
    used(q, clock, 3)
    q._run(cut(removal.remove(q._run(removal.look("mail")), clock, True), when))
    with pytest.raises(Conflict, match="run it again"):
        opened().enqueue(1)
    again = q._run(removal.look("mail"))
    assert (again.begun, again.exists(False)) == (True, True)
    again.check_idle()
    q._run(removal.remove(again, clock, True))
    assert not everything(q)
    assert opened().enqueue(1).status == "queued"


def test_of_two_removals_at_once_the_later_leaves_a_queue_alone_that_began_since(
    opened: Any, clock: Any
) -> None:
    q, other = opened(), opened()
    used(q, clock)

    def remove_and_begin() -> None:
        take(other, True)
        opened().enqueue("new", id="done 0")

    def is_listing(effect: Any) -> bool:
        return isinstance(effect, All) and isinstance(effect.requests[0], List)

    flow = removal.remove(q._run(removal.look("mail")), clock, True)
    with pytest.raises(Conflict, match="somebody else has removed it"):
        q._run(interleaved(flow, is_listing, remove_and_begin))
    assert [lease.payload for lease in opened().claim(10)] == ["new"]
    assert opened().enqueue("again", id="done 0").status == "duplicate"
    assert q._run(registered()) == ["mail"]


def test_a_store_that_keeps_heads_is_asked_before_anything_is_deleted(opened: Any, clock: Any) -> None:
    q = opened()
    used(q, clock)
    before = everything(q)
    found = q._run(removal.look("mail"))

    def refusing(flow: Flow) -> Flow:
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            if isinstance(effect, DeleteIfMatch) and effect.key == HEAD:
                reply = Failed(Unavailable("S3 answered 403 AccessDenied.", permanent=True))
            else:
                reply = yield effect

    with pytest.raises(Unavailable, match=r"nothing was changed.*HeadsAreNeverDeleted.*queues_removable"):
        q._run(refusing(removal.remove(found, clock, True)))
    assert everything(q) == before
    assert q.claim(1)


def test_whether_a_head_may_be_deleted_is_asked_without_deleting_it(opened: Any, clock: Any) -> None:
    q = opened()
    q.enqueue(1)
    assert q.store.perform(DeleteIfMatch(HEAD, removal.NO_VERSION)) == Refused()
    assert not isinstance(q.store.perform(Get(HEAD)), Missing)
