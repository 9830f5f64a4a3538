"""What alarms look at, as functions count it: new dead letters, queues that are meant to wait, lost events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osqueue import Queue
from osqueue.contract.functions import EVENT_BUS
from osqueue.objects.layout import root_of
from osqueue.stores.address import open_store
from osqueue.stores.base import Put
from tests.support.functions_at_work import Context, direct, environment, events, load

JOBS = "/v1/queues/emails/jobs"
SCHEDULE = events()["reaper-schedule"][1]


@pytest.fixture
def address(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"memory://{tmp_path}"
    for name, value in environment(address, f"osqueue-{tmp_path.name}").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(EVENT_BUS, raising=False)
    return address


@pytest.fixture
def passed(address: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a pass of the reaper counts: of each queue by its name, and of all under ""."""
    reaper = load("reaper")

    def run() -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        reaper(SCHEDULE, Context(300))
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        return {each.get("queue", ""): each for each in lines if "_aws" in each}

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
    assert [found["emails"][each] for each in ("Consumers", "ConsumersBusy", "WakeTries")] == [[0], [0], [0]]
    assert "Consumers" not in found["letters"]


def test_jobs_that_failed_are_counted_over_all_queues_for_good(address: str, passed: Any) -> None:
    """Also those of workers on the bucket. A redrive or a purge takes none back, so an increase is a new one."""
    emails, letters = (Queue.connect(address, name) for name in ("emails", "letters"))
    die(emails)
    die(letters)
    assert passed()[""]["Failed"] == [2]
    emails.redrive()
    found = passed()
    assert (found[""]["Failed"], found["emails"]["DeadLetters"]) == ([2], [0])
    die(letters)
    assert passed()[""]["Failed"] == [3]


def test_a_pass_that_missed_a_queue_counts_no_failed_jobs(address: str, passed: Any) -> None:
    """The sum would drop and rise again, which looks like new ones."""
    for name in ("bad", "good"):
        die(Queue.connect(address, name))
    assert passed()[""]["Failed"] == [2]
    open_store(address).perform(Put(f"{root_of('bad', 0)}head", b"not a head"))
    assert "Failed" not in passed()[""]


def test_jobs_of_a_paused_queue_have_no_age_that_an_alarm_could_see(address: str, passed: Any) -> None:
    queue = Queue.connect(address, "emails")
    queue.enqueue(1)
    queue.pause()
    assert passed()["emails"]["Depth"] == [1]
    assert "OldestAge" not in passed()["emails"]
    queue.resume()
    assert passed()["emails"]["OldestAge"][0] >= 0


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
