"""A consumer as Lambda calls it: the store of its environment, the queue of its event, and who may be one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue, Rejected
from osqueue.aws import consumer, sqs_shaped
from osqueue.aws.function import BUS_VARIABLE, SERVICE_VARIABLE, STORE_VARIABLE
from osqueue.clock import MACHINE
from osqueue.contract import functions
from osqueue.events import CallbackSink
from osqueue.testing.consumers import InvocationContext, LocalWaker


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"file://{tmp_path}/jobs"
    monkeypatch.setenv("OSQUEUE_STORE", address)
    return address


def event_of(waker: LocalWaker) -> dict[str, Any]:
    wake = waker.wakes.popleft()
    fields = {name: getattr(wake, name) for name in ("queue", "consumer", "shard", "ticket")}
    return {"osqueue": {**fields, "fired_at": wake.fired_at.isoformat()}}


def test_it_works_on_the_store_of_its_environment_and_the_queue_of_its_event(store: str) -> None:
    handler = consumer(lambda job: job.payload + 1)
    for name in ("emails", "reports"):
        waker = LocalWaker()
        q: Queue[int] = Queue.connect(store, name, waker=waker)
        q.configure(consumers={"mailer": {"target": "arn:mailer"}})
        job_id = q.enqueue(1).job_id
        told = handler(event_of(waker), InvocationContext(MACHINE))
        assert (told["claimed"], told["completed"]) == (1, 1)
        assert q.result(job_id or "") == 2
    assert handler.queue("emails") is handler.queue("emails")


def test_the_worker_of_a_job_names_the_consumer_and_the_invocation_whose_log_tells_more(store: str) -> None:
    waker = LocalWaker()
    q: Queue[int] = Queue.connect(store, "emails", waker=waker)
    q.configure(consumers={"mailer": {"target": "arn:mailer"}})
    job_id = q.enqueue(1).job_id
    consumer(lambda job: None)(event_of(waker), InvocationContext(MACHINE))
    assert q.status(job_id or "").attempts[-1].worker == "mailer test"


def test_the_bus_of_its_environment_is_told_of_what_it_commits_unless_options_say_who_is(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSQUEUE_EVENT_BUS", "osqueue-prod")
    told: list[Any] = []
    assert [each.name for each in consumer(lambda job: None).queue("emails")._sinks] == [
        "eventbridge:osqueue-prod"
    ]
    mine = consumer(sinks=[CallbackSink(told.append)])(lambda job: None)
    waker = LocalWaker()
    q: Queue[int] = Queue.connect(store, "emails", waker=waker)
    q.configure(consumers={"mailer": {"target": "arn:mailer"}})
    q.enqueue(1)
    mine(event_of(waker), InvocationContext(MACHINE))
    assert [each.name for each in told] == ["processing", "completed"]


def test_its_environment_is_named_as_that_of_the_functions() -> None:
    named = (STORE_VARIABLE, BUS_VARIABLE, SERVICE_VARIABLE)
    assert named == (functions.STORE, functions.EVENT_BUS, functions.SERVICE)


def test_an_event_of_somebody_else_is_refused_and_says_what_this_function_is(store: str) -> None:
    with pytest.raises(Rejected, match="This function is a consumer"):
        consumer(lambda job: None)({"Records": []}, InvocationContext(MACHINE))


def test_a_store_that_nobody_named_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSQUEUE_STORE", raising=False)
    with pytest.raises(Rejected, match="OSQUEUE_STORE"):
        consumer(lambda job: None).queue("emails")


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 65}, {"batch": 0}, {"batch": 1_001}])
def test_numbers_out_of_bounds_are_refused_where_they_stand(options: dict[str, int]) -> None:
    with pytest.raises(Rejected):
        consumer(**options)(lambda job: None)


def test_a_function_that_cannot_be_called_so_is_refused_when_it_is_decorated() -> None:
    with pytest.raises(TypeError, match="the job"):
        consumer(lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(TypeError, match="the list of jobs"):
        consumer.batches(lambda one, two: None)  # type: ignore[arg-type, misc]

    async def handler(job: Any) -> None: ...

    with pytest.raises(Rejected, match=r"asyncio\.run"):
        consumer(handler)
    with pytest.raises(Rejected, match="batch"):
        consumer.batches(size=0)(lambda jobs: None)


def test_what_was_decorated_can_still_be_called() -> None:
    assert consumer(lambda job: job * 2).function(3) == 6
    assert sqs_shaped(lambda event, context: event).function(1, None) == 1
