"""A queue that was opened before a fork works in parent and children, whether or not the fork runs Python's hooks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

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
