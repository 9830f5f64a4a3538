"""The CDK's own command line runs the app as ``cdk.json`` and the docs say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.places import ROOT


def cdk(output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CI": "1", "NO_COLOR": "1"}
    own = ("--output", output)  # the CDK locks the folder that it writes to
    return subprocess.run(
        [ROOT / "node_modules/.bin/cdk", *arguments, *own],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_it_lists_the_stacks_of_an_environment_and_says_nothing_else(tmp_path: Path) -> None:
    """On any Node.js: 20 has banners unless it is told not to, as the Makefile and conftest.py do."""
    ended = cdk(tmp_path, "ls", "-c", "env=dev")
    assert (ended.returncode, ended.stderr) == (0, "")
    duties = ["storage", "bus", "functions", "api", "schedule", "operations"]
    assert ended.stdout.split() == [f"osqueue-dev-{each}" for each in duties]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no environment named: cdk deploy -c env=NAME, one of dev, staging, prod"),
        (("-c", "env=production"), "env: there is no environment 'production'"),
    ],
)
def test_without_an_environment_it_ends_before_anything_is_built(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    ended = cdk(tmp_path, "ls", *arguments)
    assert ended.returncode == 1
    assert re.search(rf"^error: {re.escape(said)}", ended.stderr, re.MULTILINE)
