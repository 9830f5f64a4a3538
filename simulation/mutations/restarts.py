"""Jobs that restart an id, with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow
from osqueue.core import admin, reduce, replacing
from osqueue.core.draft import Draft
from osqueue.core.job_ops import CancelJob, JobSpec
from osqueue.core.ops import Code
from osqueue.core.state import JobRecord
from osqueue.maintenance import orphan_ids
from osqueue.objects import id_index
from osqueue.objects.id_index import IdEntry
from osqueue.stores.base import DeleteIfMatch

from .control import Control, in_runs, in_scene, patched

_accept = reduce._accept
PROFILE = "restarts"


def nobody_is_told() -> AbstractContextManager[None]:
    """The new job is accepted, and the one that runs is not asked to end."""

    def accept(draft: Draft, new: JobSpec, accepted: list[JobRecord]) -> Code:
        return _accept(draft, replace(new, restarts=None), accepted)

    return patched((reduce, "_accept", accept))


def asked_for_nobody() -> AbstractContextManager[None]:
    """The one that runs is asked to end first, whatever becomes of the new job: it is refused, or comes later."""

    def accept(draft: Draft, new: JobSpec, accepted: list[JobRecord]) -> Code:
        if new.restarts is not None:
            admin.cancel(draft, new.restarts)
            return Code.DELAYED_LIMIT
        return _accept(draft, new, accepted)

    return patched((reduce, "_accept", accept))


def accepted_without_a_look() -> AbstractContextManager[None]:
    """The new job is accepted also where the one that ran is nowhere to be seen."""
    real = replacing.make_room

    def make_room(draft: Draft, op: CancelJob) -> bool:
        real(draft, op)
        return True

    return patched((replacing, "make_room", make_room))


def whoever_replaced_it_stays() -> AbstractContextManager[None]:
    """A job whose place another has taken counts as one that is over."""
    real = replacing.make_room

    def make_room(draft: Draft, op: CancelJob) -> bool:
        return op.key in replacing._heirs(draft) or real(draft, op)

    return patched((replacing, "make_room", make_room))


def the_entry_does_not_tell() -> AbstractContextManager[None]:
    """An entry names the new job alone."""
    real = id_index.replace

    def replaced(queue: str, client_id: str, entry: IdEntry, key: bytes, *_: Any) -> Flow[IdEntry | None]:
        return (yield from real(queue, client_id, entry, key))

    return patched((id_index, "replace", replaced))


def swept_with_the_old_one() -> AbstractContextManager[None]:
    """An entry whose job nobody enqueued is removed, whoever runs under its id."""

    def without(queue: str, gone: Sequence[orphan_ids.FoundEntry]) -> Flow[list[DeleteIfMatch]]:
        yield from ()
        return [DeleteIfMatch(each.place, each.version) for each in gone]

    return patched((orphan_ids, "_without", without))


CONTROLS: tuple[Control, ...] = (
    Control(
        "who runs is asked to end", nobody_is_told, (in_runs(PROFILE, "was not asked to end|a second job"),)
    ),
    Control("for one that is accepted", asked_for_nobody, (in_runs(PROFILE, "none was accepted for it"),)),
    Control(
        "who is nowhere to be seen is looked for",
        accepted_without_a_look,
        (in_scene("failed as it is restarted", "a job that was restarted is failing"),),
    ),
    Control(
        "who took the place of the one that ran makes room, too",
        whoever_replaced_it_stays,
        (in_scene("replaced as it is restarted", "a job that was restarted is queued"),),
    ),
    Control(
        "an entry tells who runs",
        the_entry_does_not_tell,
        (in_scene("restarted by the next caller", "a second job was accepted"),),
    ),
    Control(
        "an id goes back to the one that runs",
        swept_with_the_old_one,
        (in_scene("swept before it was restarted", "a second job was accepted"),),
    ),
)
