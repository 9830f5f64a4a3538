"""What makes a folder outlast power cuts, and what keeps its writers apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from osqueue.commit import protocol, steps
from osqueue.commit.effects import Flow
from osqueue.commit.writer import HEAD
from osqueue.election import base
from osqueue.objects import id_index, layout
from osqueue.operations import results
from osqueue.operations.waiters import CompletionBoard
from osqueue.stores import file, file_flushes, file_hot, file_locks
from osqueue.stores.base import DeleteIfMatch, Get, Put, PutIfAbsent
from osqueue.stores.file import FileStore
from osqueue.stores.file_flushes import Flushes
from osqueue.stores.file_hot import Slots
from osqueue.stores.file_locks import FileLock, LockDeadline, Stripes
from osqueue.stores.file_slots import is_slot

from ..power import FOLDER, power_cuts
from ..power_scenes import SCENES, play
from ..slot_scenes import left_behind, reads_between
from .control import Control, Detection, Mutation, patched

SEEDS = 6  # runs that a mutation may survive


def in_power_cuts(words: str, seeds: Sequence[int] = range(SEEDS)) -> Detection:
    """A disk that a power cut may leave in one of a few runs lacks something, or the work that is left does."""

    def look() -> str:
        return next((found for seed in seeds if (found := power_cuts(seed).violation)), "")

    return Detection("power cuts", look, words)


def in_power_scene(name: str, words: str) -> Detection:
    """A scene with a power cut goes wrong."""
    return Detection(name, lambda: play(SCENES[name]), words)


def in_reads_between(words: str) -> Detection:
    """A read of a hot object brings what it should not, when writers come in the middle of it."""
    return Detection("reads between writes", reads_between, words)


def in_writes_cut_short(words: str) -> Detection:
    """Of what was replaced something is left."""
    return Detection("writes cut short", left_behind, words)


def no_flush_of_files() -> AbstractContextManager[None]:
    """A file gets its name before its content is on the disk."""
    real = FileStore._write_temporary

    def write(
        self: Any, path: str, body: bytes, durable: bool, clock_ns: int | None = None, hot: bool = False
    ) -> Any:
        return real(self, path, body, False, clock_ns, hot)

    return patched((FileStore, "_write_temporary", write))


def no_flush_of_folders() -> AbstractContextManager[None]:
    """A write is answered before its name is on the disk."""
    return patched((Flushes, "settle", lambda self, folder: None))


def no_flush_of_folders_above() -> AbstractContextManager[None]:
    """A new folder's content is flushed, and its own name is not."""
    return patched((Flushes, "settle", lambda self, folder: self.flush(folder)))


def no_flush_of_the_root() -> AbstractContextManager[None]:
    """The folder of the store is new, and nobody flushes those above it."""
    real = file_flushes.flush_folder

    def flush(folder: str) -> None:
        if folder.startswith(FOLDER):
            real(folder)

    return patched((file_flushes, "flush_folder", flush))


def no_flush_of_deletions() -> AbstractContextManager[None]:
    """What was deleted under a condition may come back."""
    real = FileStore.delete_if_match

    def delete(self: Any, request: DeleteIfMatch) -> Any:
        before, self._fsync = self._fsync, False
        try:
            return real(self, request)
        finally:
            self._fsync = before

    return patched((FileStore, "delete_if_match", delete))


def objects_left_unflushed() -> AbstractContextManager[None]:
    """What a head refers to is written like something that nobody misses."""

    def created(key: str, body: bytes, hot: bool = False) -> Put | PutIfAbsent:
        return PutIfAbsent(key, body, hot) if key.endswith(HEAD) else Put(key, body, durable=False)

    return patched((steps, "PutIfAbsent", created))


def answers_before_others_flushes() -> AbstractContextManager[None]:
    """An operation is answered from a head whose writer may be flushing yet."""

    def await_flush(self: Any, head: Any) -> Flow[None]:
        yield from ()

    return patched((protocol.Commit, "await_flush", await_flush))


def states_before_others_flushes() -> AbstractContextManager[None]:
    """A question is answered from such a head."""
    return patched((layout, "Get", _unflushed))


def unflushed_looks() -> AbstractContextManager[None]:
    """Whoever waits for a result looks as if for work, and hears what commits of its own process would tell."""
    return patched((CompletionBoard, "tells_of_jobs", False))


@contextmanager
def results_before_others_flushes() -> Iterator[None]:
    """Whoever waits for a result is told it from such a head, wherever this process has it from."""
    with unflushed_looks(), patched((results, "Get", _unflushed)):
        yield


def ids_before_others_flushes() -> AbstractContextManager[None]:
    """A job is enqueued for the sake of an id's entry whose writer may be flushing yet."""
    return patched((id_index, "Get", _unflushed))


def leaders_before_others_flushes() -> AbstractContextManager[None]:
    """A candidate tells of a leader whose record may be flushed by nobody yet."""
    return patched((base, "Get", _unflushed))


def _unflushed(key: str, **options: Any) -> Get:
    return Get(key, **{**options, "flushed": False})


def no_checksum_of_bodies() -> AbstractContextManager[None]:
    """A slot whose header is there is taken for whole."""
    return patched((file_hot, "is_whole", lambda header, body: True))


def the_current_slot_is_overwritten() -> AbstractContextManager[None]:
    """The next version goes where the current one is."""
    return patched((file_hot, "target", lambda current: current))


def no_flush_in_place() -> AbstractContextManager[None]:
    """A slot is written, and marked, and nobody flushes it."""
    return patched((Slots, "flush", lambda self: None))


