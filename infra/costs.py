"""What a month of a deployment costs: a calculator whose request counts the tests compare with counted ones.

    .venv/bin/python -m infra.costs --jobs 1000000 --batch 10

Prices are those of us-east-1, list price in US dollars without the free tier, as published in 2026. They change: take
them for the shape of the bill. ``--way`` says how callers come: over HTTP, by direct invocation, or ``embedded`` (the
library talks to the bucket itself, no Lambda in between).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from osqueue.stores.prices import EXPRESS, MILLION, STANDARD, StorePrices

HOURS_A_MONTH = 730
MINUTES_A_MONTH = HOURS_A_MONTH * 60

LAMBDA_REQUEST = 0.20  # a million
LAMBDA_GB_SECOND = 13.3334  # a million, arm64
HTTP_API_REQUEST = 1.00  # a million
SQS_REQUEST = 0.40  # a million, of a standard queue; one takes up to ten messages
SCHEDULER_INVOCATION = 1.00  # a million
EVENT = 1.00  # a million, put on a bus of one's own
LOGS_GIGABYTE = 0.50  # ingested
METRIC_MONTH = 0.30  # a name with its dimensions, counted by the hour in which it is emitted
ALARM_MONTH = 0.10  # for each metric that an alarm looks at
DASHBOARD_MONTH = 3.00

MEMORY_GB = 0.5
REAPER_MEMORY_GB = 1.0
LOOK_SECONDS = 0.03  # billed for one GET of S3
COMMIT_SECONDS = 0.06  # for one PUT
PASS_SECONDS = 0.4  # a reaper pass over an idle queue
TELL_SECONDS = 0.02  # a request to the bus, made before the call is answered
WAKE_SECONDS = 0.02  # a request to Lambda for a consumer, likewise
HEAD_BYTES = 20_000  # a head under steady work; each commit writes one
ARCHIVE_BYTES_A_JOB = 35

# Requests to the store. A commit is one PUT. Its response has the new version, so the next commit of the same writer
# needs no GET of the head if no other writer committed in between. Of the deployed functions each has processes of its
# own, so another writer always did. Writers also look where others publish their requests: at the door.
COMMITS_A_LIFE = 3  # enqueue, claim, complete
COMMITS_A_PUSH = 2  # of these by the consumer: a claim, and a turn in which nothing is left
GET_A_COMMIT_ALONE = 1 / 4  # the door, beside every fourth swap
GET_A_CALL = 1.75  # of a function that commits: the head, and the door where it most likely changes something
GET_A_COMMIT_PUSHED = 2.0  # of a producer that finds the commits of a consumer: the head and the door
GET_A_PUSH = (
    2.0  # of a consumer that was here before: the head, with the queue's settings in it, and the door
)
JOBS_A_SHELF = (
    60  # finished jobs leave the head together, at least this many or as many as finish in one call
)
PUT_A_NAMED_JOB = 1.0  # the entry of the client's id, which no batch shares
GET_A_RESULT = 2.0  # the head, and the entry of the client's id or the table the job lies in
GET_AN_EMPTY_CLAIM = 1.0  # conditional
PUT_A_WORD = GET_A_WORD = 1.0  # a worker's that it is there, with a look whether its queue is
WORDS_A_MINUTE = 1.0
GET_A_PASS, LIST_A_PASS = 7.0, 1.0  # the reaper, of one idle queue; with the look that the metrics take
LIST_A_TICK = 1.0  # the reaper, for the names of the queues
CLOCK_MINUTES = 10  # after which a process asks for S3's time again: one PUT, one GET
BACKUP_MINUTES = 60  # between copies of a head: one PUT, one LIST, one GET

SQS_MESSAGES_MAX = 10  # in a request
SQS_REQUESTS_A_LIFE = 3  # send, receive, delete

EVENTS_A_LIFE = 3  # queued, processing, completed
EVENTS_A_PUSH = 2  # of these by the consumer, where it tells the bus: processing, completed
EVENTS_A_REQUEST = 10

# What is written to logs, in bytes, with the 26 that CloudWatch adds to each line.
LAMBDA_LOG_BYTES = 450  # START, END and REPORT of an invocation
CALL_LOG_BYTES = 720  # of a call that commits: its line, with its metrics
CONSUMER_LOG_BYTES = 560  # of a consumer's invocation: its metrics
PASS_LOG_BYTES = 400  # of a pass over one queue: its metrics
TICK_LOG_BYTES = 260  # of a tick: the metric that tells of it
ACCESS_LOG_BYTES = 600  # the gateway's line

# Metrics that are emitted all month: by the reaper, and where anything is committed by functions or consumers.
PASS_METRICS = 3  # of each queue: jobs that wait, their age, dead letters
TICK_METRICS = 3  # of the deployment
JOB_METRICS = 4  # of each queue: what came, completed and failed, and how long it waited
PUSH_METRICS = 1  # of each queue whose jobs consumers take: invocations
CONSUMED_METRICS = (
    3  # of each queue, what consumers tell of jobs that no function has seen: all but what came
)
COMMIT_METRICS = 5  # of the deployment
ALARM_METRICS = 41  # that alarms look at, each as often as one does
PIPELINE_ALARM_METRICS = 7  # and those about the pipeline

# A run of the Spark pipeline every hour. What a run takes is an assumption: the driver and one executor, minutes.
SPARK_CPU_HOUR = 0.052624  # of x86; those of ARM64, on which it runs, cost about a fifth less
SPARK_GB_HOUR = 0.0057785  # likewise
RUN_CPUS = 4  # of the driver and one executor
RUN_GB = 16


class Workload(Struct, frozen=True):
    """A month of work."""

    jobs: int
    batch: int = 1  # jobs in one call, of producers and of workers
    named: float = 0.0  # share of the jobs that carry a client's id
    results: float = 0.0  # share whose result is read
    empty_claims: int = 0  # claims that find nothing
    workers: int = 0  # that run all month; what their looks for jobs cost is not in it
    queues: int = 1
    reap_minutes: int = 1
    way: str = "http"  # "http", "lambda" or "embedded"
    pushed: bool = False  # are jobs taken by consumers that commits wake, with nobody awake before?
    events: bool = True  # are functions to tell the bus?
    pipeline_minutes: float = 0.0  # that each hourly run of the Spark pipeline takes; 0: there is none


class Usage(Struct, frozen=True):
    """What a load asks for in a month."""

    put: float  # and LIST
    get: float
    calls: float  # of functions, the reaper's left out
    pushes: float  # invocations of consumers
    seconds: float  # all of these run, but for what handlers take
    passes: float  # of the reaper, over single queues
    ticks: float  # of the schedule
    events: float
    metrics: float
    logged_gb: float
    written_gb: float
    kept_gb: float


def used(load: Workload) -> Usage:
    """The requests of a load, as the protocol makes them when nobody collides."""
    deployed = load.way != "embedded"
    calls_for_jobs = load.jobs / load.batch
    pushes = calls_for_jobs if load.pushed else 0.0
    own = COMMITS_A_PUSH * pushes  # of consumers, which are at home in the bucket
    commits = COMMITS_A_LIFE * calls_for_jobs - own
    looks = load.results * load.jobs + load.empty_claims
    words = WORDS_A_MINUTE * MINUTES_A_MONTH * load.workers
    ticks = MINUTES_A_MONTH / load.reap_minutes
    passes = ticks * load.queues
    clocks = passes / max(1, CLOCK_MINUTES / load.reap_minutes)
    backups = passes / max(1, BACKUP_MINUTES / load.reap_minutes)
    put = (
        commits
        + own
        + load.jobs / max(JOBS_A_SHELF, load.batch)
        + PUT_A_NAMED_JOB * load.named * load.jobs
        + PUT_A_WORD * words
        + LIST_A_PASS * passes
        + LIST_A_TICK * ticks
        + clocks
        + 2 * backups
    )
    get = (
        GET_A_RESULT * load.results * load.jobs
        + GET_AN_EMPTY_CLAIM * load.empty_claims
        + GET_A_WORD * words
        + GET_A_PASS * passes
        + clocks
        + backups
        + commits * (GET_A_CALL if deployed else GET_A_COMMIT_PUSHED if pushes else GET_A_COMMIT_ALONE)
        + GET_A_PUSH * pushes
    )
    calls = commits + looks + words if deployed else 0.0
    told = EVENTS_A_LIFE if deployed else EVENTS_A_PUSH if load.pushed else 0
    events = float(told * load.jobs) if load.events else 0.0
    tellings = events / min(EVENTS_A_REQUEST, load.batch)
    working = (
        (commits + words) * (LOOK_SECONDS + COMMIT_SECONDS)
        + looks * LOOK_SECONDS
        + tellings * TELL_SECONDS
        + pushes * WAKE_SECONDS
    )
    pushed = own * COMMIT_SECONDS + pushes * GET_A_PUSH * LOOK_SECONDS
    if not deployed:
        pushed += tellings * TELL_SECONDS  # of consumers alone
    logged = (
        (calls + ticks + pushes) * LAMBDA_LOG_BYTES
        + (commits * CALL_LOG_BYTES if deployed else 0.0)
        + (calls * ACCESS_LOG_BYTES if load.way == "http" else 0.0)
        + passes * PASS_LOG_BYTES
        + ticks * TICK_LOG_BYTES
        + pushes * CONSUMER_LOG_BYTES
    )
    job_metrics = _job_metrics(load, deployed) if load.jobs else 0
    return Usage(
        put=put,
        get=get,
        calls=calls,
        pushes=pushes,
        seconds=(working if deployed else 0.0) + pushed,
        passes=passes,
        ticks=ticks,
        events=events,
        metrics=(PASS_METRICS + job_metrics) * float(load.queues)
        + TICK_METRICS
        + (COMMIT_METRICS if job_metrics else 0),
        logged_gb=logged / 1e9,
        written_gb=(commits + own) * HEAD_BYTES / 1e9,
        kept_gb=load.jobs * ARCHIVE_BYTES_A_JOB / 1e9,
    )


def _job_metrics(load: Workload, deployed: bool) -> int:
    """Of each queue, by whoever commits for its deployment; the library in a process of one's own emits none."""
    if deployed:
        return JOB_METRICS + (PUSH_METRICS if load.pushed else 0)
    return CONSUMED_METRICS if load.pushed else 0


