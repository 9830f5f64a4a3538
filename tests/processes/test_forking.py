"""A queue that was opened before a fork works in parent and children, whether or not the fork runs Python's hooks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from osqueue import Queue
from tests.support.addresses import address_in
from tests.support.patience import PATIENCE

PROGRAM = Path(__file__).with_name("forking.py")
CHILDREN = 2
USES = CHILDREN + 3  # by each child, and by the parent before the fork, after it, and at the end


AT_THE_END = """
import ctypes, os, sys, time
from osqueue.threads import DaemonThreads
threads = DaemonThreads("test", 2, awaited={awaited})
threads.submit(len, "").result()
child = ctypes.PyDLL(None).fork()
threads.submit(lambda: (time.sleep(0.1), print("done", flush=True)))
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.fixture
def served(api_server: ModuleType, tmp_path: Path) -> Iterator[str]:
    """The address of an API in front of a folder."""
    with api_server.api_server(f"file://{tmp_path}/served") as address:
        yield address


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *(("file", how) for how in ("hooks", "none")),
        *((kind, "none") for kind in ("valkey", "s3", "gs", "az", "serve")),
    ],
)
def test_children_of_a_fork_use_the_queue_of_their_parent(
    kind: str, how: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    served = kind == "serve"
    address = request.getfixturevalue("served") if served else address_in(kind, request, tmp_path)
    command = [sys.executable, str(PROGRAM), address, how, str(CHILDREN)]
    done = subprocess.run(command, timeout=PATIENCE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{6 * USES} {USES}\n"), done.stderr


@pytest.mark.parametrize("how", ["hooks", "none"])
@pytest.mark.parametrize("kind", ["file", "serve"])
def test_children_of_a_fork_start_by_slots_of_their_own(
    kind: str, how: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = request.getfixturevalue("served") if kind == "serve" else address_in(kind, request, tmp_path)
    command = [sys.executable, str(PROGRAM.with_name("forking_pacer.py")), address, how]
    done = subprocess.run(command, timeout=PATIENCE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "given back: False, started by 3\nstarted by 1\n"), (
        done.stderr
    )


@pytest.mark.parametrize(("awaited", "printed"), [(True, "done\n" * 2), (False, "")])
def test_a_process_waits_at_its_end_for_calls_that_are_awaited_but_not_for_its_parents(
    awaited: bool, printed: str
) -> None:
    """The fork runs no hooks, so Python takes the parent's threads for its own."""
    code = AT_THE_END.format(awaited=awaited)
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=PATIENCE, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


APPLICATION = """
import os
from osqueue import Queue
q = Queue.connect(os.environ["ADDRESS"], "mail")
q.enqueue("before the fork")

def application(environ, start):
    done = q.enqueue(environ["PATH_INFO"])
    start("200 OK", [])
    return [f"{done.status} {os.getpid()}".encode()]
"""


def test_uwsgi_serves_an_application_that_used_s3_before_the_fork(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Two processes at once, so that both meet the first call of a child."""
    program = Path(sys.executable).with_name("uwsgi")
    if not program.exists():
        pytest.skip("uwsgi is not installed beside this Python: it has no wheel for this platform")
    address = address_in("s3", request, tmp_path)
    (tmp_path / "application.py").write_text(APPLICATION)
    command = [str(program), "--master", "--die-on-term", "--processes", "2", "--need-app"]
    command += ["--socket", "web", "--protocol", "http", "--module", "application"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "ADDRESS": address}, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            said = iter(server.stderr.readline, "")
            assert any("spawned uWSGI worker 2" in line for line in said)
            calls, pids = 0, set()
            with ThreadPoolExecutor(4) as callers:
                while len(pids) < 2:  # several at once, so that one process alone is busy
                    asked = list(callers.map(get, [tmp_path / "web"] * 4))
                    calls += len(asked)
                    assert {status for status, _ in asked} == {"queued"}, asked
                    pids |= {pid for _, pid in asked}
            server.terminate()
            server.communicate(timeout=PATIENCE)
        finally:
            server.kill()
    with Queue.connect(address, "mail") as q:
        assert q.stats()["queued"] == 1 + calls


def get(path: Path) -> tuple[str, str]:
    """Send a request to a Unix socket; what the answer says."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(path))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(partial(connection.recv, 4096), b"")).decode()
    status, pid = answer.rpartition("\r\n\r\n")[2].split(" ")
    return status, pid
