"""How processes of the local stack end, and the stack with them, when something holds on or has come too late."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from osqueue.devstack import Stack, instance, pool
from osqueue.devstack import stack as stack_module
from osqueue.devstack.instance import Instance, LaunchSpec
from osqueue.devstack.invocation import Invocation, InvocationResult
from osqueue.devstack.log import ProcessLog
from osqueue.devstack.pool import Pool
from tests.support.patience import PATIENCE
from tests.support.places import ROOT
from tests.support.tiny_functions import (
    Gate,
    Lines,
    function,
    is_alive,
    stat_of,
    tiny_stack,
    wait_until,
)

FORKED = """
import os, sys
from pathlib import Path
from tests.support.tiny_functions import tiny_stack
with tiny_stack(Path(sys.argv[1])):
    if not os.fork():
        sys.stdin.read()  # until its caller lets it go
        os._exit(0)
print("ended", flush=True)
"""


def kind_of(outcome: InvocationResult) -> str:
    assert outcome.failed, outcome.payload
    return str(json.loads(outcome.payload)["errorType"])


def ends(stack: Stack) -> bool:
    """Whether it stops, which must not take the test along where it does not."""
    thread = threading.Thread(target=stack.stop, args=(0,), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


# ── The stack ────────────────────────────────────────────────────────────────
def test_a_fork_of_the_caller_does_not_hold_the_end_up(tmp_path: Path) -> None:
    """As a worker of multiprocessing is one: it has everything that was open when it was made."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said: list[str] = []
    reader = threading.Thread(target=lambda out: said.append(out.readline()), args=[process.stdout])
    reader.start()
    reader.join(PATIENCE)
    ended = said == ["ended\n"]
    process.stdin.close()
    process.wait()
    reader.join()
    process.stdout.close()
    assert ended


def test_at_the_end_every_process_hears_sigterm_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (instance, stack_module):
        monkeypatch.setattr(module, "TERMINATE_S", PATIENCE)
    seen = Lines()
    with tiny_stack(tmp_path, seen) as stack:
        outcomes = [stack.invoke("claim", {"do": "listen"}), stack.invoke("queues", {})]
    said = "".join(seen.of("claim"))  # the runtime client may have its say in the middle of the line
    assert "terminated" in said
    assert [is_alive(json.loads(each.payload)["pid"]) for each in outcomes] == [False, False]


def test_who_ignores_sigterm_between_requests_is_not_left_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "JOIN_S", PATIENCE)
    with tiny_stack(tmp_path) as stack:
        outcome = stack.invoke("jobs", {"do": "ignore"})
    assert not is_alive(json.loads(outcome.payload)["pid"])


def test_who_ignores_sigterm_in_the_middle_of_a_request_is_killed_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "JOIN_S", 2 * PATIENCE)
    seen, gate = Lines(), Gate(tmp_path)
    names = ("claim", "jobs")
    table = [function(name, timeout_s=4 * PATIENCE) for name in names]
    stack = tiny_stack(tmp_path, seen, processes=1, table=table)
    stack.start()
    for name in names:
        stack.invoke(name, {"do": "ignore"})
        threading.Thread(target=stack.invoke, args=(name, gate.ask), daemon=True).start()
        seen.wait(name, "holding")
    pids = [each.pid for each in stack.instances() if each.pid is not None]
    assert ends(stack)
    assert [is_alive(pid) for pid in pids] == [False, False]


def test_a_stack_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    script = """
import sys, threading
from pathlib import Path
from tests.support.tiny_functions import Gate, Lines, tiny_stack
folder, lines = Path(sys.argv[1]), Lines()
stack = tiny_stack(folder, lines)
stack.start()
stack.invoke("claim", {})  # frozen from now on
threading.Thread(target=stack.invoke, args=("jobs", Gate(folder).ask), daemon=True).start()  # runs on
lines.wait("jobs", "holding")
print(*(each.pid for each in stack.instances()), flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not any(map(is_running, pids)), f"{pids} are left")


def is_running(pid: int) -> bool:
    """Whether it lives; who ended and waits for a parent to notice does not."""
    try:
        return stat_of(pid)[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_a_dead_process_was_given_is_answered_although_nobody_will_run_it(tmp_path: Path) -> None:
    launch = LaunchSpec(function("claim"), "arn", (), tmp_path, {}, None, ProcessLog())
    owner, invocation = Pool(launch, 1), Invocation(b"{}")
    dead = Instance(launch, owner)
    dead.box.put(invocation)
    owner.close()
    dead.stop()
    dead.start()
    assert dead.join(PATIENCE)
    assert invocation.finished


def test_a_process_that_was_killed_is_given_nothing_more(tmp_path: Path) -> None:
    """It may have asked for the next event before it died; nobody knows of its end until a moment later."""
    launch = LaunchSpec(
        function("claim"), "arn", (sys.executable, "-c", ""), tmp_path, {}, None, ProcessLog()
    )
    owner, invocation = Pool(launch, processes=0), Invocation(b"{}")
    killed, alive = Instance(launch, owner), Instance(launch, owner)
    assert killed._spawn()
    killed.kill()
    owner.submit(invocation)
    assert owner.next_for(killed) is None
    assert owner.next_for(alive) is invocation
    owner.submit(Invocation(b"{}"))
    assert killed.box.empty()
    assert killed._process is not None
    killed._process.communicate(timeout=PATIENCE)


# ── A process ────────────────────────────────────────────────────────────────
def test_a_process_whose_child_holds_its_output_is_dead_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "TERMINATE_S", 0.1)
    gate = Gate(tmp_path)
    with tiny_stack(tmp_path, processes=1) as stack:
        assert kind_of(stack.invoke("claim", {**gate.ask, "do": "leave", "code": 3})) == "Runtime.ExitError"
        stack.invoke("claim", {**gate.ask, "do": "leave"})  # frozen from now on
        stack.crash("claim")
        assert not stack.invoke("claim", {}).failed  # by the one process that there may be


@pytest.mark.parametrize("value", [1, "\0"])
def test_variables_that_no_process_takes_fail_the_request(tmp_path: Path, value: Any) -> None:
    with tiny_stack(tmp_path, variables={"NAME": value}) as stack:
        assert kind_of(stack.invoke("claim", {})) == "Runtime.InvalidEntrypoint"