class CostLine(Struct, frozen=True):
    """One line of the bill."""

    what: str
    amount: float
    unit: str
    dollars: float


def bill(load: Workload, prices: StorePrices = STANDARD) -> list[CostLine]:
    """What a month of a load costs, line by line."""
    found = used(load)
    passing = found.passes * PASS_SECONDS * REAPER_MEMORY_GB
    gb_seconds = found.seconds * MEMORY_GB + passing
    invocations = found.calls + found.ticks + found.pushes
    gateway = found.calls if load.way == "http" else 0.0
    running = HOURS_A_MONTH * load.pipeline_minutes / 60
    alarms = ALARM_METRICS + (PIPELINE_ALARM_METRICS if load.pipeline_minutes else 0)
    return [
        CostLine("S3 PUT and LIST", found.put, "requests", found.put * prices.put / MILLION),
        CostLine("S3 GET", found.get, "requests", found.get * prices.get / MILLION),
        CostLine("S3 bytes written", found.written_gb, "GB", found.written_gb * prices.gigabyte_written),
        CostLine("S3 storage", found.kept_gb, "GB", found.kept_gb * prices.gigabyte_month),
        CostLine("Lambda requests", invocations, "requests", invocations * LAMBDA_REQUEST / MILLION),
        CostLine("Lambda time", gb_seconds, "GB-seconds", gb_seconds * LAMBDA_GB_SECOND / MILLION),
        CostLine("HTTP API", gateway, "requests", gateway * HTTP_API_REQUEST / MILLION),
        CostLine("Scheduler", found.ticks, "invocations", found.ticks * SCHEDULER_INVOCATION / MILLION),
        CostLine("Events", found.events, "events", found.events * EVENT / MILLION),
        CostLine("Logs", found.logged_gb, "GB", found.logged_gb * LOGS_GIGABYTE),
        CostLine("Metrics", found.metrics, "metrics", found.metrics * METRIC_MONTH),
        CostLine("Alarms", alarms, "metrics", alarms * ALARM_MONTH),
        CostLine("Dashboard", 1, "dashboard", DASHBOARD_MONTH),
        CostLine("Spark processors", running * RUN_CPUS, "vCPU-hours", running * RUN_CPUS * SPARK_CPU_HOUR),
        CostLine("Spark memory", running * RUN_GB, "GB-hours", running * RUN_GB * SPARK_GB_HOUR),
    ]


