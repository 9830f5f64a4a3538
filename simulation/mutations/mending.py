"""The doctor's repair of ids that nobody can read, with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from osqueue.commit.effects import QueueFlow
from osqueue.core.queue_ops import RunTimers
from osqueue.core.state import Span
from osqueue.maintenance import orphan_ids
from osqueue.objects import backups
from osqueue.stores.base import Delete, Put

from .control import Control, in_scene, patched

LATEST_MS = 1 << 62


def nobody_looks_again() -> AbstractContextManager[None]:
    """Entries are mended, whoever may be about to enqueue on the word of what they were."""
    return patched((orphan_ids, "LOOK_AGAIN", RunTimers()))


def unreadable_jobs_have_no_ids() -> AbstractContextManager[None]:
    """An id is free if no job that can be read has it."""

    class Named(orphan_ids._NamedJobs):
        whole = property(lambda self: True, lambda self, value: None)

    return patched((orphan_ids, "_NamedJobs", Named))


def lost_heads_had_no_jobs() -> AbstractContextManager[None]:
    """Where there is no head there never was one."""

    def saved(queue: str, shard: int) -> QueueFlow[list[str]]:
        yield from ()
        return []

    return patched((backups, "saved", saved))


def jobs_that_are_over_come_first() -> AbstractContextManager[None]:
    """An entry is mended for a job that is over, also if another one lives."""

    class Named(orphan_ids._NamedJobs):
        def _live(self, client_id: str | None, key: bytes) -> None:
            self._over(client_id, key, 0)

    return patched((orphan_ids, "_NamedJobs", Named))


def the_first_that_ended() -> AbstractContextManager[None]:
    """Of several jobs that are over, the first to end counts."""

    class Named(orphan_ids._NamedJobs):
        def _over(self, client_id: str | None, key: bytes, ended_ms: int) -> None:
            super()._over(client_id, key, LATEST_MS - ended_ms)

    return patched((orphan_ids, "_NamedJobs", Named))


def cancelled_jobs_live() -> AbstractContextManager[None]:
    """A job that was cancelled in its segment counts as live."""
    real = orphan_ids._NamedJobs._spans

    def spans(self: Any, root: str, of: Sequence[Span], gone: Any, *, live: bool) -> QueueFlow[None]:
        yield from real(self, root, of, (), live=live)

    return patched((orphan_ids._NamedJobs, "_spans", spans))


def dead_letters_live() -> AbstractContextManager[None]:
    """A dead letter counts as a live job."""
    return patched((orphan_ids, "FAILED", "no state"))


def written_whatever_is_there() -> AbstractContextManager[None]:
    """An entry is written, even if it was freed and taken since it was read."""
    return patched((orphan_ids, "PutIfMatch", lambda key, body, version: Put(key, body)))


def removed_whatever_is_there() -> AbstractContextManager[None]:
    """An entry is removed, even if it was taken since it was read."""
    return patched((orphan_ids, "DeleteIfMatch", lambda key, version: Delete((key,))))


_RESULT = "was accepted under a, whose result lives"

CONTROLS: tuple[Control, ...] = (
    Control(
        "mended once all look again",
        nobody_looks_again,
        (
            in_scene("mended before its job comes", "whose entry had been removed"),
            in_scene("mended before another job comes", "a second job was accepted"),
        ),
    ),
    Control(
        "mended where all can be read",
        unreadable_jobs_have_no_ids,
        (in_scene("mended: one cannot be read", "an id was freed while its job"),),
    ),
    Control(
        "mended where there is a head",
        lost_heads_had_no_jobs,
        (in_scene("mended: a head is lost", "an id was freed while its job"),),
    ),
    Control(
        "mended for the job that lives",
        jobs_that_are_over_come_first,
        (in_scene("mended: one lives", "a second job was accepted"),),
    ),
    Control(
        "mended for the latest job",
        the_first_that_ended,
        (in_scene("mended: two are over", _RESULT),),
    ),
    Control(
        "not mended for a job that was cancelled",
        cancelled_jobs_live,
        (in_scene("mended: one was cancelled", _RESULT),),
    ),
    Control(
        "not mended for a dead letter",
        dead_letters_live,
        (in_scene("mended: one failed", _RESULT),),
    ),
    Control(
        "mended conditionally",
        written_whatever_is_there,
        (in_scene("freed as it is mended", "a second job was accepted|accepted a second time"),),
    ),
    Control(
        "removed conditionally",
        removed_whatever_is_there,
        (in_scene("removed by two", "an id was freed while its job"),),
    ),
)
