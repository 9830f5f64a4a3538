"""The contract of a store sees: each store here breaks one rule, and that rule's test fails and says which it was."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest

from osqueue.errors import Unavailable
from osqueue.stores.base import (
    LIST_KEYS_MAX,
    Answered,
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Passed,
    PassTurn,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Turn,
    Unchanged,
    Written,
)
from osqueue.stores.memory import MemoryStore
from osqueue.testing.store_contract import StoreContract
from osqueue.testing.store_contract.opening import StoreOpener
from osqueue.testing.store_contract.racing import RACERS


class LosesUpdates(MemoryStore):
    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        return self.put(Put(request.key, request.body))


class OverwritesOnCreation(MemoryStore):
    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        return self.put(Put(request.key, request.body))


class ChecksBeforeItWrites(MemoryStore):
    """All creators have looked before the first one writes."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = threading.Barrier(RACERS)

    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        if request.key in self._objects:
            return Refused()
        self.looked.wait()
        return self.put(Put(request.key, request.body))


class LetsCoroutinesPass(MemoryStore):
    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if not isinstance(request, PutIfMatch):
            return self.perform(request)
        current = self._objects[request.key]
        await asyncio.sleep(0)
        return (
            self.perform(Put(request.key, request.body)) if current.version == request.version else Refused()
        )


class RefusesAfterWriting(MemoryStore):
    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        self.put(Put(request.key, request.body))
        return Refused()


class RefusesNowAndThenAfterWriting(MemoryStore):
    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        reply = super().put_if_match(request)
        return Refused() if self._writes % 7 == 0 else reply


class NeverMatches(MemoryStore):
    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        return Refused()


class CreatesOnReplacement(MemoryStore):
    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        known = request.key in self._objects
        return super().put_if_match(request) if known else self.put(Put(request.key, request.body))


