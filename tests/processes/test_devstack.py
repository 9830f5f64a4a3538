"""Functions run as in Lambda: real runtime clients, one request each, frozen, timed out, killed, replaced, ended."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from msgspec.structs import replace

from osqueue.devstack import Stack, environment
from osqueue.devstack.invocation import InvocationResult
from osqueue.devstack.pool import NoInstance
from osqueue.errors import NotInstalled, Rejected, Unavailable
from tests.support.patience import PATIENCE
from tests.support.tiny_functions import (
    Gate,
    Lines,
    function,
    is_alive,
    is_stopped,
    lay_out,
    stat_of,
    tiny_stack,
    wait_until,
)

JOBS = "/v1/queues/emails/jobs"


def value_of(outcome: InvocationResult) -> Any:
    assert not outcome.failed, outcome.payload
    return json.loads(outcome.payload)


def fault_of(outcome: InvocationResult) -> tuple[str, str]:
    assert outcome.failed, outcome.payload
    fault = json.loads(outcome.payload)
    return fault["errorType"], fault["errorMessage"]


class Later:
    """A call in a thread, and its answer."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._answer: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._answer.append(call(*arguments)), daemon=True)
        self._thread.start()

    def answer(self) -> Any:
        self._thread.join(PATIENCE)
        return self._answer[0]


@pytest.fixture(scope="module")
def lines() -> Lines:
    return Lines()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, lines: Lines) -> Iterator[Stack]:
    """One stack for every test that leaves it as it was."""
    with tiny_stack(tmp_path_factory.mktemp("stack"), lines, processes=2) as stack:
        yield stack


@pytest.fixture(scope="module")
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(timeout=PATIENCE, retries=False) as manager:
        yield manager


def post(http: urllib3.PoolManager, stack: Stack, ask: object, path: str = JOBS) -> Any:
    return http.request("POST", stack.url + path, json=ask)


# ── What a function finds around it ──────────────────────────────────────────
def test_a_function_gets_the_request_as_an_event_and_its_answer_comes_back(
    http: urllib3.PoolManager, stack: Stack
) -> None:
    value = {"statusCode": 201, "body": "done", "headers": {"X-Mine": "yes"}, "cookies": ["a=1"]}
    found = post(http, stack, {"do": "answer", "value": value})
    assert (found.status, found.data) == (201, b"done")
    assert (found.headers["x-mine"], found.headers["set-cookie"]) == ("yes", "a=1")
    event = post(http, stack, {"any": "thing"}, JOBS + "?wait=5").json()["event"]
    assert event["routeKey"] == "POST /v1/queues/{queue}/jobs"
    assert event["rawPath"] == JOBS
    assert event["queryStringParameters"] == {"wait": "5"}
    assert json.loads(event["body"]) == {"any": "thing"}
    assert event["headers"]["host"] == stack.url.removeprefix("http://")


