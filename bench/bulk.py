"""One call that enqueues 1,000,000 jobs, on files flushed to disk; and calls of up to 1,000 by 8 writers, simulated."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from bench import crowds, ours
from bench.fleet import run_one
from bench.row import BenchOptions, Figure, at_most, exactly

JOBS = 1_000_000
SECONDS_MAX = 30.0
REQUESTS_MAX = 300


def run(options: BenchOptions) -> Iterator[Figure]:
    jobs = max(1, int(JOBS * options.scale))
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        mine = run_one(ours.command("bulk", f"file://{folder}", "--jobs", jobs))
    note = ", ".join(f"{count} {kind.upper()}" for kind, count in mine["requests"].items() if count)
    yield exactly(
        "jobs queued",
        mine["queued"],
        jobs,
        "jobs",
        "" if mine["first"] else "the first claim is not the first job",
    )
    yield at_most(
        f"enqueue of {jobs:,} jobs",
        mine["seconds"],
        SECONDS_MAX,
        "s",
        f"{jobs / mine['seconds']:,.0f} jobs/s",
    )
    yield at_most(
        "store requests, a claim included", sum(mine["requests"].values()), REQUESTS_MAX, "requests", note
    )
    yield Figure(
        "peak memory", mine["peak_mb"], "MB", note=f"{mine['input_mb']:,.0f} MB of it the caller's list"
    )
    yield from crowds.run(options)
