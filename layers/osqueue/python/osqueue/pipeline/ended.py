"""What metrics and a report tell of: jobs that ended and their leases, without those whose clock was wrong."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from msgspec import Struct

from .clocks import TRUSTED
from .engines.base import Engine, Relation, rows
from .tables import ATTEMPTS, JOBS

# What is asked for. To read a table of many small files costs as much as it has columns.
JOB_COLUMNS = (
    *("job_id", "state", "attempt", "redriven", "wait_ms", "total_ms", "attempts", "clock_suspect"),
    *("enqueued_at", "claimable_at", "started_at", "finished_at"),
)
LEASE_COLUMNS = (
    *("job_id", "worker", "started_at", "ended_at", "outcome", "error", "error_type", "run_ms", "final"),
    "clock_suspect",
)


class EndedJobs(Struct, frozen=True):
    """Of some queues, or archived from a day on."""

    jobs: Relation
    attempts: Relation
    suspect: Relation  # jobs that are in neither: their moments cannot be


def ended(engine: Engine, root: str, queues: Sequence[str] = (), since: date | None = None) -> EndedJobs:
    """The jobs of the tables below a folder. Several steps of one run share them, so that they are read once."""
    jobs = engine.read(root, JOBS, queues, since, JOB_COLUMNS)
    attempts = engine.read(root, ATTEMPTS, queues, since, LEASE_COLUMNS)
    return EndedJobs(
        engine.sql(f"SELECT * FROM {jobs} WHERE {TRUSTED}"),
        engine.sql(f"SELECT * FROM {attempts} WHERE {TRUSTED}"),
        engine.sql(f"SELECT * FROM {jobs} WHERE NOT ({TRUSTED})"),
    )


def by_queue(engine: Engine, jobs: Relation) -> dict[str, int]:
    """How many there are of each queue."""
    found = engine.sql(f"SELECT queue, count(*) AS number FROM {jobs} GROUP BY queue ORDER BY queue")
    return {row["queue"]: row["number"] for row in rows(engine, found)}
