"""The contract as it is printed is the file that is checked in, byte by byte."""

from __future__ import annotations

import subprocess
import sys

from tests.support.patience import PATIENCE
from tests.support.places import ROOT


def test_the_file_is_what_the_module_prints() -> None:
    command = [sys.executable, "-m", "osqueue.server.openapi"]
    printed = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout
    assert (ROOT / "openapi.json").read_bytes() == printed, (
        "make it again: python -m osqueue.server.openapi > openapi.json"
    )
