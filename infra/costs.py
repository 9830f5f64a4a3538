"""What a month of a deployment costs: a calculator whose request counts the tests compare with counted ones.

    python -m infra.costs --jobs 1000000 --batch 10

Prices are those of us-east-1, list price in US dollars without the free tier, as published in 2026. They change: take
them for the shape of the bill. ``--way`` says how callers come: over HTTP, by direct invocation, or ``embedded`` (the
library talks to the bucket itself, no Lambda in between).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from msgspec import Struct

MILLION = 1_000_000
HOURS_A_MONTH = 730
MINUTES_A_MONTH = HOURS_A_MONTH * 60


class S3Prices(Struct, frozen=True):
    """Dollars a million requests, and a gigabyte a month."""

    name: str
    put: float  # also LIST
    get: float
    gigabyte_month: float
    gigabyte_written: float = 0.0
    gigabyte_read: float = 0.0


STANDARD = S3Prices("S3 Standard", put=5.0, get=0.4, gigabyte_month=0.023)
# For comparison only: directory buckets list in no order, and the store refuses them.
EXPRESS = S3Prices(
    "S3 Express One Zone",
    put=1.13,
    get=0.03,
    gigabyte_month=0.11,
    gigabyte_written=0.0032,
    gigabyte_read=0.0006,
)

LAMBDA_REQUEST = 0.20  # a million
LAMBDA_GB_SECOND = 13.3334  # a million, arm64
HTTP_API_REQUEST = 1.00  # a million
SCHEDULER_INVOCATION = 1.00  # a million
LOGS_GIGABYTE = 0.50  # ingested

MEMORY_GB = 0.5
REAPER_MEMORY_GB = 1.0
CALL_SECONDS = 0.06  # billed for a call that commits: mostly the wait for one or two PUTs of S3
EMPTY_CALL_SECONDS = 0.03  # one conditional GET
PASS_SECONDS = 0.4  # a reaper pass over an idle queue
LOG_BYTES_A_CALL = 1_200  # Lambda's own lines, ours, and the metrics
HEAD_BYTES = 20_000  # a head under steady work; each commit writes one
ARCHIVE_BYTES_A_JOB = 35

# Requests to the store. A commit is one PUT; its answer tells the new version, so the next needs no GET.
COMMITS_A_LIFE = 3  # enqueue, claim, complete
JOBS_A_SHELF = (
    60  # finished jobs leave the head together, at least this many or as many as finish in one call
)
PUT_A_NAMED_JOB = 1.0  # the entry of the client's id, which no batch shares
GET_A_RESULT = 2.0  # the head, and the entry of the client's id or the table the job lies in
GET_AN_EMPTY_CLAIM = 1.0  # conditional
GET_A_PASS, LIST_A_PASS = 5.0, 1.0  # the reaper, of one idle queue
LIST_A_TICK = 1.0  # the reaper, for the names of the queues


class Load(Struct, frozen=True):
    """A month of work."""

    jobs: int
    batch: int = 1  # jobs in one call, of producers and of workers
    named: float = 0.0  # share of the jobs that carry a client's id
    results: float = 0.0  # share whose result is read
    empty_claims: int = 0  # claims that find nothing
    queues: int = 1
    reap_minutes: int = 1
    way: str = "http"  # "http", "lambda" or "embedded"


class Used(Struct, frozen=True):
    """What a load asks for in a month."""

    put: float  # and LIST
    get: float
    calls: float  # of functions, the reaper's left out
    seconds: float  # they run, in all
    passes: float  # of the reaper, over single queues
    ticks: float  # of the schedule
    written_gb: float
    kept_gb: float


def used(load: Load) -> Used:
    """The requests of a load, as the protocol makes them when nobody collides."""
    commits = COMMITS_A_LIFE * load.jobs / load.batch
    reads = load.results * load.jobs
    ticks = MINUTES_A_MONTH / load.reap_minutes
    passes = ticks * load.queues
    shelved = load.jobs / max(JOBS_A_SHELF, load.batch)
    put = commits + shelved + PUT_A_NAMED_JOB * load.named * load.jobs
    lists = LIST_A_PASS * passes + LIST_A_TICK * ticks
    get = GET_A_RESULT * reads + GET_AN_EMPTY_CLAIM * load.empty_claims + GET_A_PASS * passes
    embedded = load.way == "embedded"
    calls = 0.0 if embedded else commits + reads + load.empty_claims
    seconds = 0.0 if embedded else commits * CALL_SECONDS + (reads + load.empty_claims) * EMPTY_CALL_SECONDS
    return Used(
        put + lists,
        get,
        calls,
        seconds,
        passes,
        ticks,
        commits * HEAD_BYTES / 1e9,
        load.jobs * ARCHIVE_BYTES_A_JOB / 1e9,
    )


class Line(Struct, frozen=True):
    """One line of the bill."""

    what: str
    amount: float
    unit: str
    dollars: float


def bill(load: Load, prices: S3Prices = STANDARD) -> list[Line]:
    """What a month of a load costs, line by line."""
    found = used(load)
    passing = found.passes * PASS_SECONDS * REAPER_MEMORY_GB
    gb_seconds = found.seconds * MEMORY_GB + passing
    invocations = found.calls + found.ticks
    lines = [
        Line("S3 PUT and LIST", found.put, "requests", found.put * prices.put / MILLION),
        Line("S3 GET", found.get, "requests", found.get * prices.get / MILLION),
        Line("S3 bytes written", found.written_gb, "GB", found.written_gb * prices.gigabyte_written),
        Line("S3 storage", found.kept_gb, "GB", found.kept_gb * prices.gigabyte_month),
        Line("Lambda requests", invocations, "requests", invocations * LAMBDA_REQUEST / MILLION),
        Line("Lambda time", gb_seconds, "GB-seconds", gb_seconds * LAMBDA_GB_SECOND / MILLION),
        Line("Scheduler", found.ticks, "invocations", found.ticks * SCHEDULER_INVOCATION / MILLION),
    ]
    if load.way == "http":
        lines.append(Line("HTTP API", found.calls, "requests", found.calls * HTTP_API_REQUEST / MILLION))
    logged = invocations * LOG_BYTES_A_CALL / 1e9
    lines.append(Line("Logs", logged, "GB", logged * LOGS_GIGABYTE))
    return lines


def total(load: Load, prices: S3Prices = STANDARD) -> float:
    """Dollars a month."""
    return sum(line.dollars for line in bill(load, prices))


IDLE = Load(jobs=0)


def by_batch(jobs: int = MILLION) -> Iterator[str]:
    """The table of the documentation: dollars for that many jobs a month, beyond what idling costs."""
    yield "| jobs in one call | embedded | direct invocation | HTTP |"
    yield "| ---: | ---: | ---: | ---: |"
    for batch in (1, 10, 100, 1000):
        cells = [
            total(Load(jobs, batch, way=way)) - total(Load(0, way=way))
            for way in ("embedded", "lambda", "http")
        ]
        yield f"| {batch:,} | " + " | ".join(f"${cell:,.2f}" for cell in cells) + " |"


def main() -> None:
    """Print a bill."""
    options = argparse.ArgumentParser(
        description="What a month of a deployment costs (us-east-1, list prices)."
    )
    options.add_argument("--jobs", type=int, default=MILLION, help="jobs a month (1,000,000)")
    options.add_argument("--batch", type=int, default=1, help="jobs in one call (1)")
    options.add_argument("--named", type=float, default=0.0, help="share of jobs with a client's id (0)")
    options.add_argument("--results", type=float, default=0.0, help="share whose result is read (0)")
    options.add_argument("--empty-claims", type=int, default=0, help="claims that find nothing (0)")
    options.add_argument("--queues", type=int, default=1, help="how many queues (1)")
    options.add_argument("--reap-minutes", type=int, default=1, help="minutes between reaper passes (1)")
    options.add_argument("--way", choices=("http", "lambda", "embedded"), default="http")
    options.add_argument("--table", action="store_true", help="the table by batch size instead")
    asked = vars(options.parse_args())
    if asked.pop("table"):
        print("\n".join(by_batch(asked["jobs"])))
        return
    load = Load(**asked)
    for prices in (STANDARD, EXPRESS):
        print(f"{prices.name}:")
        for line in bill(load, prices):
            print(f"  {line.what:<18}{line.amount:>16,.1f} {line.unit:<12}{line.dollars:>10,.2f} $")
        print(f"  {'a month':<18}{'':>29}{total(load, prices):>10,.2f} $")


if __name__ == "__main__":
    main()
