"""``osqueue store check`` with other processes, as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.patience import PATIENCE


def test_processes_race_for_one_object_and_none_loses_a_write(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "osqueue", "store", "check", f"file://{tmp_path}/jobs?fsync=off"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = {each["check"]: each for each in map(json.loads, ended.stdout.splitlines())}
    assert found["store: processes"]["level"] == "ok"
    assert found["store: processes"]["found"].startswith("3 at once made 15 writes")
    assert [each for each in (tmp_path / "jobs" / "doctor").rglob("*") if each.is_file()] == []
