"""What somebody who watches a job is told of: every change but that its worker is alive."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..errors import NotFound
from ..model.job import Job
from ..model.validation import milliseconds
from ..operations.results import OVER

POLL_SECONDS_DEFAULT = 1.0
POLL_MS_MIN = 10
POLL_MS_MAX = 3_600_000


class JobWatch:
    """What one watcher has seen."""

    def __init__(self, job_id: str, poll: Any) -> None:
        self.job_id = job_id
        self.poll_seconds = milliseconds(poll, "poll", POLL_MS_MIN, POLL_MS_MAX) / 1000
        self.over = False
        self._seen: Job | None = None

    def news(self, job: Job | None) -> Job | None:
        """The job if it has changed. Raises NotFound when the first look finds none."""
        if job is None:
            if self._seen is None:
                raise NotFound(
                    f"job {self.job_id}: no such job in this queue, or its result is not kept any more."
                )
            self.over = True
            return None
        self.over = job.state in OVER
        quiet = replace(job, heartbeat_at=None, expires_at=None)
        if quiet == self._seen:
            return None
        self._seen = quiet
        return job
