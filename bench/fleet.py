"""Starts worker processes behind one gate, so that none is measured while another still imports.

A worker prints ``ready`` when it could begin, waits for a line on standard input, works, and prints one line
of JSON. Both sides' workers keep to this.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
READY = "ready"
PATIENCE_S = 900.0  # no worker may take longer than this after the gate opened

Answer = dict[str, Any]


def run_together(commands: Sequence[Sequence[str]]) -> list[Answer]:
    """Start every command, open the gate when all are ready, and collect their answers in order."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "layers/osqueue/python"), "PYTHONHASHSEED": "0"}
    workers = [
        subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for command in commands
    ]
    try:
        for worker, command in zip(workers, commands, strict=True):
            assert worker.stdout is not None
            if (line := worker.stdout.readline().strip()) != READY:
                raise RuntimeError(f"{' '.join(command)} said {line!r} instead of {READY!r}")
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        answers = [worker.communicate(timeout=PATIENCE_S)[0] for worker in workers]
        for worker, command in zip(workers, commands, strict=True):
            if worker.returncode:
                raise RuntimeError(f"{' '.join(command)} ended with status {worker.returncode}")
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
    return [json.loads(answer) for answer in answers]


def run_one(command: Sequence[str]) -> Answer:
    """The answer of a single worker."""
    [answer] = run_together([command])
    return answer
