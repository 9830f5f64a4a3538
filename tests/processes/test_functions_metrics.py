"""What functions count: commits, what becomes of jobs, wakes; and what alarms look at."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osqueue import Queue
from osqueue.clock import MACHINE
from osqueue.contract import metrics
from osqueue.contract.functions import EVENT_BUS, METRICS_NAMESPACE
from osqueue.objects.layout import root_of
from osqueue.stores.address import open_store
from osqueue.stores.base import Put
from tests.support.functions_at_work import (
    Context,
    Handlers,
    direct,
    environment,
    events,
    load,
    measured,
    printed,
)

JOBS = "/v1/queues/emails/jobs"
CLAIMS = "/v1/queues/emails/claims"
SCHEDULE = events()["reaper-schedule"][1]

pytestmark = pytest.mark.usefixtures("runtime_log")


@pytest.fixture
def address(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"memory://{tmp_path}"
    for name, value in environment(address, f"osqueue-{tmp_path.name}").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(EVENT_BUS, raising=False)
    return address


@pytest.fixture
def handlers(address: str) -> dict[str, Any]:
    return Handlers()


@pytest.fixture
def passed(address: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a pass of the reaper counts: of each queue by its name, and of all under ""."""
    reaper = load("reaper")

    def run() -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        reaper(SCHEDULE, Context(300))
        return measured(printed(capsys.readouterr().out))

    return run


def die(queue: Queue[Any]) -> None:
    queue.enqueue(1)
    (lease,) = queue.claim()
    lease.fail("no", retry=False)


def test_consumers_at_work_are_counted_where_a_queue_has_some(address: str, passed: Any) -> None:
    emails, letters = (Queue.connect(address, name) for name in ("emails", "letters"))
    letters.enqueue(1)
    emails.configure(consumers={"mailer": {"target": "arn:mailer", "max_concurrency": 4}})
    emails.enqueue(1)
    found = passed()
    assert found["emails"]["Consumers"] == [0]
    assert [found[""][each] for each in ("ConsumersBusy", "WakeTries")] == [[0], [0]]
    assert "Consumers" not in found["letters"]


def test_jobs_that_failed_are_counted_over_all_queues_for_good(address: str, passed: Any) -> None:
    """Also those of workers on the bucket. A redrive or a purge takes none back, so an increase is a new one."""
    emails, letters = (Queue.connect(address, name) for name in ("emails", "letters"))
    die(emails)
    die(letters)
    assert passed()[""]["FailedSoFar"] == [2]
    emails.redrive()
    found = passed()
    assert (found[""]["FailedSoFar"], found["emails"]["DeadLetters"]) == ([2], [0])
    die(letters)
    assert passed()[""]["FailedSoFar"] == [3]


def test_a_pass_that_missed_a_queue_counts_no_failed_jobs(address: str, passed: Any) -> None:
    """The sum would drop and rise again, which looks like new ones."""
    for name in ("bad", "good"):
        die(Queue.connect(address, name))
    assert passed()[""]["FailedSoFar"] == [2]
    open_store(address).perform(Put(f"{root_of('bad', 0)}head", b"not a head"))
    assert "FailedSoFar" not in passed()[""]


def test_jobs_of_a_paused_queue_have_no_age_that_an_alarm_could_see(address: str, passed: Any) -> None:
    queue = Queue.connect(address, "emails")
    queue.enqueue(1)
    queue.pause()
    assert passed()["emails"]["Depth"] == [1]
    assert "OldestAge" not in passed()["emails"]
    queue.resume()
    assert passed()["emails"]["OldestAge"][0] >= 0


