"""The store of the page keeps the contract, and a worker runs jobs on it: the page's files, run as its reader would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from osqueue.stores.base import Store
from osqueue.testing.store_contract import StoreContract
from tests.docs.test_examples import blocks_of
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

PAGE = (ROOT / "docs/writing-a-store.md").read_text(encoding="utf-8")
MEMORY = "/dev/shm"  # its flushes are what the test would wait for, and no part of what it shows
REQUESTS = ["delete", "delete_if_match", "get", "list", "put", "put_if_absent", "put_if_match"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for block in blocks_of(PAGE):
        if file := re.match(r"# (\w+\.py)\n", block.text):
            (tmp_path / file[1]).write_text(block.text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *command: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(folder)}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_store_of_the_page_keeps_the_contract(folder: Path) -> None:
    said = run(
        folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs"
    )
    reasons = {line.rpartition(": ")[2] for line in said.splitlines() if line.startswith("SKIPPED")}
    assert reasons == {
        "the store offers no turns",
        "the store sends no notifications",
        "the store signs no requests",
        "the store states whole seconds",
    }
    assert "failed" not in said


def test_a_worker_runs_jobs_on_it(folder: Path) -> None:
    run(folder, sys.executable, "sign_up.py")
    (block,) = [each for each in blocks_of(PAGE) if each.language == "sh"]
    tally = json.loads(run(folder, "bash", "-euc", block.text).splitlines()[-1])
    assert (tally["queue"], tally["completed"]) == ("emails", 1)


def test_the_page_names_whatever_a_store_may_offer() -> None:
    ours = {"perform", "close", "room_below", *REQUESTS}
    offered = {name for name in vars(Store) if not name.startswith("_")} - ours
    assert len(offered) > 10
    assert [name for name in sorted(offered) if not re.search(rf"`{name}\b", PAGE)] == []
    assert [name for name in ("open_store", "unreachable_store") if not hasattr(StoreContract, name)] == []
