"""The count of a job's leases with one step left out: by (job, run) the archive tells its records apart."""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec.structs import replace

from osqueue.core.backlog import BacklogDraft
from osqueue.core.draft import Draft
from osqueue.core.state import LeaseRecord

from .control import Control, in_runs, patched


def runs_begun_again() -> AbstractContextManager[None]:
    """``run`` begins again with ``attempt``: a release gives it back, and a redrive starts it anew."""
    real = Draft.grant

    def grant(self: Draft, lane: BacklogDraft, count: int, worker: str, lease_ms: int) -> list[LeaseRecord]:
        for at in range(min(count, len(lane.ready))):
            job = lane.ready[at]
            lane.ready[at] = replace(job, run=job.attempt)
        return real(self, lane, count, worker, lease_ms)

    return patched((Draft, "grant", grant))


CONTROLS: tuple[Control, ...] = (
    Control(
        "run", runs_begun_again, (in_runs("rough", "endings are in no archive part|was granted before"),)
    ),
)
