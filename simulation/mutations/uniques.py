"""Jobs that take the place of others, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow
from osqueue.core import admin, replacing, tables
from osqueue.core.draft import Draft
from osqueue.core.job_ops import CancelJob, JobSpec
from osqueue.core.ops import Code
from osqueue.core.replacing import _Waiting
from osqueue.core.state import QUEUED, FinishedJob, JobRecord, Span, State
from osqueue.objects import id_index
from osqueue.objects.id_index import FinishedId, IdEntry
from osqueue.operations.dedup_attempt import DedupAttempt, Takeover
from osqueue.operations.deduplication import Deduplication

from .control import Control, in_runs, in_scene, patched


def the_old_one_stays() -> AbstractContextManager[None]:
    """The new job comes, and the old one stays where it waits."""

    def take(old: _Waiting, draft: Draft) -> None:
        return None

    return patched((_Waiting, "take", take))


def without_a_successor() -> AbstractContextManager[None]:
    """The old job does not name the one that took its place."""
    finish = Draft.finish

    def finished(draft: Draft, *args: Any, **more: Any) -> None:
        finish(draft, *args, **{**more, "successor": None})

    return patched((Draft, "finish", finished))


def not_followed() -> AbstractContextManager[None]:
    """A job that was replaced counts as over: its id may be used again."""

    def follow(
        self: Deduplication, item: DedupAttempt, where: int, state: State, row: FinishedJob
    ) -> Flow[None]:
        yield from self._take_over(item, Takeover(lambda: self.draw(0), state))

    return patched((Deduplication, "_follow", follow))


def enqueued_again_under_its_key() -> AbstractContextManager[None]:
    """An entry whose job is nowhere was never enqueued, whatever it says."""

    def follow(queue: str, client_id: str, entry: IdEntry, key: bytes, place: int) -> Flow[IdEntry | None]:
        return (yield from id_index.replace(queue, client_id, entry, key))

    return patched((id_index, "follow", follow))


def freed_under_its_successor() -> AbstractContextManager[None]:
    """The id of a forgotten job is free, also where another had taken its place."""

    def nothing(self: FinishedId, entry: IdEntry) -> None:
        return None

    return patched((FinishedId, "handed_on", nothing))


def freed_only_for_its_own() -> AbstractContextManager[None]:
    """An id is handed on where it stands for the forgotten job itself, and not for one before it."""
    real = FinishedId.handed_on

    def handed_on(self: FinishedId, entry: IdEntry) -> bytes | None:
        return real(self, entry) if entry.key == self.key else None

    return patched((FinishedId, "handed_on", handed_on))


def evidence_of_a_passed_place() -> AbstractContextManager[None]:
    """A job waits in its segment for as long as the segment is there."""

    def holds(span: Span, op: CancelJob) -> bool:
        return admin.still_holds(replace(span, offset=0, skip=0), op)

    return patched((replacing, "still_holds", holds))


def replaced_while_it_runs() -> AbstractContextManager[None]:
    """A job that has just started is replaced as if it waited."""
    find = replacing._find

    def found(draft: Draft, op: CancelJob) -> _Waiting | None:
        lease = draft.leases.get(op.key)
        return find(draft, op) if lease is None else _Waiting(lease.job, QUEUED)

    return patched((replacing, "_find", found))


def cancelled_for_another() -> AbstractContextManager[None]:
    """Whoever cancels a job that was replaced meanwhile is told that it is cancelled."""
    cancel = admin.cancel

    def cancelled(draft: Draft, op: CancelJob) -> Code:
        code = cancel(draft, op)
        return Code.CANCELLED if any(row.key == op.key and row.successor for row in draft.finished) else code

    return patched((admin, "cancel", cancelled))


def forgotten_with_its_result() -> AbstractContextManager[None]:
    """A window is over when the result is."""

    def known_until_ms(row: FinishedJob) -> int:
        return row.expires_ms

    return patched((tables, "known_until_ms", known_until_ms))


_successor = replacing._successor


def _postponed(draft: Draft, old: JobRecord, new: JobSpec) -> JobRecord:
    fresh = _successor(draft, old, new)
    due = max(new.at_ms, draft.after(new.delay_ms))
    return replace(fresh, due_ms=due) if fresh.due_by_ms and due > draft.now else fresh


def postponed_for_ever() -> AbstractContextManager[None]:
    """A job is postponed each time, however long it has waited."""
    return patched((replacing, "_successor", _postponed))


CONTROLS: tuple[Control, ...] = (
    Control(
        "the longest wait of a job",
        postponed_for_ever,
        (in_runs("uniques", "beyond its longest wait", seed=2),),
    ),
    Control("the old job goes", the_old_one_stays, (in_runs("uniques", "is in two places"),)),
    Control(
        "the old job names its successor",
        without_a_successor,
        (in_scene("replaced again", "were to take a place"), in_runs("uniques", "were to take a place")),
    ),
    Control(
        "whoever finds a job that was replaced follows it",
        not_followed,
        (
            in_scene("replaced and asked for by another", "a second job was accepted"),
            in_runs("uniques", "a second job was accepted", seed=3),
        ),
    ),
    Control(
        "an entry says that its job was accepted",
        enqueued_again_under_its_key,
        (in_scene("told of too late", "was accepted a second time"),),
    ),
    Control(
        "an id goes over to the successor",
        freed_under_its_successor,
        (in_scene("forgotten before its successor is told of", "an id was freed while the job that took"),),
    ),
    Control(
        "an id that is behind is brought forward before a job is forgotten",
        freed_only_for_its_own,
        (in_scene("forgotten in between", "a second job was accepted|an id was freed while"),),
    ),
    Control(
        "a job is replaced where it still is to come",
        evidence_of_a_passed_place,
        (in_scene("started as it is replaced in a segment", "is in two places"),),
    ),
    Control(
        "a job that runs is not replaced",
        replaced_while_it_runs,
        (in_scene("started as it is replaced", "is in two places"), in_runs("uniques", "is in two places")),
    ),
    Control(
        "a cancel follows a replacement",
        cancelled_for_another,
        (in_scene("cancelled as it is replaced", "the job that stands for it waits"),),
    ),
    Control(
        "a job is known while its window lasts",
        forgotten_with_its_result,
        (in_runs("uniques", "an id was freed in the window", seed=11, seeds=1),),
    ),
)
