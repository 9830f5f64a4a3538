"""How processes of the local stack end, and the stack with them, when something holds on or has come too late."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from osqueue.local import Stack, instance, pool
from osqueue.local.instance import Instance, Launch
from osqueue.local.invocation import Invocation, Outcome
from osqueue.local.log import Log
from osqueue.local.pool import Pool
from tests.unit.tiny_functions import PATIENCE_S, Gate, Lines, function, is_alive, tiny_stack

ROOT = Path(__file__).resolve().parents[2]
FORKED = """
import os, sys
from pathlib import Path
from tests.unit.tiny_functions import tiny_stack
with tiny_stack(Path(sys.argv[1])):
    if not os.fork():
        sys.stdin.read()  # until its caller lets it go
        os._exit(0)
print("ended", flush=True)
"""


def kind_of(outcome: Outcome) -> str:
    assert outcome.failed, outcome.payload
    return str(json.loads(outcome.payload)["errorType"])


def ends(stack: Stack) -> bool:
    """Whether it stops, which must not take the test along where it does not."""
    thread = threading.Thread(target=stack.stop, args=(0,), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
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
    reader.join(PATIENCE_S)
    ended = said == ["ended\n"]
    process.stdin.close()
    process.wait()
    reader.join()
    process.stdout.close()
    assert ended


def test_who_ignores_sigterm_in_the_middle_of_a_request_is_killed_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "JOIN_S", 2 * PATIENCE_S)
    seen, gate = Lines(), Gate(tmp_path)
    names = ("claim", "jobs")
    table = [function(name, timeout_s=4 * int(PATIENCE_S)) for name in names]
    stack = tiny_stack(tmp_path, seen, processes=1, table=table)
    stack.start()
    for name in names:
        stack.invoke(name, {"do": "ignore"})
        threading.Thread(target=stack.invoke, args=(name, gate.ask), daemon=True).start()
        seen.wait(name, "holding")
    pids = [each.pid for each in stack.instances() if each.pid is not None]
    assert ends(stack)
    assert [is_alive(pid) for pid in pids] == [False, False]


def test_what_a_dead_process_was_given_is_answered_although_nobody_will_run_it(tmp_path: Path) -> None:
    launch = Launch(function("claim"), "arn", (), tmp_path, {}, None, Log())
    owner, invocation = Pool(launch, 1), Invocation(b"{}")
    dead = Instance(launch, owner)
    dead.box.put(invocation)
    owner.close()
    dead.stop()
    dead.start()
    assert dead.join(PATIENCE_S)
    assert invocation.finished


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
    with tiny_stack(tmp_path, variables={"NAME": value}, patience_s=1.0) as stack:
        assert kind_of(stack.invoke("claim", {})) == "Runtime.InvalidEntrypoint"