class CountsVersionsByKey(MemoryStore):
    """A version is how often the key was written since it came to be: a deletion begins anew."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    def _write(self, key: str, body: bytes) -> Written:
        self._writes = self.counts.get(key, 0) if key in self._objects else 0
        written = super()._write(key, body)
        self.counts[key] = self._writes
        return written


class KeepsItsVersion(MemoryStore):
    def _write(self, key: str, body: bytes) -> Written:
        self._writes = 0
        return super()._write(key, body)


class TellsOtherVersions(MemoryStore):
    def get(self, request: Get) -> Found | Missing | Unchanged:
        reply = super().get(request)
        return (
            Found(reply.body, f"v{reply.version}", 1_700_000_000_000) if isinstance(reply, Found) else reply
        )


class Remembers(MemoryStore):
    """Reads what it has read before, and shares its objects with another one."""

    def __init__(self, behind: MemoryStore) -> None:
        super().__init__()
        self._lock, self._objects, self._keys = behind._lock, behind._objects, behind._keys
        self.cache: dict[str, Found] = {}

    def get(self, request: Get) -> Found | Missing | Unchanged:
        reply = self.cache.get(request.key) or super().get(request)
        if isinstance(reply, Found):
            self.cache[request.key] = reply
        return reply


class IgnoresRanges(MemoryStore):
    def get(self, request: Get) -> Found | Missing | Unchanged:
        return super().get(Get(request.key, request.unless))


class NeverUnchanged(MemoryStore):
    def get(self, request: Get) -> Found | Missing | Unchanged:
        return super().get(Get(request.key, None, request.start, request.length))


class AlwaysUnchanged(MemoryStore):
    def get(self, request: Get) -> Found | Missing | Unchanged:
        return super().get(request) if request.unless is None else Unchanged()


class TellsSeconds(MemoryStore):
    def clock_ms(self) -> int:
        return super().clock_ms() // 1000


class DeletesAnyVersion(MemoryStore):
    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused:
        return self.delete(Delete((request.key,)))


class DeletesTheFirstOnly(MemoryStore):
    def delete(self, request: Delete) -> Deleted:
        return super().delete(Delete(request.keys[:1]))


class ListsByAge(MemoryStore):
    def list(self, request: List) -> Listed:
        names = [name for name in self._objects if name.startswith(request.prefix) and name > request.after]
        limit = request.page(LIST_KEYS_MAX)
        return Listed(tuple(names[:limit]), len(names) > limit)


class ListsFolders(MemoryStore):
    def list(self, request: List) -> Listed:
        folder = request.prefix and request.prefix.rstrip("/") + "/"
        return super().list(List(folder, request.after, request.limit))


class ListsFromTheKeyNamed(MemoryStore):
    def list(self, request: List) -> Listed:
        names = [name for name in self._keys if name.startswith(request.prefix) and name >= request.after]
        limit = request.page(LIST_KEYS_MAX)
        return Listed(tuple(names[:limit]), len(names) > limit)


class EndsListingsEarly(MemoryStore):
    def list(self, request: List) -> Listed:
        return Listed(super().list(request).keys, more=False)


class ListsLate(MemoryStore):
    def list(self, request: List) -> Listed:
        found = super().list(request)
        return Listed(
            tuple(key for key in found.keys if int(self._objects[key].version) < self._writes), found.more
        )


class DecodesKeys(MemoryStore):
    def _write(self, key: str, body: bytes) -> Written:
        return super()._write(key.replace("+", " "), body)


class CutsKeys(MemoryStore):
    def _write(self, key: str, body: bytes) -> Written:
        return super()._write(key[:255], body)


class SaysMissing(MemoryStore):
    """Takes a server that is not there for an object that is not."""

    def perform(self, request: StoreRequest) -> StoreReply:
        return Missing() if isinstance(request, Get) else Failed(Unavailable("nobody answers."))


class Raises(MemoryStore):
    def perform(self, request: StoreRequest) -> StoreReply:
        raise Unavailable("nobody answers.")


class EverybodysTurn(MemoryStore):
    turns = True

    def perform(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, TakeTurn):
            return Turn((), None)
        return Passed() if isinstance(request, PassTurn) else super().perform(request)


class AnswersForOthers(EverybodysTurn):
    def perform(self, request: StoreRequest) -> StoreReply:
        strange = isinstance(request, TakeTurn) and request.note
        return Answered(b"done: note of somebody else") if strange else super().perform(request)


class TellsStrangeVersions(MemoryStore):
    def listen(self, key: str, told: Callable[[str], bool]) -> None:
        told("no version of it")


class DiesWhenClosed(MemoryStore):
    def close(self) -> None:
        self._objects = {}


class PlacesDiffer(MemoryStore):
    @property
    def place(self) -> object:
        return ("memory", id(self))


BROKEN: list[tuple[type[MemoryStore], str]] = [
    (LosesUpdates, "test_a_refused_write_leaves_the_content_unchanged"),
    (OverwritesOnCreation, "test_only_the_first_creation_is_written"),
    (ChecksBeforeItWrites, "test_of_many_creators_exactly_one_wins"),
    (LetsCoroutinesPass, "test_of_many_coroutines_exactly_one_wins"),
    (RefusesAfterWriting, "test_a_refused_write_leaves_the_content_unchanged"),
    (RefusesNowAndThenAfterWriting, "test_no_increment_is_lost_among_threads"),
    (NeverMatches, "test_no_increment_is_lost_among_threads"),
    (NeverMatches, "test_a_write_against_the_current_version_replaces"),
    (CreatesOnReplacement, "test_a_write_against_a_missing_object_is_refused"),
    (CountsVersionsByKey, "test_a_version_never_returns"),
    (KeepsItsVersion, "test_a_version_never_returns"),
    (KeepsItsVersion, "test_an_unconditional_write_creates_and_replaces"),
    (TellsOtherVersions, "test_what_was_written_is_read_with_its_version"),
    (IgnoresRanges, "test_a_hot_object_grows_and_shrinks"),
    (IgnoresRanges, "test_a_large_body_is_kept_whole"),
    (NeverUnchanged, "test_a_read_unless_the_version_is_current_answers_unchanged"),
    (AlwaysUnchanged, "test_a_read_unless_the_version_is_current_answers_unchanged"),
    (AlwaysUnchanged, "test_what_was_never_written_is_missing"),
    (TellsSeconds, "test_the_stores_clock_is_the_one_that_its_objects_show"),
    (DeletesAnyVersion, "test_a_conditional_deletion_needs_the_current_version"),
    (DeletesTheFirstOnly, "test_many_objects_are_deleted_in_one_request"),
    (DeletesTheFirstOnly, "test_deleted_objects_are_gone_and_others_stay"),
    (ListsByAge, "test_a_listing_is_in_byte_order"),
    (ListsFromTheKeyNamed, "test_a_listing_starts_behind_the_key_named"),
    (EndsListingsEarly, "test_pages_join_to_the_whole_listing"),
    (ListsLate, "test_a_listing_sees_every_write_and_deletion_before_it"),
    (DecodesKeys, "test_keys_with_odd_signs_are_told_apart"),
    (CutsKeys, "test_the_longest_key_is_kept"),
    (SaysMissing, "test_no_answer_is_a_failure_and_no_refusal"),
    (Raises, "test_no_answer_is_a_failure_and_no_refusal"),
    (EverybodysTurn, "test_a_turn_is_waited_for_and_passed_on"),
    (AnswersForOthers, "test_everybody_has_a_turn_or_an_answer_to_the_own_note"),
    (TellsStrangeVersions, "test_news_of_a_hot_object_names_a_version_of_it"),
    (DiesWhenClosed, "test_the_store_works_again_after_close"),
    (PlacesDiffer, "test_what_a_store_says_of_itself_is_sound"),
]


def attempt(name: str, store: Any, **more: Any) -> None:
    """One test of the contract, called as pytest would."""
    test = getattr(StoreContract(), name)
    fixtures = {"store": store, "unreachable_store": store, "open_store": lambda: store, **more}
    test(**{each: fixtures[each] for each in inspect.signature(test).parameters})


@pytest.mark.parametrize(("broken", "name"), BROKEN, ids=lambda each: getattr(each, "__name__", None))
def test_a_store_that_breaks_a_rule_is_seen_and_the_rule_named(broken: type[MemoryStore], name: str) -> None:
    sound = MemoryStore()
    store = broken()
    opened = [broken, lambda: store][broken is not PlacesDiffer]
    with pytest.raises(Exception) as failure:
        attempt(name, store, open_store=opened)
    (said,) = failure.value.__notes__
    assert str(inspect.getdoc(getattr(StoreContract, name))) in said
    if not name.startswith(("test_no_answer", "test_a_turn", "test_everybody", "test_news")):
        attempt(name, sound)


def test_a_range_that_is_ignored_is_seen() -> None:
    with pytest.raises(AssertionError):
        attempt("test_a_range_brings_those_bytes", IgnoresRanges(), start=4, length=2, expected=b"45")
    attempt("test_a_range_brings_those_bytes", MemoryStore(), start=4, length=2, expected=b"45")


def test_a_prefix_that_is_taken_for_a_folder_is_seen() -> None:
    with pytest.raises(AssertionError):
        attempt("test_a_listing_holds_what_starts_with_the_prefix", ListsFolders(), prefix="b/c")
    attempt("test_a_listing_holds_what_starts_with_the_prefix", MemoryStore(), prefix="b/c")


def test_reads_of_the_past_are_seen() -> None:
    behind = MemoryStore()
    with pytest.raises(AssertionError):
        attempt(
            "test_every_opened_store_reads_what_any_has_written", behind, open_store=lambda: Remembers(behind)
        )


def test_every_rule_says_why_the_queue_needs_it() -> None:
    rules = [each for each in vars_of(StoreContract) if each.startswith("test_")]
    assert len(rules) > 30
    short = [
        each for each in rules if len((inspect.getdoc(getattr(StoreContract, each)) or "").split("\n\n")) < 2
    ]
    assert short == []


def vars_of(kind: type) -> list[str]:
    return [name for each in kind.__mro__ if each is not StoreOpener for name in vars(each)]
