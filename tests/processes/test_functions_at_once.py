"""The handlers where a runtime serves several requests at once: each tells of its own, and nothing is counted twice."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from osqueue import Queue
from osqueue.aws_lambda.handler import TRACE
from osqueue.clock import MACHINE
from osqueue.commit import group
from osqueue.contract import metrics
from osqueue.contract.functions import EVENT_BUS, WINDOW
from osqueue.errors import Rejected
from osqueue.stores.base import PutIfMatch
from osqueue.stores.wrapped import WrappedStore
from tests.support.functions_at_work import Context, direct, environment, load
from tests.support.patience import PATIENCE

AT_ONCE = 8
ROUNDS = 5

pytestmark = pytest.mark.usefixtures("runtime_log")


class Named(Context):
    """An invocation with an id of its own."""

    def __init__(self, request_id: str) -> None:
        super().__init__()
        self.aws_request_id = request_id


class Blocking(WrappedStore):
    """A store for functions, which never await."""

    async def perform_async(self, request: Any) -> Any:
        raise NotImplementedError

    def perform(self, request: Any) -> Any:
        return self.inner.perform(request)


class Gathering(Blocking):
    """A store whose first answers come when so many have asked: all of them are under way then."""

    def __init__(self, inner: Any, callers: int) -> None:
        super().__init__(inner)
        self._met = threading.Barrier(callers)
        self._left = callers
        self._lock = threading.Lock()

    def perform(self, request: Any) -> Any:
        with self._lock:
            waits, self._left = self._left > 0, self._left - 1
        if waits:
            self._met.wait(PATIENCE)
        return super().perform(request)


@pytest.fixture
def address(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"memory://{tmp_path}"
    for name, value in environment(address, f"osqueue-{tmp_path.name}").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(EVENT_BUS, raising=False)
    return address


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Every line by itself, and each whole."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def all_at_once(handler: Any, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The answers of invocations that are made by as many threads."""
    with ThreadPoolExecutor(len(calls)) as threads:
        done = [threads.submit(handler, event, Named(request_id)) for request_id, event in calls]
        return [each.result(PATIENCE) for each in done]


