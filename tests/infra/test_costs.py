"""The cost calculator counts requests as the queue makes them, and the documentation prints what it says."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
import pytest

from infra import costs
from infra.costs import (
    MINUTES_A_MONTH,
    Workload,
    beyond_idle,
    bill,
    by_batch,
    by_pushes,
    total,
    used,
)
from osqueue import Queue
from osqueue.aws import consumer
from osqueue.clock import MACHINE
from osqueue.contract.functions import FUNCTIONS
from osqueue.model.worker import WorkerEntry
from osqueue.stores.base import Store
from osqueue.stores.memory import MemoryStore
from osqueue.stores.prices import EXPRESS, STANDARD, StorePrices
from osqueue.testing import Clock
from osqueue.testing.consumers import InvocationContext, LocalWaker
from osqueue.worker import registration
from tests.support.places import ROOT

PAYLOAD = {"to": "ada@example.com", "template": "welcome", "n": 12345}
TOLERANCE = 0.05  # of the requests: tables of finished jobs are written when they are full
HOUR_MINUTES, DAY_MINUTES = 60, 24 * 60
LINE_BYTES = 26  # that CloudWatch adds

_names = itertools.count(1)

pytestmark = pytest.mark.usefixtures("runtime_log")


@pytest.fixture
def queue() -> Queue[Any]:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    live(q, 1, 1)
    return q


def live(q: Queue[Any], jobs: int, batch: int, named: bool = False, read: bool = False) -> None:
    for start in range(0, jobs, batch):
        ids = [f"{start + n}" if named else None for n in range(batch)]
        q.enqueue_many([{"payload": PAYLOAD, "id": each} for each in ids])
        q.complete_many(
            [
                {"job_id": each.job_id, "token": each.token, "result": {"n": 1}}
                for each in q.claim(limit=batch)
            ]
        )
        for each in ids if read else ():
            q.result(each or "")


def asked(q: Queue[Any], work: Any) -> dict[str, int]:
    before = dict(q.requests)
    work()
    return {kind: count - before[kind] for kind, count in q.requests.items()}


def of_work(load: Workload) -> tuple[float, float]:
    """PUT and GET of a load alone, without the reaper."""
    whole, idle = used(load), used(Workload(0, way=load.way))
    return whole.put - idle.put, whole.get - idle.get


@pytest.mark.parametrize("batch", [1, 10, 100])
def test_the_requests_of_plain_jobs_are_those_that_are_counted(queue: Queue[Any], batch: int) -> None:
    jobs = 1000
    count = asked(queue, lambda: live(queue, jobs, batch))
    put, get = of_work(Workload(jobs, batch, way="embedded"))
    assert count["put"] + count["list"] == pytest.approx(put, rel=TOLERANCE)
    assert count["get"] == pytest.approx(get, abs=1)


def test_the_requests_of_jobs_with_ids_whose_results_are_read_are_those_that_are_counted(
    queue: Queue[Any],
) -> None:
    jobs = 300
    count = asked(queue, lambda: live(queue, jobs, 1, named=True, read=True))
    put, get = of_work(Workload(jobs, 1, named=1.0, results=1.0, way="embedded"))
    assert count["put"] + count["list"] == pytest.approx(put, rel=TOLERANCE)
    assert count["get"] == get


@pytest.mark.parametrize("batch", [1, 10])
def test_the_requests_of_jobs_that_consumers_take_are_those_that_are_counted(batch: int) -> None:
    times, clock, waker = 100, Clock(), LocalWaker()
    store = MemoryStore(clock)
    producer: Queue[Any] = Queue(store, "emails", waker=waker, machine=clock)
    taking: Queue[Any] = Queue(store, "emails", waker=waker, machine=clock)
    producer.configure(consumers={"mailer": {"target": "test:mailer", "batch": batch}})
    handler = consumer(lambda job: 1)

    def push() -> None:
        clock.advance(10)
        producer.enqueue_many([{"payload": PAYLOAD}] * batch)
        (wake,) = waker.wakes
        waker.wakes.clear()
        clock.advance(0.1)
        assert handler.work(taking, wake, InvocationContext(clock)).completed == batch
        assert not waker.wakes

    for _ in range(3):
        push()  # so that all are warm
    before = Counter(producer.requests) + Counter(taking.requests)
    for _ in range(times):
        push()
    count = Counter(producer.requests) + Counter(taking.requests) - before
    expected = Workload(times * batch, batch, way="embedded", pushed=True)
    put, get = of_work(expected)
    assert count["put"] + count["list"] == pytest.approx(put, rel=TOLERANCE)
    assert count["get"] == pytest.approx(get, rel=TOLERANCE)
    assert used(expected).pushes == times


def test_an_empty_claim_costs_what_is_counted(queue: Queue[Any]) -> None:
    count = asked(queue, lambda: [queue.claim() for _ in range(10)])
    put, get = of_work(Workload(0, empty_claims=10, way="embedded"))
    assert count["put"] + count["list"] == put == 0
    assert count["get"] == get


# ── The deployed functions ───────────────────────────────────────────────────
class Context:
    """What Lambda gives a handler beside the event."""

    aws_request_id = "8c7a5b9e-1234-4c1d-9f1e-3a1b2c3d4e5f"
    function_name = "osqueue-dev-enqueue"
    function_version = "$LATEST"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:osqueue-dev-enqueue"
    memory_limit_in_mb = 512

    def get_remaining_time_in_millis(self) -> int:
        return 28_000


class Deployment:
    """The functions, each in a process of its own as far as the store can tell, and what they asked and printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.clock = Clock()
        self._capsys = capsys

    @cached_property
    def functions(self) -> dict[str, Any]:
        """Made by the test itself: a logger goes on printing to where it printed first."""
        from osqueue.aws_lambda import Function

        return {each.name: Function(each.name, self.clock) for each in FUNCTIONS}

    def ask(self, function: str, method: str, path: str, body: Any = None) -> Any:
        self.clock.advance(0.05)
        event = {"method": method, "path": f"/v1/queues/emails/{path}", "body": body}
        answer = self.functions[function](event, Context())
        assert answer["status"] == 200, answer
        return answer["body"]

    def live(self, jobs: int) -> None:
        """One call for each step of these jobs' lives."""
        self.ask("enqueue", "POST", "jobs", {"jobs": [{"payload": PAYLOAD} for _ in range(jobs)]})
        leased = self.ask("claim", "POST", "claims", {"limit": jobs})["jobs"]
        done = [{"job_id": each["job_id"], "token": each["token"], "result": 1} for each in leased]
        self.ask("complete", "POST", "completions", {"completions": done})

    def tick(self, times: int = 1) -> None:
        """A minute, or several, and what the schedule does in it."""
        for _ in range(times):
            self.clock.advance(60)
            self.functions["reaper"]({"source": "osqueue.schedule"}, Context())

    def used(self, work: Callable[[], Any]) -> tuple[Counter[str], list[str]]:
        """What some work asks of the store, and the lines it prints."""
        self._capsys.readouterr()
        before = self._asked()
        work()
        lines = [line for line in self._capsys.readouterr().out.splitlines() if line.startswith("{")]
        return self._asked() - before, lines

    def _asked(self) -> Counter[str]:
        return sum((Counter(each.meter.requests) for each in self.functions.values()), Counter())