def total(load: Workload, prices: StorePrices = STANDARD) -> float:
    """Dollars a month."""
    return sum(line.dollars for line in bill(load, prices))


def beyond_idle(load: Workload) -> float:
    """Dollars a month, beyond what the same deployment costs when nobody calls."""
    idle = Workload(0, queues=load.queues, reap_minutes=load.reap_minutes)
    return total(load) - total(idle)


def by_batch(jobs: int = MILLION) -> Iterator[str]:
    """The table of the documentation: dollars for that many jobs a month, beyond what idling costs."""
    yield "| jobs in one call | embedded | direct invocation | HTTP | HTTP, without events |"
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for batch in (1, 10, 100, 1000):
        ways = [Workload(jobs, batch, way=way) for way in ("embedded", "lambda", "http")]
        ways.append(Workload(jobs, batch, events=False))
        yield f"| {batch:,} | " + " | ".join(f"${beyond_idle(each):,.2f}" for each in ways) + " |"


def by_pushes(jobs: int = MILLION) -> Iterator[str]:
    """That of consumers, beside SQS and its event source mapping: what comes on top of the handler's time."""
    yield "| jobs in one call | the library in the producer | direct invocation | SQS |"
    yield "| ---: | ---: | ---: | ---: |"
    for batch in (1, 10, 100):
        ways = [Workload(jobs, batch, way=way, events=False, pushed=True) for way in ("embedded", "lambda")]
        requests = jobs / min(batch, SQS_MESSAGES_MAX)
        sqs = requests * (SQS_REQUESTS_A_LIFE * SQS_REQUEST + LAMBDA_REQUEST) / MILLION
        dollars = [*(beyond_idle(each) for each in ways), sqs]
        yield f"| {batch:,} | " + " | ".join(f"${each:,.2f}" for each in dollars) + " |"