def test_each_line_tells_of_one_invocation(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue = load("enqueue")
    enqueue.meter.inner = Gathering(enqueue.meter.inner, AT_ONCE)
    queues = [f"queue-{n}" for n in range(AT_ONCE)]
    calls = [
        (f"call-of-{each}", direct("POST", f"/v1/queues/{each}/jobs", {"payload": 1})) for each in queues
    ]
    jobs = {
        queue: each["body"]["job_id"] for queue, each in zip(queues, all_at_once(enqueue, calls), strict=True)
    }
    lines = printed(capsys)
    told = [each for each in lines if "message" in each]
    assert {each["queue"]: each["correlation_id"] for each in told} == {
        each: f"call-of-{each}" for each in queues
    }
    assert {each["queue"]: each["jobs"] for each in told} == {queue: [job] for queue, job in jobs.items()}
    # A queue of one's own, new: the requests of a lone caller, whoever else is at it.
    load("enqueue")(direct("POST", "/v1/queues/alone/jobs", {"payload": 1}), Named("alone"))
    (alone,) = [each["requests"] for each in printed(capsys) if "message" in each]
    assert [each["requests"] for each in told] == [alone] * AT_ONCE
    assert [each["Commits"] for each in told] == [[1]] * AT_ONCE
    assert {each["queue"]: each["Enqueued"] for each in told} == {each: [1] for each in queues}


def test_commits_that_callers_share_are_counted_once(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue = load("enqueue")
    numbers = range(AT_ONCE * ROUNDS)
    calls = [(f"call-{n}", direct("POST", "/v1/queues/emails/jobs", {"payload": n})) for n in numbers]
    answers = [
        each
        for at in range(0, len(calls), AT_ONCE)
        for each in all_at_once(enqueue, calls[at : at + AT_ONCE])
    ]
    lines = printed(capsys)
    stats = Queue.connect(address, "emails").stats()
    assert (stats["queued"], {each["status"] for each in answers}) == (len(calls), {200})
    assert sum(sum(each.get(metrics.COMMITS.name, [0])) for each in lines) == stats["commits"] <= len(calls)
    told = [each for each in lines if "message" in each]
    assert Counter(each["correlation_id"] for each in told) == dict.fromkeys([name for name, _ in calls], 1)


def test_a_store_that_hangs_for_one_keeps_no_other_waiting(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = load("enqueue")
    inner, release = enqueue.meter.inner, threading.Event()

    class Stuck(Blocking):
        def perform(self, request: Any) -> Any:
            if isinstance(request, PutIfMatch) and "/stuck/" in request.key:
                release.wait(PATIENCE)
            return super().perform(request)

    Queue.connect(address, "stuck").enqueue(1)
    enqueue.meter.inner = Stuck(inner)
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(enqueue, direct("POST", "/v1/queues/stuck/jobs", {"payload": 1}), Named("a"))
        other = enqueue(direct("POST", "/v1/queues/free/jobs", {"payload": 1}), Named("b"))
        assert (other["status"], hanging.done()) == (200, False)
        release.set()
        assert hanging.result(PATIENCE)["status"] == 200


# ── The window ───────────────────────────────────────────────────────────────
def test_requests_that_meet_share_the_commit_of_a_window(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WINDOW, "10")
    monkeypatch.setattr(group, "WINDOW_ITEMS_MAX", AT_ONCE)
    enqueue = load("enqueue")
    enqueue(direct("POST", "/v1/queues/emails/jobs", {"payload": "first"}), Named("first"))
    enqueue.api.queue("emails")._group(0).window.start_by((), 0.0, meets=True)
    calls = [(f"call-{n}", direct("POST", "/v1/queues/emails/jobs", {"payload": n})) for n in range(AT_ONCE)]
    assert [each["status"] for each in all_at_once(enqueue, calls)] == [200] * AT_ONCE
    assert Queue.connect(address, "emails").stats()["commits"] == 2


@pytest.mark.parametrize("window", ["two", "-1", "11", "nan"])
def test_a_window_that_is_not_valid_is_refused_by_its_variable(
    address: str, monkeypatch: pytest.MonkeyPatch, window: str
) -> None:
    monkeypatch.setenv(WINDOW, window)
    with pytest.raises(Rejected, match=f"^{WINDOW}: .* is not a number of seconds from 0 to 10"):
        load("enqueue")


# ── An invocation that is delivered again ────────────────────────────────────
def test_an_asynchronous_enqueue_that_lambda_delivers_again_is_the_same_job(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the id and the trace of the first time, a minute later, in another process as far as it can tell."""
    monkeypatch.setenv(
        TRACE, f"Root=1-{MACHINE.now_ms() // 1000 - 60:08x}-0123456789abcdef01234567;Sampled=0"
    )
    new = direct("POST", "/v1/queues/emails/jobs", {"payload": 1})
    many = direct("POST", "/v1/queues/emails/jobs", {"jobs": [{"payload": 2}, {"payload": 3}]})
    first, again = (load("enqueue")(new, Named("one")) for _ in range(2))
    assert first["body"]["job_id"] == again["body"]["job_id"]
    batch, repeated = (load("enqueue")(many, Named("two")) for _ in range(2))
    assert [each["job_id"] for each in batch["body"]["jobs"]] == [
        each["job_id"] for each in repeated["body"]["jobs"]
    ]
    other = load("enqueue")(new, Named("three"))
    assert other["body"]["job_id"] != first["body"]["job_id"]
    queue = Queue.connect(address, "emails")
    assert queue.stats()["queued"] == 4
    for lease in queue.claim(limit=4):
        lease.complete()
    assert load("enqueue")(new, Named("one"))["body"]["job_id"] == first["body"]["job_id"]
    assert queue.stats()["queued"] == 0  # it is over, and stays so
