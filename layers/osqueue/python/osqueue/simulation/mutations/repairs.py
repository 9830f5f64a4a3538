"""Restores, purges and repairs of the clock, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from ... import backup, doctor, restoration
from ...commit import announcements, protocol
from ...commit.effects import Flow
from ...commit.verdict import Verdict
from ...commit.verdict import verdict as real_verdict
from ...core import erase, reduce, settle
from ...core.draft import Draft
from ...core.ops import Request
from ...core.restore import Restored, Sieve
from ...core.restore import reclock as real_reclock
from ...core.restore import restore as real_restore
from ...core.state import ECHO, Finished, Job, State, finished_weight
from ...embedded.purging import _ShardPurge
from ...shards import QueueFlow
from ...stores.base import Put
from ..ledger import Violation
from ..repair_scenes import REPAIR_SCENES, mended
from .control import Control, Sighting, in_runs, patched

RUNS = partial(in_runs, "repairs")


def in_repair(name: str, words: str) -> Sighting:
    """A scene of repairs goes wrong."""

    def look() -> str:
        try:
            mended(REPAIR_SCENES[name])
        except Violation as violation:
            return str(violation)
        return ""

    return Sighting(name, look, words)


# ── What a restore believes ──────────────────────────────────────────────────
def echoes_at_once() -> AbstractContextManager[None]:
    """What the archive is to be told of a failure goes into a table with the failure itself."""
    real = settle.shelve

    def shelve(draft: Draft) -> None:
        echoes = [row for row in draft.finished[draft.committed :] if row.mark == ECHO]
        rest = [row for row in draft.finished[draft.committed :] if row.mark != ECHO]
        draft.finished = [*draft.finished[: draft.committed], *echoes, *rest]
        draft.committed += len(echoes)
        draft.fresh_bytes = sum(map(finished_weight, rest))
        real(draft)

    return patched((settle, "shelve", shelve))


def amended_in_place() -> AbstractContextManager[None]:
    """A row that was changed leaves the head like those that were not."""

    def amend(draft: Draft, at: int, row: Finished) -> None:
        draft.finished[at] = row
        draft.changed = True

    return patched((Draft, "amend_finished", amend))


def archive_unread() -> AbstractContextManager[None]:
    """A restore does not ask the archive what has finished since."""

    def read(self: Any, since: Any) -> Flow[None]:
        yield from ()

    return patched((restoration.Restorer, "_read_archive", read))


def results_unlooked_for() -> AbstractContextManager[None]:
    """A restore takes every row of a table as it is, whether or not its result is still there."""
    return patched((restoration.Restorer, "_intact", lambda self, rows, since: list(rows)))


# ── One life and the next ────────────────────────────────────────────────────
def one_epoch() -> AbstractContextManager[None]:
    """Nobody asks to which life of a shard a request belongs."""

    def applicable(draft: Draft | State, request: Request) -> bool:
        row = draft.sessions.get(request.env)
        return request.born >= draft.floor and (row is None or request.n > row.n)

    def verdict(state: State, request: Request) -> Verdict:
        return real_verdict(state, replace(request, epoch=state.epoch))

    return patched(
        (reduce, "applicable", applicable),
        (announcements, "applicable", applicable),
        (protocol, "verdict", verdict),
    )


def old_gc_floor() -> AbstractContextManager[None]:
    """A new life takes staged objects from as far back as its backup did."""

    def restore(old: State, *rest: Any) -> Restored:
        made = real_restore(old, *rest)
        return replace(made, state=replace(made.state, gc_floor=old.gc_floor))

    return patched((restoration, "restore", restore))


def runs_begin_again() -> AbstractContextManager[None]:
    """The runs of a job count on from the backup's."""

    def raised(self: Any, job: Job) -> Job:
        return job

    return patched((Sieve, "raised", raised))