@pytest.fixture
def deployed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """A deployment on a store without a clock to be read, as S3 is."""
    monkeypatch.setattr(MemoryStore, "clock_ms", lambda self: None)
    monkeypatch.setattr(MemoryStore, "clock_tick_ms", Store.clock_tick_ms)
    name = f"costs-{next(_names)}"  # a logger is kept by its name, and with it where it prints
    monkeypatch.setenv("OSQUEUE_STORE", f"memory://{name}")
    monkeypatch.setenv("OSQUEUE_SERVICE", name)
    return Deployment(capsys)


def size_of(lines: list[str]) -> int:
    return sum(len(line) + LINE_BYTES for line in lines)


@pytest.mark.parametrize("batch", [1, 10])
def test_the_requests_of_deployed_functions_are_those_that_are_counted(
    deployed: Deployment, batch: int
) -> None:
    times = 100
    for _ in range(3):
        deployed.live(batch)  # so that all are warm
    count, _ = deployed.used(lambda: [deployed.live(batch) for _ in range(times)])
    put, get = of_work(Workload(times * batch, batch, way="lambda"))
    assert count["put"] + count["list"] == pytest.approx(put, rel=TOLERANCE)
    assert count["get"] == pytest.approx(get, rel=TOLERANCE)


def test_what_a_worker_says_of_itself_costs_what_is_counted() -> None:
    store = MemoryStore()
    q: Queue[Any] = Queue(store, "emails")
    q.enqueue(1)
    before = Counter(q.requests)
    for minute in range(60):
        assert q._run(q._flows.put_worker("w-1", WorkerEntry(name="mailer", uptime=60.0 * minute)))
    asked = Counter(q.requests) - before
    expected = used(Workload(0, workers=1, way="embedded"))
    idle = used(Workload(0, way="embedded"))
    hour = 60 / MINUTES_A_MONTH
    assert asked["put"] + asked["list"] == pytest.approx((expected.put - idle.put) * hour)
    assert asked["get"] == pytest.approx((expected.get - idle.get) * hour)
    assert costs.WORDS_A_MINUTE == 60 / registration.EVERY_SECONDS


