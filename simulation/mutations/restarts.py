"""Jobs that restart an id, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec.structs import replace

from osqueue.core import admin, reduce
from osqueue.core.draft import Draft
from osqueue.core.job_ops import CancelJob, JobSpec
from osqueue.core.ops import Code
from osqueue.core.state import JobRecord

from .control import Control, in_runs, patched

_accept = reduce._accept
PROFILE = "restarts"


def nobody_is_told() -> AbstractContextManager[None]:
    """The new job is accepted, and the one that runs is not asked to end."""

    def accept(draft: Draft, new: JobSpec, accepted: list[JobRecord]) -> Code:
        return _accept(draft, replace(new, restarts=b""), accepted)

    return patched((reduce, "_accept", accept))


def asked_for_nobody() -> AbstractContextManager[None]:
    """The one that runs is asked to end first, whatever becomes of the new job: it is refused, or comes later."""

    def accept(draft: Draft, new: JobSpec, accepted: list[JobRecord]) -> Code:
        if new.restarts:
            admin.cancel(draft, CancelJob(new.restarts))
            return Code.DELAYED_LIMIT
        return _accept(draft, new, accepted)

    return patched((reduce, "_accept", accept))


CONTROLS: tuple[Control, ...] = (
    Control("who runs is asked to end", nobody_is_told, (in_runs(PROFILE, "was not asked to end"),)),
    Control("for one that is accepted", asked_for_nobody, (in_runs(PROFILE, "none was accepted for it"),)),
)