def numbers_begin_again() -> AbstractContextManager[None]:
    """A new life counts on from what is known of the old one."""
    return patched((restoration, "seq_after", max))


def restored_over_anything() -> AbstractContextManager[None]:
    """A restored head is written whatever is there by now."""
    return patched((restoration, "PutIfMatch", lambda key, body, version: Put(key, body)))


# ── The clock ────────────────────────────────────────────────────────────────
def reclocked_below() -> AbstractContextManager[None]:
    """Writers' rows are forgotten when a clock is set back, and the floor stays."""

    def reclock(state: State, now_ms: int, commit: bytes) -> State:
        return replace(real_reclock(state, now_ms, commit), floor=state.floor)

    return patched((doctor, "reclock", reclock))


def reclocked_leases() -> AbstractContextManager[None]:
    """Leases end when the clock is set back."""

    def reclock(state: State, now_ms: int, commit: bytes) -> State:
        made = real_reclock(state, now_ms, commit)
        leases = {key: replace(lease, expires_ms=now_ms) for key, lease in made.leases.items()}
        return replace(made, leases=leases)

    return patched((doctor, "reclock", reclock))


# ── Purges ───────────────────────────────────────────────────────────────────
def _forgets(step: str) -> AbstractContextManager[None]:
    """A purge leaves out one step."""

    def nothing(self: Any, *args: Any) -> QueueFlow[int]:
        yield from ()
        return 0

    return patched((_ShardPurge, step, nothing))


def unnoted() -> AbstractContextManager[None]:
    """A purge leaves no list for those who restore."""
    return patched((backup, "note_of", lambda queue, *rest: Put(f"{backup.FOLDER}{queue}/nowhere", b"")))


def moved_contents() -> AbstractContextManager[None]:
    """A purge takes a row out of the head whose result has been moved since it was wiped."""
    return patched((erase, "_bodies", lambda draft, keys: iter(())))


CONTROLS: tuple[Control, ...] = (
    Control(
        "a failure is not shelved with itself",
        echoes_at_once,
        (RUNS("left the head in the commit"), in_repair("failed in a lost swap", "which never was")),
    ),
    Control(
        "a change is not shelved with itself",
        amended_in_place,
        (in_repair("changed as it leaves", "the commit that changed it"),),
    ),
    Control("the archive is evidence", archive_unread, (RUNS("runs again after a restore"),)),
    Control("results are looked for", results_unlooked_for, (RUNS("invariant 8: bodies"),)),
    Control("epoch", one_epoch, (in_repair("announced in a former life", "applied twice"),)),
    Control(
        "gc_floor of a new life", old_gc_floor, (in_repair("collected in a former life", "invariant 8"),)
    ),
    Control("runs of a new life", runs_begin_again, (RUNS("was granted before"),)),
    Control("numbers of a new life", numbers_begin_again, (RUNS("counts from a number"),)),
    Control("a restore by compare-and-swap", restored_over_anything, (RUNS("invariant 1"),)),
    Control("floor at another time", reclocked_below, (RUNS("invariant 4"),)),
    Control("leases at another time", reclocked_leases, (RUNS("ends early"),)),
    Control(
        "purge: contents", lambda: _forgets("_wipe"), (in_repair("purged beside another", "was purged"),)
    ),
    Control("purge: objects", lambda: _forgets("_objects"), (RUNS("was purged"),)),
    Control("purge: backups", lambda: _forgets("_backups"), (RUNS("was purged"),)),
    Control("purge: state", lambda: _forgets("_forget"), (RUNS("still knows it"),)),
    Control(
        "purge: archive",
        lambda: _forgets("_archive"),
        (in_repair("purged after it was archived", "was purged"),),
    ),
    Control("purge: list for restores", unnoted, (RUNS("purged jobs came back"),)),
    Control(
        "purge: contents moved meanwhile",
        moved_contents,
        (in_repair("moved while it is purged", "was purged"),),
    ),
)