def test_an_idle_day_of_the_deployed_reaper_costs_what_is_counted(deployed: Deployment) -> None:
    deployed.live(1)
    deployed.tick(2 * DAY_MINUTES)  # until the results are forgotten
    count, lines = deployed.used(lambda: deployed.tick(DAY_MINUTES))
    idle = used(Workload(0))
    assert count["put"] + count["list"] == pytest.approx(
        idle.put * DAY_MINUTES / MINUTES_A_MONTH, rel=TOLERANCE
    )
    assert count["get"] == pytest.approx(idle.get * DAY_MINUTES / MINUTES_A_MONTH, rel=TOLERANCE)
    assert size_of(lines) == pytest.approx(
        DAY_MINUTES * (costs.PASS_LOG_BYTES + costs.TICK_LOG_BYTES), rel=0.2
    )


def test_what_a_call_prints_is_what_is_counted(deployed: Deployment) -> None:
    deployed.live(1)
    _, lines = deployed.used(lambda: [deployed.live(1) for _ in range(20)])
    assert size_of(lines) / 60 == pytest.approx(costs.CALL_LOG_BYTES, rel=0.2)


class Invocation(InvocationContext):
    """One of a consumer."""

    aws_request_id = Context.aws_request_id


def pushed(deployed: Deployment, jobs: int) -> list[str]:
    """What consumers print that take so many jobs, one after the other, from a producer with the library."""
    waker = LocalWaker()
    producer: Queue[Any] = Queue.connect(os.environ["OSQUEUE_STORE"], "emails", waker=waker)
    producer.configure(consumers={"mailer": {"target": "test:mailer"}})
    handler = consumer(lambda job: 1)

    def push() -> None:
        producer.enqueue(PAYLOAD)
        wake = msgspec.to_builtins(waker.wakes.popleft())
        assert handler({"osqueue": wake}, Invocation(MACHINE))["completed"] == 1

    return deployed.used(lambda: [push() for _ in range(jobs)])[1]


def test_what_a_consumer_prints_is_what_is_counted(deployed: Deployment) -> None:
    lines = pushed(deployed, 20)
    assert len(lines) == 20
    assert size_of(lines) / 20 == pytest.approx(costs.CONSUMER_LOG_BYTES, rel=0.2)
    load, idle = Workload(20, way="embedded", pushed=True), Workload(0, way="embedded")
    logged = (used(load).logged_gb - used(idle).logged_gb) * 1e9
    assert logged == pytest.approx(20 * (costs.LAMBDA_LOG_BYTES + costs.CONSUMER_LOG_BYTES))


def emitted(lines: list[str]) -> set[tuple[str, int]]:
    """Each metric, and how many dimensions it has."""
    return {
        (metric["Name"], len(dimensions))
        for line in lines
        for each in json.loads(line).get("_aws", {}).get("CloudWatchMetrics", ())
        for metric in each["Metrics"]
        for dimensions in each["Dimensions"]
    }


def test_the_metrics_that_are_paid_for_are_those_that_are_emitted(deployed: Deployment) -> None:
    deployed.live(1)
    deployed.tick()
    _, lines = deployed.used(deployed.tick)
    assert len(emitted(lines)) == used(Workload(0)).metrics
    counted = {
        *((name, 1) for name in ("Commits", "Conflicts", "Combined", "CommitMs", "LeasesExpired")),
        *((name, 2) for name in ("Enqueued", "Completed", "Failed", "WaitMs")),
    }
    assert len(counted) == used(Workload(1)).metrics - used(Workload(0)).metrics
    _, lines = deployed.used(lambda: deployed.live(1))
    assert emitted(lines) <= counted
    consumed = counted - {("Enqueued", 2)}
    assert len(consumed) == used(Workload(1, way="embedded", pushed=True)).metrics - used(Workload(0)).metrics
    assert emitted(pushed(deployed, 2)) <= consumed
    assert len({*counted, ("Wakes", 2)}) == used(Workload(1, pushed=True)).metrics - used(Workload(0)).metrics


@pytest.mark.parametrize(
    ("name", "paid"),
    [("dev", costs.ALARM_METRICS), ("staging", costs.ALARM_METRICS + costs.PIPELINE_ALARM_METRICS)],
)
def test_the_alarms_that_are_paid_for_are_those_of_the_template(
    name: str, paid: int, environments: Any
) -> None:
    alarms = environments[name].resources("operations", "AWS::CloudWatch::Alarm").values()
    watched = [
        1 if "MetricName" in each else sum("MetricStat" in one for one in each["Metrics"]) for each in alarms
    ]
    assert sum(watched) == paid