def unflushed_ones_are_relied_on() -> AbstractContextManager[None]:
    """The other slot is overwritten, though the writer of this one may have died before its flush."""
    return patched((FileStore, "_may_write", lambda self, key, slots, current: True))


def marks_before_flushes() -> AbstractContextManager[None]:
    """A version is said to be flushed as soon as it is written."""
    real = Slots.write

    def write(self: Any, current: Any, body: bytes, modified_ms: int) -> Any:
        header = real(self, current, body, modified_ms)
        self.mark(header)
        return header

    return patched((Slots, "write", write))


def erased_last() -> AbstractContextManager[None]:
    """What was longer is erased when the shorter version is written."""
    real = Slots.write

    def write(self: Any, current: Any, body: bytes, modified_ms: int) -> Any:
        behind: list[tuple[int, int]] = []
        with patched((Slots, "_erase", lambda _, start, end: behind.append((start, end)))):
            header = real(self, current, body, modified_ms)
        for start, end in behind:
            self._erase(start, end)
        return header

    return patched((Slots, "write", write))


def names_of_slots_left_unflushed() -> AbstractContextManager[None]:
    """A file of slots takes the place of another, and only what is written there later is flushed."""
    return patched((Flushes, "_knows_name", lambda self, key, version: is_slot(version)))


def no_second_look_at_what_is_known() -> AbstractContextManager[None]:
    """A reader who knows the version in one slot does not mind that the other is torn."""
    return patched((Slots, "is_sure", lambda self, other: True))


def no_second_look_at_what_is_read() -> AbstractContextManager[None]:
    """A reader does not mind that a slot's header has changed since it chose this slot."""
    return patched((Slots, "changed", lambda self, header, data: False))


def no_lock() -> AbstractContextManager[None]:
    """Writers compare and replace side by side."""
    return patched((Stripes, "_wait_for", lambda self, lock, path, patience: None))


def no_lock_of_objects() -> AbstractContextManager[None]:
    """Writers of an object are kept apart by their stripe's lock file alone, which another process may remove."""

    @contextmanager
    def unlocked(self: Stripes, path: str, patience: LockDeadline) -> Iterator[FileLock | None]:
        file = file_locks._open_object(path)
        try:
            yield file
        finally:
            if file is not None:
                file.close()

    return patched((Stripes, "object_locked", unlocked))


def no_look_at_what_was_locked() -> AbstractContextManager[None]:
    """A writer does not check that the file which it locked still has its name."""
    return patched((FileLock, "is_named", lambda self: True))


@contextmanager
def no_clock_of_versions() -> Iterator[None]:
    """A version's time is the machine's, which stands still for whoever is quick."""

    def time_after(clock_ns: int, now_ms: int) -> int:
        return now_ms * 1_000_000 | 1

    with patched((file, "time_after", time_after), (file_locks, "time_after", time_after)):
        yield


def _control(name: str, remove: Mutation, detection: Detection) -> Control:
    return Control(name, remove, (detection,))


CONTROLS: tuple[Control, ...] = (
    _control("files are flushed", no_flush_of_files, in_power_cuts("after a power cut")),
    _control("folders are flushed", no_flush_of_folders, in_power_cuts("after a power cut")),
    _control("folders above are flushed", no_flush_of_folders_above, in_power_cuts("after a power cut")),
    _control("those above the root, too", no_flush_of_the_root, in_power_cuts("after a power cut")),
    _control("deletions are flushed", no_flush_of_deletions, in_power_cuts("of which a deletion told")),
    _control("objects are flushed", objects_left_unflushed, in_power_cuts("the head that is left refers to")),
    _control(
        "answers outlast", answers_before_others_flushes, in_power_scene("claims meanwhile", "claim told")
    ),
    _control("states outlast", states_before_others_flushes, in_power_scene("asks meanwhile", "status told")),
    _control(
        "results outlast", results_before_others_flushes, in_power_scene("waits meanwhile", "wait told")
    ),
    _control("ids outlast", ids_before_others_flushes, in_power_scene("enqueues meanwhile", "id told")),
    _control(
        "leaders outlast",
        leaders_before_others_flushes,
        in_power_scene("campaigns meanwhile", "campaign told"),
    ),
    _control("checksums of slots", no_checksum_of_bodies, in_power_cuts("after a power cut")),
    _control("the current slot stays", the_current_slot_is_overwritten, in_power_cuts("after a power cut")),
    _control("slots are flushed", no_flush_in_place, in_power_cuts("after a power cut")),
    _control("a flushed slot is left", unflushed_ones_are_relied_on, in_power_cuts("after a power cut")),
    _control("marks follow flushes", marks_before_flushes, in_power_cuts("after a power cut")),
    _control("names of slots are flushed", names_of_slots_left_unflushed, in_power_cuts("after a power cut")),
    _control("older bytes are erased first", erased_last, in_writes_cut_short("still there")),
    _control("a second look, known", no_second_look_at_what_is_known, in_reads_between("had been replaced")),
    _control("a second look, read", no_second_look_at_what_is_read, in_reads_between("had been replaced")),
    _control(
        "locks of a folder", no_lock, in_power_cuts("lost|again|twice|before what it refers to|another is at")
    ),
    _control("locks of objects", no_lock_of_objects, in_power_cuts("claimed again", seeds=(21,))),
    _control("names of locks", no_look_at_what_was_locked, in_power_cuts("claimed again", seeds=(182,))),
    _control("clocks of versions", no_clock_of_versions, in_power_cuts("comes twice")),
)
