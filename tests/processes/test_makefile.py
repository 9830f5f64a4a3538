"""The three loops of tests: which folders each runs, and that only the last asks for Java and Node.js."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from functools import cache

import pytest

from tests.support.patience import PATIENCE
from tests.support.places import ROOT

CHECKED = ["tests/contract", "tests/simulation", "tests/unit"]


@cache
def commands_of(target: str, *more: str) -> str:
    """What ``make`` would run; nothing is run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", target, *more]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return ended.stdout


def folders_of(commands: str) -> list[str]:
    """Return the folders that pytest is given, on the Python of the set-up."""
    (line,) = [line for line in commands.splitlines() if ".venv/bin/python -m pytest" in line]
    return [word for word in shlex.split(line) if word.startswith("tests")]


@pytest.mark.parametrize(
    ("target", "folders"), [("unit", ["tests/unit"]), ("check", CHECKED), ("test", ["tests"])]
)
def test_each_loop_runs_its_folders(target: str, folders: list[str]) -> None:
    assert folders_of(commands_of(target)) == folders
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_all_tests_include_those_on_other_pythons() -> None:
    assert ".venv-3.13/bin/python -m pytest tests/unit " in commands_of("test")
    assert "-m pytest" not in commands_of("check").replace(".venv/bin/python -m pytest", "")


def test_arguments_and_the_number_of_processes_reach_pytest() -> None:
    commands = commands_of("unit", "TESTS=tests/docs", "ARGS=-k lease -x", "JOBS=5")
    (line,) = [line for line in commands.splitlines() if "-m pytest" in line]
    assert " -n 5 " in line
    assert line.endswith(" tests/docs -k lease -x")


def test_only_the_last_loop_asks_for_java_and_node() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    needs = dict(re.findall(r"^(unit|check|test|lint|types): (.*?) ##", makefile, re.MULTILINE))
    assert needs == {
        "unit": "setup",
        "check": "lint",
        "test": "check-node check-java $(CDK) $(PAGE) $(AZURITE) lint",
        "lint": "setup",
        "types": "setup",
    }