def test_a_function_finds_the_variables_that_lambda_sets_and_none_of_the_callers(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = value_of(stack.invoke("jobs", {"do": "environment"}))
    expected = {
        "OSQUEUE_STORE": stack.store,
        "OSQUEUE_SERVICE": "osqueue-dev",
        "AWS_LAMBDA_LOG_FORMAT": "JSON",
        "OSQUEUE_LOG_LEVEL": "INFO",
        "AWS_LAMBDA_FUNCTION_NAME": "osqueue-dev-jobs",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "LAMBDA_TASK_ROOT": str(stack.functions / "jobs"),
        "_HANDLER": "handler.handler",
        "TZ": ":UTC",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert found["AWS_REGION"] == found["AWS_DEFAULT_REGION"]
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in found


def test_variables_can_be_added(tmp_path: Path) -> None:
    with tiny_stack(tmp_path, variables={"OSQUEUE_EVENT_BUS": "a-bus"}) as stack:
        assert value_of(stack.invoke("jobs", {"do": "environment"}))["OSQUEUE_EVENT_BUS"] == "a-bus"


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_it_listens_where_it_is_told_to(tmp_path: Path, http: urllib3.PoolManager) -> None:
    with tiny_stack(tmp_path, host="::1") as stack:
        assert stack.url.startswith("http://[::1]:")
        assert post(http, stack, {}).status == 200


def test_a_function_knows_its_name_its_memory_and_how_long_it_may_run(stack: Stack) -> None:
    found = value_of(stack.invoke("claim", {"do": "context"}))
    assert found["name"] == "osqueue-dev-claim"
    assert found["arn"].endswith(":function:osqueue-dev-claim")
    assert found["memory"] == "512"
    assert 0 < found["left_ms"] <= 28_000
    assert found["folder"] == str(stack.functions / "claim")


# ── Instances ────────────────────────────────────────────────────────────────
def test_between_requests_a_process_is_frozen_and_uses_no_processor(stack: Stack) -> None:
    pid = value_of(stack.invoke("queues", {"do": "spin"}))["pid"]  # a thread of it counts on, if it may
    wait_until(lambda: is_stopped(pid), "it is not frozen")
    before = stat_of(pid)
    for _ in range(20):  # time passes
        value_of(stack.invoke("jobs", {}))
    assert stat_of(pid) == before
    assert value_of(stack.invoke("queues", {}))["pid"] == pid
    assert stat_of(pid)[1] >= before[1]


def test_an_instance_has_one_request_at_a_time(tmp_path: Path, lines: Lines) -> None:
    source = "import os\ndef handler(event, context):\n    print('in', os.getpid())\n    print('out', os.getpid())\n"
    seen = Lines()
    with tiny_stack(tmp_path, seen, functions=lay_out(tmp_path / "f", source), processes=3) as stack:
        calls = [Later(stack.invoke, "claim", {}) for _ in range(24)]
        assert [call.answer().failed for call in calls] == [False] * 24
        assert 1 <= len(stack.instances()) <= 3
        seen.wait("claim", "out", count=24)
    by_process: dict[str, list[str]] = {}
    for line in seen.of("claim"):
        what, _, pid = line.partition(" ")
        by_process.setdefault(pid, []).append(what)
    assert sum(map(len, by_process.values())) == 48
    for told in by_process.values():
        assert told == ["in", "out"] * (len(told) // 2)


def test_a_request_waits_for_whoever_is_ready_first(tmp_path: Path) -> None:
    seen, gate = Lines(), Gate(tmp_path)
    with tiny_stack(tmp_path, seen, processes=1) as stack:
        holding = Later(stack.invoke, "claim", gate.ask)
        seen.wait("claim", "holding")
        waiting = Later(stack.invoke, "claim", {})
        gate.open()
        assert value_of(holding.answer())["pid"] == value_of(waiting.answer())["pid"]


def test_a_request_for_which_no_instance_becomes_free_is_throttled(
    tmp_path: Path, http: urllib3.PoolManager
) -> None:
    seen, gate = Lines(), Gate(tmp_path)
    with tiny_stack(tmp_path, seen, processes=1) as stack:
        holding = Later(stack.invoke, "enqueue", gate.ask)
        seen.wait("enqueue", "holding")
        with pytest.raises(NoInstance):
            stack.invoke("enqueue", {"do": "exit", "code": 1}, patience_s=0.02)
        gate.open()
        holding.answer()
        assert value_of(stack.invoke("enqueue", {}))  # what was throttled is not run later
        seen.wait("enqueue", "released")
        assert [line.split()[0] for line in seen.of("enqueue")] == ["holding", "released"]
    seen, gate = Lines(), Gate(tmp_path, "other")
    with tiny_stack(tmp_path, seen, processes=1, patience_s=0.02) as stack:
        holding = Later(stack.invoke, "enqueue", gate.ask, PATIENCE)
        seen.wait("enqueue", "holding")
        found = post(http, stack, {})
        assert (found.status, found.json()) == (503, {"message": "Service Unavailable"})
        gate.open()
        holding.answer()


# ── What goes wrong ──────────────────────────────────────────────────────────
def test_an_error_of_the_handler_is_a_function_error(tmp_path: Path, http: urllib3.PoolManager) -> None:
    with tiny_stack(tmp_path, processes=1) as stack:
        pid = value_of(stack.invoke("enqueue", {}))["pid"]
        assert fault_of(stack.invoke("enqueue", {"do": "raise"})) == ("ValueError", "as asked")
        found = post(http, stack, {"do": "raise"})
        assert (found.status, found.json()) == (500, {"message": "Internal Server Error"})
        assert value_of(stack.invoke("enqueue", {}))["pid"] == pid  # the process goes on


def test_an_answer_that_is_none_of_http_is_an_error_of_the_server(
    http: urllib3.PoolManager, stack: Stack
) -> None:
    found = post(http, stack, {"do": "answer", "value": {"statusCode": "soon"}})
    assert (found.status, found.json()) == (500, {"message": "Internal Server Error"})


def test_a_function_that_runs_too_long_is_killed_and_replaced(tmp_path: Path) -> None:
    seen, gate = Lines(), Gate(tmp_path)
    with tiny_stack(tmp_path, seen, table=[function("claim", timeout_s=1)]) as stack:
        kind, text = fault_of(stack.invoke("claim", gate.ask))
        assert kind == "Sandbox.Timedout"
        assert text.endswith("Task timed out after 1.00 seconds")
        pid = int(seen.wait("stack", "claim: process ")[0].split()[2])
        owner = stack._pools["claim"]
        owner._launch = replace(owner._launch, function=function("claim"))  # its successor is in no hurry
        assert value_of(stack.invoke("claim", {}))["pid"] != pid
        assert not is_alive(pid)
        assert seen.of("claim") in ([f"holding {pid}"], [])  # none if it came to nothing in that second


def test_the_gateway_gives_up_before_a_function_that_goes_on(
    tmp_path: Path, http: urllib3.PoolManager
) -> None:
    seen, gate = Lines(), Gate(tmp_path)
    with tiny_stack(tmp_path, seen, gateway_timeout_s=1) as stack:
        value_of(stack.invoke("enqueue", {}))
        wait_until(lambda: [each.state for each in stack.instances()] == ["frozen"], "it is not frozen")
        found = post(http, stack, gate.ask)
        assert (found.status, found.json()) == (503, {"message": "Service Unavailable"})
        gate.open()
        seen.wait("enqueue", "released")


def test_a_process_killed_in_the_middle_answers_an_error_and_is_replaced(
    tmp_path: Path, http: urllib3.PoolManager
) -> None:
    seen, gate = Lines(), Gate(tmp_path)
    with tiny_stack(tmp_path, seen, processes=2) as stack:
        holding = Later(post, http, stack, gate.ask)
        pid = int(seen.wait("enqueue", "holding")[0].split()[1])
        assert value_of(stack.invoke("enqueue", {}))["pid"] != pid  # a second one, frozen now
        killed = http.request("POST", f"{stack.url}/_dev/crash?function=enqueue").json()["killed"]
        assert killed == {"function": "enqueue", "pid": pid, "state": "running"}  # it prefers who works
        found = holding.answer()
        assert (found.status, found.json()) == (500, {"message": "Internal Server Error"})
        assert value_of(stack.invoke("enqueue", {}))["pid"] != pid
        kind, text = fault_of(stack.invoke("enqueue", {"do": "exit", "code": 3}))
        assert (kind, text.partition("Error: ")[2]) == (
            "Runtime.ExitError",
            "Runtime exited with error: exit status 3",
        )
        seen.wait("enqueue", "last words")


def test_a_process_killed_between_requests_is_noticed_by_nobody(tmp_path: Path) -> None:
    with tiny_stack(tmp_path, processes=1) as stack:
        pid = value_of(stack.invoke("claim", {}))["pid"]
        for _ in range(5):
            wait_until(lambda: [each.state for each in stack.instances()] == ["frozen"], "it is not frozen")
            killed = stack.crash("claim")
            assert killed is not None
            assert killed.pid == pid
            pid, before = value_of(stack.invoke("claim", {}))["pid"], pid
            assert pid != before
        assert stack.crash("enqueue") is None


def test_a_handler_that_cannot_be_loaded_tells_why_at_every_request(tmp_path: Path) -> None:
    functions = lay_out(tmp_path / "functions", "raise RuntimeError('no good')\n")
    with tiny_stack(tmp_path, functions=functions) as stack:
        for _ in range(2):
            assert fault_of(stack.invoke("claim", {})) == ("RuntimeError", "no good")
        lay_out(functions)  # repaired
        assert value_of(stack.invoke("claim", {}))["pid"]
        (functions / "jobs/handler.py").write_text("import no_such_module\n")
        kind, text = fault_of(stack.invoke("jobs", {}))
        assert kind == "Runtime.ImportModuleError"
        assert "no_such_module" in text


def test_an_answer_larger_than_lambda_gives_is_a_function_error(stack: Stack) -> None:
    limit = 6 * 1024 * 1024 + 100
    assert len(stack.invoke("jobs", {"do": "large", "size": limit - 2}).payload) == limit
    kind, text = fault_of(stack.invoke("jobs", {"do": "large", "size": limit - 1}))
    assert kind == "Function.ResponseSizeTooLarge"
    assert str(limit) in text


class Full:
    """A log on a disk that is full, or whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "nobody reads it")

    def flush(self) -> None:
        """Nothing."""


def test_a_log_that_cannot_be_written_holds_no_function_up(tmp_path: Path, http: urllib3.PoolManager) -> None:
    source = "def handler(event, context):\n    print('x' * 200_000)\n    return 'done'\n"
    functions = lay_out(tmp_path / "functions", source)
    table = [function("enqueue")]
    with tiny_stack(tmp_path, functions=functions, table=table, processes=1, log=Full()) as stack:
        for _ in range(2):  # more than a pipe holds
            assert post(http, stack, {}).status == 200
        pid = stack.crash("enqueue").pid  # type: ignore[union-attr]
        wait_until(lambda: pid not in [each.pid for each in stack.instances()], "its end is not noticed")


# ── The gateway's own answers ────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/v1/queues/"), ("PUT", JOBS), ("GET", "/_dev/x"), ("HEAD", JOBS)],
)
def test_what_is_no_route_is_not_found(
    http: urllib3.PoolManager, stack: Stack, method: str, path: str
) -> None:
    found = http.request(method, stack.url + path)
    assert found.status == 404
    assert found.data in (b'{"message": "Not Found"}', b"")


def test_a_request_larger_than_the_gateway_takes_is_refused(http: urllib3.PoolManager, stack: Stack) -> None:
    limit = 10 * 1024 * 1024
    headers = {"Content-Type": "application/json", "Content-Length": str(limit + 1)}
    found = http.request("POST", stack.url + JOBS, headers=headers, body=b"")
    assert (found.status, found.json()) == (413, {"message": "Request Entity Too Large"})
    found = http.request(
        "POST", stack.url + JOBS, body=iter([b"x" * 1024] * (limit // 1024 + 1)), chunked=True
    )
    assert found.status == 413


def test_a_body_in_chunks_arrives_whole(http: urllib3.PoolManager, stack: Stack) -> None:
    body = iter([b'{"any": ', b'"thing"}'])
    headers = {"Content-Type": "application/json"}
    found = http.request("POST", stack.url + JOBS, body=body, headers=headers, chunked=True)
    assert json.loads(found.json()["event"]["body"]) == {"any": "thing"}


def test_a_large_text_is_measured_as_it_is_sent(http: urllib3.PoolManager, stack: Stack) -> None:
    body = (
        '{"do": "answer", "value": "fits", "pad": "' + "é" * 1_500_000 + '"}'
    )  # 3 MB; 9 MB if it were escaped
    headers = {"Content-Type": "application/json"}
    found = http.request("POST", stack.url + JOBS, headers=headers, body=body.encode())
    assert (found.status, found.data) == (200, b"fits")


def test_a_caller_who_waits_for_a_hundred_before_the_body_gets_it(stack: Stack) -> None:
    host, _, port = stack.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as caller, caller.makefile("rb") as answers:
        headers = (
            f"Host: {host}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
        )
        caller.sendall(f"POST {JOBS} HTTP/1.1\r\n{headers}\r\n".encode())
        assert answers.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert answers.readline() == b"\r\n"
        caller.sendall(b"{}")
        assert answers.readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://example.com"}, {"Host": "example.com"}, {"Host": "example.com:8787"}]
)
def test_pages_of_other_sites_cannot_reach_in(
    http: urllib3.PoolManager, stack: Stack, headers: dict[str, str]
) -> None:
    assert http.request("POST", stack.url + JOBS, headers=headers).status == 403
    assert http.request("POST", stack.url + JOBS, headers={"Origin": stack.url}).status == 200


# ── The schedule ─────────────────────────────────────────────────────────────
def test_the_schedule_invokes_one_after_the_other(tmp_path: Path) -> None:
    source = "def handler(event, context):\n    print('in', event)\n    print('out')\n"
    functions, seen = lay_out(tmp_path / "functions", source), Lines()
    with tiny_stack(tmp_path, seen, functions=functions, schedule_seconds=0.1):
        seen.wait("reaper", "out", count=4)
    told = seen.of("reaper")
    told = told[: len(told) // 2 * 2]  # the last one may have been ended in the middle
    assert [line[:3].strip() for line in told] == ["in", "out"] * (len(told) // 2)
    event = json.loads(told[0].removeprefix("in ").replace("'", '"'))
    assert set(event) == {"source", "scheduled_at"}
    assert event["source"] == "osqueue.schedule"
    assert {who for who, _ in seen.seen if who != "stack"} == {"reaper"}  # nobody else has a schedule


# ── The end ──────────────────────────────────────────────────────────────────
def test_requests_that_run_may_finish_at_the_end(tmp_path: Path, http: urllib3.PoolManager) -> None:
    seen, gate = Lines(), Gate(tmp_path)
    stack = tiny_stack(tmp_path, seen)
    stack.start()
    url = stack.url
    holding = Later(post, http, stack, gate.ask)
    seen.wait("enqueue", "holding")
    ending = Later(stack.stop, PATIENCE)
    wait_until(lambda: refused(http, url), "it still takes requests")
    gate.open()
    assert holding.answer().status == 200
    ending.answer()
    stack.stop()  # again: nothing happens


def refused(http: urllib3.PoolManager, url: str) -> bool:
    try:
        http.request("GET", url + "/nothing", headers={"Connection": "close"})
    except urllib3.exceptions.HTTPError:
        return True
    return False


# ── What cannot be started ───────────────────────────────────────────────────
def test_a_store_that_processes_cannot_share_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="processes of their own") as refusal:
        Stack("memory://shared", functions=lay_out(tmp_path))
    assert refusal.value.field == "store"


def test_a_relative_folder_means_the_same_to_every_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        Stack("file://jobs?fsync=off", functions=lay_out(tmp_path)).store
        == f"file://{tmp_path}/jobs?fsync=off"
    )


def test_a_folder_without_the_handlers_is_refused_by_name(tmp_path: Path) -> None:
    lay_out(tmp_path, names=["enqueue"])
    with pytest.raises(Rejected, match=r"has no claim/handler\.py") as refusal:
        Stack(f"file://{tmp_path}", functions=tmp_path)
    assert refusal.value.field == "functions"


def test_without_a_folder_a_function_that_the_library_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"no handler for hello.*hello/handler\.py") as refusal:
        Stack(f"file://{tmp_path}", table=[function("claim"), function("hello")])
    assert refusal.value.field == "functions"


@pytest.mark.parametrize(
    ("field", "value"),
    [("processes", 0), ("processes", 65), ("port", -1), ("port", 65_536)]
    + [("schedule_seconds", each) for each in (0.01, math.nan, 1e12)],
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, field: str, value: float) -> None:
    with pytest.raises(Rejected) as refusal:
        tiny_stack(tmp_path, **{field: value})
    assert refusal.value.field == field


def test_a_missing_package_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "NEEDED", ("json", "no_such_package"))
    with pytest.raises(NotInstalled, match=r"no_such_package.*pip install 'osqueue\[dev\]'"):
        tiny_stack(tmp_path)


def test_a_port_that_is_taken_is_said_to_be(tmp_path: Path, stack: Stack) -> None:
    port = int(stack.url.rpartition(":")[2])
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}.*Choose another port"):
        tiny_stack(tmp_path, port=port).start()