def test_commits_are_counted_for_the_deployment_and_for_the_queue(
    handlers: dict[str, Any], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("enqueue", "claim", "enqueue"):
        path, body = (JOBS, {"payload": 1}) if name == "enqueue" else (CLAIMS, {})
        handlers[name](direct("POST", path, body), Context())
    blobs = [line for line in printed(capsys.readouterr().out) if "_aws" in line]
    assert [blob["message"] for blob in blobs] == ["enqueue", "claim", "enqueue"]
    tables = (
        (["service"], {each.name: each.unit for each in metrics.OF_DEPLOYMENT}),
        (["service", "queue"], {each.name: each.unit for each in metrics.OF_QUEUES}),
    )
    for blob in blobs:
        assert (blob["service"], blob["queue"]) == (f"osqueue-{tmp_path.name}", "emails")
        for directive, (dimensions, known) in zip(blob["_aws"]["CloudWatchMetrics"], tables, strict=True):
            assert directive["Namespace"] == METRICS_NAMESPACE
            assert directive["Dimensions"] == [dimensions]
            for each in directive["Metrics"]:
                assert known[each["Name"]] == each["Unit"]
    assert [(blob["Commits"], len(blob["CommitMs"])) for blob in blobs] == [([1], 1)] * 3
    assert "Conflicts" not in blobs[0]
    assert blobs[2]["Conflicts"] == [1]  # this process had not seen the claim


def test_what_the_queue_and_the_deployment_both_count_is_told_of_each(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reaper alone counts such today; a request that did would have one value overwritten by the other."""
    enqueue = handlers["enqueue"]
    answer = enqueue._answer

    def counting(request: Any, counts: Any) -> Any:
        counts.whole.most(metrics.OLDEST, 7)
        counts.of("emails").most(metrics.OLDEST, 3)
        return answer(request, counts)

    monkeypatch.setattr(enqueue, "_answer", counting)
    enqueue(direct("POST", JOBS, {"payload": 1}), Context())
    found = measured(printed(capsys.readouterr().out))
    assert {name: values["OldestAge"] for name, values in found.items()} == {"": [7], "emails": [3]}


def test_what_becomes_of_jobs_is_counted_by_whoever_commits_it(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, late = MACHINE.now_ms, 0
    monkeypatch.setattr(type(MACHINE), "now_ms", lambda self: real() + late)

    def counted(name: str, method: str, path: str, body: Any) -> tuple[dict[str, Any], Any]:
        capsys.readouterr()
        answer = handlers[name](direct(method, path, body), Context())
        (blob,) = [line for line in printed(capsys.readouterr().out) if "_aws" in line and "queue" in line]
        told = {each: blob.get(each) for each in ("Enqueued", "Completed", "Failed", "WaitMs")}
        return {each: value for each, value in told.items() if value}, answer["body"]

    three = {"jobs": [{"payload": 1, "max_attempts": 1}] * 3}
    assert counted("enqueue", "POST", JOBS, three)[0] == {"Enqueued": [3]}
    late = 4_000
    told, claimed = counted("claim", "POST", CLAIMS, {"limit": 2})
    assert told.keys() == {"WaitMs"}
    assert len(told["WaitMs"]) == 2
    assert all(4_000 <= each < 60_000 for each in told["WaitMs"])
    ends = [{"job_id": each["job_id"], "token": each["token"]} for each in claimed["jobs"]]
    ends = [ends[0] | {"result": 1}, ends[1] | {"error": "no"}]
    told, _ = counted("complete", "POST", "/v1/queues/emails/completions", {"completions": ends})
    assert told == {"Completed": [1], "Failed": [1]}


def test_wakes_are_counted_with_those_that_lambda_does_not_accept(
    own_waker: None,
    handlers: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OSQUEUE_WAKES", "lambda")
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:9")  # nobody listens there
    mailer = {"target": "arn:aws:lambda:eu-west-1:123456789012:function:mailer"}
    handlers["queues"](direct("PATCH", "/v1/queues/emails", {"consumers": {"mailer": mailer}}), Context())
    capsys.readouterr()
    assert load("enqueue")(direct("POST", JOBS, {"payload": 1}), Context())["status"] == 200
    (blob,) = [line for line in printed(capsys.readouterr().out) if "Wakes" in line]
    assert (blob["Wakes"], blob["WakesFailed"], "WakesAgain" in blob) == ([1], [1], False)


def test_a_delay_is_no_wait(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, late = MACHINE.now_ms, 0
    monkeypatch.setattr(type(MACHINE), "now_ms", lambda self: real() + late)
    handlers["enqueue"](direct("POST", JOBS, {"payload": 1, "delay": 60}), Context())
    late = 60_000
    capsys.readouterr()
    handlers["claim"](direct("POST", CLAIMS, {}), Context())
    (blob,) = [line for line in printed(capsys.readouterr().out) if "WaitMs" in line]
    assert blob["WaitMs"][0] < 60_000  # the delay itself would be more


def test_of_many_waits_as_many_are_told_as_a_line_takes(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    handlers["enqueue"](direct("POST", JOBS, {"jobs": [{"payload": 1}] * 250}), Context())
    capsys.readouterr()
    handlers["claim"](direct("POST", CLAIMS, {"limit": 250}), Context())
    (blob,) = [line for line in printed(capsys.readouterr().out) if "WaitMs" in line]
    assert len(blob["WaitMs"]) == 84  # every third


def test_commits_of_a_queue_named_head_are_counted_once(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    handlers["enqueue"](direct("POST", "/v1/queues/head/jobs", {"payload": 1}), Context())
    (blob,) = [line for line in printed(capsys.readouterr().out) if "Commits" in line]
    assert (blob["Commits"], len(blob["CommitMs"])) == ([1], 1)


def test_ended_leases_are_counted_by_whoever_notices(
    handlers: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers["enqueue"](direct("POST", JOBS, {"payload": 1}), Context())
    handlers["claim"](direct("POST", CLAIMS, {"lease": 1}), Context())
    capsys.readouterr()
    real = MACHINE.now_ms
    monkeypatch.setattr(type(MACHINE), "now_ms", lambda self: real() + 5_000)
    handlers["reaper"](direct("POST", "/v1/queues/emails/reap"), Context())
    (blob,) = [line for line in printed(capsys.readouterr().out) if "LeasesExpired" in line]
    assert blob["LeasesExpired"] == [1]


class Bus:
    """A client of EventBridge that takes no event, or does not answer."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - boto3's name
        if not self.answers:
            raise ConnectionError("no route")
        refused = [{"ErrorCode": "ThrottlingException"} for _ in Entries]
        return {"FailedEntryCount": len(Entries), "Entries": refused}


@pytest.mark.parametrize("answers", [True, False])
def test_events_that_do_not_reach_the_bus_are_counted(
    address: str, answers: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(EVENT_BUS, "osqueue-events")
    enqueue = load("enqueue")
    (sink,) = enqueue.api.sinks
    sink.inner._client = Bus(answers)
    body = {"jobs": [{"payload": n} for n in range(12)]}
    assert enqueue(direct("POST", JOBS, body), Context())["status"] == 200  # the jobs are queued all the same
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["EventsLost"] for each in lines if "EventsLost" in each] == [[12]]
    (directive,) = [each["_aws"]["CloudWatchMetrics"][0] for each in lines if "EventsLost" in each]
    assert directive["Dimensions"] == [["service"]]
