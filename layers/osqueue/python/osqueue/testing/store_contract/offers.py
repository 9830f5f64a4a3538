"""Rules on failures, and on what a store may offer: each is tried where the store says that it offers it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...clock import MACHINE
from ...errors import OsqueueError
from ...stores.base import (
    AnnouncedPut,
    Answered,
    Delete,
    Failed,
    Get,
    List,
    Passed,
    PassTurn,
    PresignedRequest,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Turn,
    Written,
    never_hinted,
)
from .opening import PATIENCE, OpenStore, create, found, rule

APART_MS_MAX = 60_000  # of the store's clock and its own times: a request may have stood still in between
CALLERS = 6
TURN_WAIT_SECONDS = 0.6  # without success: a shorter wait need not count
WRITES_MAX = 2_000  # together they take longer than a millisecond
SECOND_MS = 1_000
# (A version that a store would never give may be refused without asking anybody, so no condition on one is here.)
EVERY: tuple[StoreRequest, ...] = (
    *(Get("a"), Get("a", unless="version"), Put("a", b"x"), PutIfAbsent("a", b"x"), List(""), Delete(("a",))),
)


class OfferRules:
    """What is said when nothing answers, and optional abilities."""

    @rule
    def test_no_answer_is_a_failure_and_no_refusal(self, unreachable_store: Store) -> None:
        """Where the outcome is not known ``perform`` answers Failed and raises nothing; a method raises that error.

        Refused and Missing are definite: a commit that is told so gives up or begins anew. After Failed it finds out
        what happened. A time-out that is called a refusal is how a job runs twice.
        """
        for request in EVERY:
            reply = unreachable_store.perform(request)
            assert isinstance(reply, Failed), f"{request}: {reply}"
            assert reply.error.message
            awaited = asyncio.run(unreachable_store.perform_async(request))
            assert isinstance(awaited, Failed), f"{request}: {awaited}"
        with pytest.raises(OsqueueError):
            unreachable_store.get(Get("a"))
        with pytest.raises(OsqueueError):
            unreachable_store.put_if_absent(PutIfAbsent("a", b"x"))

    @rule
    def test_the_store_works_again_after_close(self, store: Store) -> None:
        """A store may be used after ``close``, which releases connections; it then opens new ones. Twice is no error.

        A Queue is closed by the block that it is used in, and its store may be that of another one.
        """
        create(store, "a", b"one")
        store.close()
        store.close()
        assert found(store, "a").body == b"one"

    @rule
    def test_what_a_store_says_of_itself_is_sound(self, store: Store, open_store: OpenStore) -> None:
        """``place`` can be compared and hashed, and is equal for two stores of one place, where a store says it at all.

        By it the queues of a process know one another, and one wakes those that wait at another.
        """
        other = open_store()
        assert hash(store.place) == hash(store.place)
        if type(store).place is not Store.place:
            assert store.place == other.place
        assert all(remark.check and remark.found for remark in store.remarks())
        assert store.room_below("a/") <= min(store.key_bytes_max - 2, store.name_bytes_max)
        other.close()

    # ── A clock ──────────────────────────────────────────────────────────────
    @rule
    def test_the_stores_clock_is_the_one_that_its_objects_show(self, store: Store) -> None:
        """Where ``clock_ms`` can be told without a request, it is the clock that ``modified_ms`` is told by.

        All clients judge leases by one clock. With two, a job is given to a second worker while the first one has it.
        """
        if store.clock_ms() is None:
            pytest.skip("the store's clock needs a request")
        create(store, "a")
        now, written = store.clock_ms(), found(store, "a").modified_ms
        assert now is not None
        assert abs(now - written) <= APART_MS_MAX, f"the clock says {now}, the object {written}"

    @rule
    def test_the_stores_clock_is_as_fine_as_it_states(self, store: Store) -> None:
        """Write objects until ``modified_ms`` of one has parts of a second, where ``clock_tick_ms`` is below a second.

        Leases and delays last one tick longer. So a lease ends too early if the stated tick is too short.
        """
        assert store.clock_tick_ms >= 1
        if store.clock_tick_ms >= SECOND_MS:
            pytest.skip("the store states whole seconds")
        for number in range(WRITES_MAX):  # the first ones may come in the first millisecond of a second
            create(store, f"a{number}")
            if found(store, f"a{number}").modified_ms % SECOND_MS:
                return
        pytest.fail(f"{WRITES_MAX} objects were modified in whole seconds")

    # ── Turns ────────────────────────────────────────────────────────────────
    @rule
    def test_a_turn_is_waited_for_and_passed_on(self, store: Store) -> None:
        """Nobody waits who is alone; who finds the turn taken waits for it, in vain no longer than asked.

        Processes of one machine take turns at the head: a holder that dies or stands still must not stop the others.
        """
        if not store.turns:
            pytest.skip("the store offers no turns")
        held = store.perform(TakeTurn("head", b"first", PATIENCE))
        assert isinstance(held, Turn), held
        assert isinstance(store.perform(TakeTurn("head", b"second", 0.01)), Refused)
        elsewhere = store.perform(TakeTurn("other", b"third", PATIENCE))
        assert isinstance(elsewhere, Turn), elsewhere
        assert store.perform(PassTurn(elsewhere)) == Passed()
        assert store.perform(PassTurn(held)) == Passed()
        again = store.perform(TakeTurn("head", b"fourth", PATIENCE))
        assert isinstance(again, Turn), again
        assert store.perform(PassTurn(again)) == Passed()

    @rule
    def test_a_swap_that_yields_is_refused_while_another_has_the_turn(
        self, store: Store, open_store: OpenStore
    ) -> None:
        """A writer that is alone commits without a turn. One that joins must not lose each race to it.

        After a wait without a turn the swap is carried out: the holder stands still.
        """
        if not store.turns:
            pytest.skip("the store offers no turns")
        joiner = open_store()

        def swap(version: str) -> StoreReply:
            return store.perform(PutIfMatch("head", version.encode(), version, hot=True, yields=True))

        first = swap(create(store, "head"))
        assert isinstance(first, Written), first
        held = joiner.perform(TakeTurn("head", b"", PATIENCE))
        assert isinstance(held, Turn), held
        assert swap(first.version) == Refused()
        second = joiner.perform(PutIfMatch("head", b"joined", first.version, hot=True))
        assert isinstance(second, Written), second
        assert joiner.perform(PassTurn(held)) == Passed()
        third = swap(second.version)
        assert isinstance(third, Written), third
        held = joiner.perform(TakeTurn("head", b"", PATIENCE))
        assert isinstance(held, Turn), held
        assert isinstance(store.perform(TakeTurn("head", b"", TURN_WAIT_SECONDS)), Refused)
        assert isinstance(swap(third.version), Written)
        joiner.perform(PassTurn(held))
        joiner.close()

    @rule
    def test_everybody_has_a_turn_or_an_answer_to_the_own_note(self, store: Store) -> None:
        """Of callers who are patient one at a time has the turn; an answer goes to whoever left that note.

        An answer to somebody else's note would tell a caller that its job was taken which nobody has seen.
        """
        if not store.turns:
            pytest.skip("the store offers no turns")
        holding: list[bytes] = []
        crowds: list[list[bytes]] = []

        def take(name: int) -> tuple[bytes, object]:
            note = b"note %d" % name
            reply = store.perform(TakeTurn("head", note, PATIENCE))
            if isinstance(reply, Turn):
                holding.append(note)
                crowds.append([*holding])
                holding.remove(note)
                answers = tuple((at, b"done: " + other) for at, other in enumerate(reply.notes))
                assert store.perform(PassTurn(reply, answers)) == Passed()
            return note, reply

        first = store.perform(TakeTurn("head", b"", PATIENCE))
        assert isinstance(first, Turn), first
        with ThreadPoolExecutor(CALLERS) as pool:
            asked = [pool.submit(take, name) for name in range(CALLERS)]
            assert store.perform(PassTurn(first)) == Passed()
            replies = [each.result(PATIENCE) for each in asked]
        for note, reply in replies:
            assert isinstance(reply, Turn) or reply in (Answered(b"done: " + note), Answered(b"")), reply
        assert all(len(crowd) == 1 for crowd in crowds), crowds

    # ── News ─────────────────────────────────────────────────────────────────
    @rule
    def test_news_of_a_hot_object_names_a_version_of_it(self, store: Store, open_store: OpenStore) -> None:
        """Where a store can tell of a replaced object, ``told`` is called with a version that was written, or with "".

        Workers that wait for jobs hear of them this way. It may miss some, since they look as well.
        """
        if (
            getattr(store.listen, "__func__", None) is Store.listen
        ):  # its own, or that of the one it is made of
            pytest.skip("the store sends no notifications")
        heard = threading.Event()
        versions: list[str] = []

        def told(version: str) -> bool:
            versions.append(version)
            heard.set()
            return True

        writer = open_store()
        known = [create(store, "head", b"0")]
        hinted = store.listen("head", told)
        assert isinstance(hinted(), bool)
        if hinted is never_hinted:
            pytest.skip("the store sends no notifications")
        end = MACHINE.monotonic() + PATIENCE
        while not heard.wait(0.02):
            assert MACHINE.monotonic() < end, f"nothing was heard of {len(known)} versions"
            reply = writer.perform(PutIfMatch("head", b"%d" % len(known), known[-1], hot=True))
            assert isinstance(reply, Written), reply
            known.append(reply.version)
        assert set(versions) - {""} <= set(known)
        writer.close()

    # ── Presigned requests ───────────────────────────────────────────────────
    @rule
    def test_a_presigned_read_brings_the_range(self, store: Store) -> None:
        """Whoever has a presigned Get reads that range by plain HTTP, without credentials.

        Payloads that are too large for an API pass beside it.
        """
        create(store, "a/payload", b"0123456789")
        asked = store.presigned(Get("a/payload", start=2, length=5), 60)
        if asked is None:
            pytest.skip("the store signs no requests")
        assert _send(asked) == (206, b"23456")

    @rule
    def test_a_presigned_write_creates_once(self, store: Store) -> None:
        """Whoever has a presigned write creates that object, and overwrites none.

        The request may be sent twice, or by somebody who has seen it.
        """
        body = b"a payload"
        asked = store.presigned(AnnouncedPut("a/upload", len(body), hashlib.sha256(body).hexdigest()), 60)
        if asked is None:
            pytest.skip("the store signs no requests")
        assert _send(asked, body)[0] == 200
        first = found(store, "a/upload")
        assert first.body == body
        assert _send(asked, body)[0] == 412
        assert found(store, "a/upload") == first


def _send(asked: PresignedRequest, body: bytes | None = None) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/octet-stream", **asked.headers}
    request = urllib.request.Request(asked.url, body, headers, method=asked.method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - the store names the address
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
