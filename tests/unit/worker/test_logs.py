"""What a worker logs: failures with type and message, and whose job a record of a handler belongs to."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from osqueue import AsyncQueue, Fail, Queue, Retry, Unavailable, WorkerJob
from osqueue.stores.base import Failed, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from osqueue.worker import JobLogFilter
from osqueue.worker.heartbeats import _beat
from osqueue.worker.logs import JsonFormatter, TextFormatter, set_up
from osqueue.worker.loop import Worker

Records = pytest.LogCaptureFixture


@pytest.fixture
def q() -> Queue[Any]:
    queue: Queue[Any] = Queue.connect("memory://", "emails")
    queue.configure(backoff_base=0.001)
    return queue


def failures(caplog: Records) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_failed_attempt_is_a_warning_and_a_dead_letter_an_error(q: Queue[Any], caplog: Records) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        raise OSError("mailbox\nfull")

    job = q.enqueue({"secret": "p4ss"}, max_attempts=2).job_id
    q.run(until_empty=True)
    while len(failures(caplog)) < 2:
        q.run(until_empty=True)
    first, last = failures(caplog)
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
    said = f"job {job}: attempt 1 of 2 failed: OSError: mailbox\\nfull (at {__file__}:"
    assert first.getMessage().startswith(said)
    assert "attempt 2 of 2 failed, and the job is a dead letter: OSError: mailbox" in last.getMessage()
    assert (first.name, first.exc_info) == ("osqueue.worker", None)
    assert "p4ss" not in caplog.text


@pytest.mark.parametrize("returned", [True, False])
@pytest.mark.parametrize(
    ("directive", "level"), [(Fail("no such mailbox"), "ERROR"), (Retry(600, "no such mailbox"), "WARNING")]
)
def test_a_failure_that_the_handler_decides_on_is_logged(
    q: Queue[Any], caplog: Records, directive: Any, level: str, returned: bool
) -> None:
    @q.handler
    def send(job: WorkerJob[Any]) -> Any:
        if returned:
            return directive
        raise directive

    job = q.enqueue(1).job_id
    q.run(until_empty=True)
    (record,) = failures(caplog)
    assert record.levelname == level
    assert f"job {job}: attempt 1 of 3 failed" in record.getMessage()
    assert "no such mailbox" in record.getMessage()


@pytest.mark.parametrize(("option", "level"), [(True, logging.INFO), (False, logging.DEBUG)])
def test_the_traceback_comes_on_request_or_at_level_debug(
    q: Queue[Any], caplog: Records, option: bool, level: int
) -> None:
    q.handler(lambda job: 1 / job.payload)
    q.enqueue(0, max_attempts=1)
    with caplog.at_level(level, logger="osqueue.worker"):
        q.run(until_empty=True, traceback=option)
    (record,) = failures(caplog)
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


# ── Records of handlers ──────────────────────────────────────────────────────
class Kept(logging.Handler):
    """Keeps what it formats."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(formatter)
        self.addFilter(JobLogFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def shop() -> Iterator[logging.Logger]:
    logger = logging.getLogger("shop")
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers.clear()


def work(q: Queue[Any], logger: logging.Logger) -> list[str]:
    @q.handler
    def send(job: WorkerJob[Any]) -> None:
        logger.info("sending %s", job.payload)

    @q.handler(kind="async")
    async def send_async(job: WorkerJob[Any]) -> None:
        logger.info("sending %s", job.payload)

    done = q.enqueue_many([{"payload": 1}, {"payload": 2, "kind": "async"}])
    logger.info("before")
    q.run(until_empty=True)
    return [str(each.job_id) for each in done]


def test_records_of_a_handler_carry_the_id_of_their_job(q: Queue[Any], shop: logging.Logger) -> None:
    kept = Kept(logging.Formatter("%(job_id)s %(attempt)s %(message)s"))
    shop.addHandler(kept)
    first, second = work(q, shop)
    assert sorted(kept.lines) == sorted(["None None before", f"{first} 1 sending 1", f"{second} 1 sending 2"])


def test_a_line_of_text_ends_with_the_job(q: Queue[Any], shop: logging.Logger) -> None:
    kept = Kept(TextFormatter())
    shop.addHandler(kept)
    first, second = work(q, shop)
    assert kept.lines[0].endswith("INFO shop: before")
    ends = sorted(line.partition("shop: ")[2] for line in kept.lines[1:])
    assert ends == [f"sending 1 [job {first}]", f"sending 2 [job {second}]"]


def test_a_line_of_json_has_fields(q: Queue[Any], shop: logging.Logger) -> None:
    kept = Kept(JsonFormatter())
    shop.addHandler(kept)
    first, _ = work(q, shop)
    before, *rest = map(json.loads, kept.lines)
    assert (before["level"], before["logger"], before["message"]) == ("info", "shop", "before")
    assert not {"job_id", "attempt", "traceback"} & before.keys()
    (mine,) = [each for each in rest if each["message"] == "sending 1"]
    assert (mine["job_id"], mine["attempt"]) == (first, 1)
    try:
        raise OSError("two\nlines")
    except OSError:
        shop.exception("lost")
    assert json.loads(kept.lines[-1])["traceback"].endswith("OSError: two\nlines")


@pytest.fixture
def root() -> logging.Logger:
    return logging.Logger("root", logging.WARNING)  # noqa: LOG001 - no other test sees this one


def test_a_program_that_logs_by_itself_is_left_alone_unless_something_is_wished(root: logging.Logger) -> None:
    own = logging.StreamHandler()
    root.addHandler(own)
    set_up(root, None, None)
    assert (root.handlers, root.level) == ([own], logging.WARNING)
    set_up(root, "error", None)
    assert (root.handlers, root.level) == ([own], logging.ERROR)
    set_up(root, None, "json")
    assert isinstance(root.handlers[0].formatter, JsonFormatter)
    assert (len(root.handlers), root.level) == (1, logging.INFO)


def test_one_that_does_not_gets_lines_of_text(root: logging.Logger) -> None:
    set_up(root, None, None)
    assert isinstance(root.handlers[0].formatter, TextFormatter)
    assert root.level == logging.INFO


# ── A store that comes back ──────────────────────────────────────────────────
class Down(WrappedStore):
    """A store that gives no answer while it is silent."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.silent = False

    def perform(self, request: StoreRequest) -> StoreReply:
        if self.silent:
            return Failed(Unavailable("no answer"))
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def test_the_end_of_an_outage_is_as_loud_as_its_beginning(caplog: Records) -> None:
    store = Down()
    q: Queue[Any] = Queue(store, "emails", timeout=1)
    q.enqueue(1)
    q.handler(lambda job: None)

    def end(record: logging.LogRecord) -> bool:
        store.silent = store.silent and "cannot be reached" not in record.getMessage()
        return True

    store.silent = True
    logging.getLogger("osqueue.worker").addFilter(end)
    try:
        q.run(until_empty=True)
    finally:
        logging.getLogger("osqueue.worker").removeFilter(end)
    lost, back = failures(caplog)
    assert "the queue cannot be reached (" in lost.getMessage()
    assert back.getMessage() == "the queue can be reached again"


def test_an_async_queue_logs_the_same(caplog: Records) -> None:
    import asyncio

    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue(MemoryStore(), "emails")

        @q.handler
        async def send(job: WorkerJob[Any]) -> None:
            raise OSError("mailbox full")

        await q.enqueue(1, max_attempts=1)
        await q.run(until_empty=True)

    asyncio.run(main())
    (record,) = failures(caplog)
    assert (record.levelname, "OSError: mailbox full" in record.getMessage()) == ("ERROR", True)


def test_so_is_that_of_heartbeats(caplog: Records) -> None:
    import asyncio

    class Reporter:
        def beat(self, jobs: Any) -> Any:
            return None

    async def silent(flow: Any) -> Any:
        raise Unavailable("no answer")

    async def heard(flow: Any) -> Any:
        return []

    unheard: set[Any] = set()
    for call in (silent, silent, heard, heard):
        asyncio.run(_beat([], 0, unheard, Reporter(), call))  # type: ignore[arg-type]
    said = [record.getMessage() for record in failures(caplog)]
    assert [line.startswith("a heartbeat of 0 jobs failed") for line in said] == [True, True, False]
    assert said[2] == "heartbeats get through again"


def test_a_stop_says_for_how_many_jobs_it_waits(q: Queue[Any], caplog: Records) -> None:
    q.handler(lambda job: None)
    worker = Worker(q, drain=5)
    worker._hand.running.update(dict.fromkeys("ab"))  # type: ignore[misc]
    with caplog.at_level(logging.INFO, logger="osqueue.worker"):
        worker._on_signal(signal.SIGTERM)
        worker._on_signal(signal.SIGTERM)
    assert [record.getMessage() for record in caplog.records] == [
        "SIGTERM: waiting for 2 running jobs, up to 5 s",
        "SIGTERM: ending now",
    ]