def test_a_run_of_the_pipeline_is_paid_for_by_the_workers_it_begins_with() -> None:
    from infra import pipeline

    workers = 2  # the driver, and the executor that dynamic allocation begins with
    assert workers * pipeline.WORKER_CPUS == costs.RUN_CPUS
    assert workers * pipeline.WORKER_GB == costs.RUN_GB
    hour = costs.RUN_CPUS * costs.SPARK_CPU_HOUR + costs.RUN_GB * costs.SPARK_GB_HOUR
    alarms = costs.PIPELINE_ALARM_METRICS * costs.ALARM_MONTH
    assert total(Workload(0, pipeline_minutes=60)) - total(Workload(0)) == pytest.approx(730 * hour + alarms)


def test_a_plain_job_is_told_of_as_often_as_is_counted() -> None:
    told: list[Any] = []
    q: Queue[Any] = Queue.connect("memory://", "emails")
    q.on_event(told.append)
    live(q, 20, 10)
    assert len(told) == used(Workload(20, 10)).events
    assert used(Workload(20, events=False)).events == used(Workload(20, way="embedded")).events == 0


# ── The bill ─────────────────────────────────────────────────────────────────
def test_a_bill_is_the_sum_of_its_lines_and_grows_with_the_load() -> None:
    for prices in (STANDARD, EXPRESS):
        load = Workload(1_000_000, 100)
        assert total(load, prices) == pytest.approx(sum(line.dollars for line in bill(load, prices)))
    assert beyond_idle(Workload(1_000_000, 1)) > 4 * beyond_idle(Workload(1_000_000, 100))
    assert (
        total(Workload(1000, way="embedded"))
        < total(Workload(1000, way="lambda"))
        < total(Workload(1000, way="http"))
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--batch", "0"),
        ("--reap-minutes", "0"),
        ("--jobs", "-1"),
        ("--named", "1.5"),
        ("--results", "nan"),
        ("--pipeline-minutes", "61"),
    ],
)
def test_a_load_that_cannot_be_is_refused_by_its_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    monkeypatch.setattr("sys.argv", ["costs", f"{option}={value}"])
    with pytest.raises(SystemExit, match="2"):
        costs.main()
    assert f"argument {option}: {value} is not a" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "prices"), [([], STANDARD), (["--express"], EXPRESS)])
def test_the_printed_bill_is_that_of_the_bucket(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    prices: StorePrices,
) -> None:
    monkeypatch.setattr("sys.argv", ["costs", *options])
    costs.main()
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == f"{prices.name}:"
    assert last.split() == ["a", "month", f"{total(Workload(1_000_000), prices):,.2f}", "$"]


def _registered(way: str) -> float:
    """Dollars a month for what a worker says of itself."""
    return total(Workload(0, workers=1, way=way)) - total(Workload(0, way=way))


def test_the_documentation_prints_what_the_calculator_says() -> None:
    text = " ".join((ROOT / "docs/costs.md").read_text(encoding="utf-8").split())
    idle = total(Workload(0))
    lines = {line.what: line.dollars for line in bill(Workload(0))}
    every_hour = total(Workload(0, pipeline_minutes=4)) - idle
    polling = beyond_idle(Workload(0, empty_claims=MINUTES_A_MONTH * 60))
    registered = {way: _registered(way) for way in ("embedded", "http", "lambda")}
    watching = lines["Metrics"] + lines["Alarms"] + lines["Dashboard"]
    for sentence in (
        *by_batch(),
        *by_pushes(),
        f"about **${idle:.2f} a month**",
        f"${watching:.2f} of it for metrics, alarms and the dashboard",
        f"${idle - watching:.2f} for the reaper",
        f"every further queue adds ${total(Workload(0, queues=2)) - idle:.2f}",
        f"2.6 million times a month: ${polling:.2f}",
        f"**${registered['embedded']:.2f} a month** for a worker that runs all the time",
        f"${registered['http']:.2f} over HTTP, ${registered['lambda']:.2f} by direct invocation",
        f"about ${every_hour:.2f} a month",
    ):
        assert sentence in text, sentence
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"about ${idle:.2f} a month, ${watching:.2f} of it for metrics, alarms and the dashboard" in readme
    assert (
        f"a million jobs over HTTP in batches of ten: ${beyond_idle(Workload(costs.MILLION, 10)):.2f}"
        in readme
    )