def _checked(what: str, type: type[Any], least: float, most: float) -> Callable[[str], Any]:
    """What reads an option, and refuses what is none."""

    def read(text: str) -> Any:
        try:
            value = type(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not a {what}")
        return value

    return read


_count = _checked("whole number from 0 on", int, 0, math.inf)
_number = _checked("whole number from 1 on", int, 1, math.inf)
_share = _checked("share, from 0 to 1", float, 0, 1)
_minutes = _checked("number of minutes, from 0 to 60", float, 0, 60)


def main() -> None:
    """Print a bill."""
    options = argparse.ArgumentParser(
        description="What a month of a deployment costs (us-east-1, list prices)."
    )
    options.add_argument("--jobs", type=_count, default=MILLION, help="jobs a month (1,000,000)")
    options.add_argument("--batch", type=_number, default=1, help="jobs in one call (1)")
    options.add_argument("--named", type=_share, default=0.0, help="share of jobs with a client's id (0)")
    options.add_argument("--results", type=_share, default=0.0, help="share whose result is read (0)")
    options.add_argument("--empty-claims", type=_count, default=0, help="claims that find nothing (0)")
    options.add_argument("--workers", type=_count, default=0, help="workers that run all month (0)")
    options.add_argument("--queues", type=_count, default=1, help="how many queues (1)")
    options.add_argument("--reap-minutes", type=_number, default=1, help="minutes between reaper passes (1)")
    options.add_argument("--way", choices=("http", "lambda", "embedded"), default="http")
    options.add_argument(
        "--pushed", action="store_true", help="consumers take the jobs, which nobody waits for"
    )
    options.add_argument("--no-events", dest="events", action="store_false", help="the bus is switched off")
    options.add_argument(
        "--pipeline-minutes", type=_minutes, default=0.0, help="of each hourly run of the pipeline (0: none)"
    )
    options.add_argument("--express", action="store_true", help="the bucket is one of S3 Express One Zone")
    options.add_argument("--table", action="store_true", help="the tables by batch size instead")
    asked = vars(options.parse_args())
    if asked.pop("table"):
        print("\n".join(by_pushes(asked["jobs"]) if asked["pushed"] else by_batch(asked["jobs"])))
        return
    prices = EXPRESS if asked.pop("express") else STANDARD
    load = Workload(**asked)
    print(f"{prices.name}:")
    for line in bill(load, prices):
        print(f"  {line.what:<18}{line.amount:>16,.1f} {line.unit:<12}{line.dollars:>10,.2f} $")
    print(f"  {'a month':<18}{'':>29}{total(load, prices):>10,.2f} $")


if __name__ == "__main__":
    main()
