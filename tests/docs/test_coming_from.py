"""The page for those who come from another queue names what there is here, and nothing that is not."""

from __future__ import annotations

import re

import pytest

import osqueue
from osqueue import Queue
from osqueue.model.job_options import ITEM_FIELDS
from osqueue.testing import manual
from tests.docs.test_commands import check
from tests.docs.test_examples import blocks_of
from tests.support.places import ROOT

PAGE = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
HERE = [block.text for block in blocks_of(PAGE) if block.language == "python" and block.run]


def test_what_the_code_becomes_runs() -> None:
    assert len(HERE) == 3
    told: list[str] = []
    names: dict[str, object] = {"deliver": told.append}
    first, second, third = HERE
    exec(first.replace("file://jobs", "memory://"), names)  # noqa: S102 - this is what the page tells its reader
    emails = names["emails"]
    assert isinstance(emails, Queue)
    with manual(emails) as test:
        exec(first.rpartition("\n\n")[2], names)  # noqa: S102 - its last line, in memory
        exec(second, names)  # noqa: S102
        assert [(ran.payload, ran.outcome) for ran in test.drain()] == [
            ({"to": "ada@example.com"}, "completed")
        ] * 2
        exec(third.replace("delay=600", "delay=0").replace("wait=20", "wait=0"), names)  # noqa: S102
    assert told == ["ada@example.com"] * 3


def test_every_command_line_of_it_could_be_run() -> None:
    lines = re.findall(r"`(osqueue [^`]+)`", PAGE)
    assert len(lines) >= 10
    for line in lines:
        if line != "osqueue enqueue":
            check(line.replace("ADDRESS", "file://jobs"))


def test_every_method_and_option_that_it_names_is_there() -> None:
    called = set(re.findall(r"\bemails\.(\w+)\(", PAGE))
    assert called
    assert {name for name in called if not hasattr(Queue, name)} == set()
    assert {
        name for name in re.findall(r"`lease\.(\w+)\(", PAGE) if not hasattr(osqueue.Lease, name)
    } == set()
    options = {"id", "kind", "priority", "delay", "at", "max_attempts", "result_ttl", "headers"}
    assert options <= {*ITEM_FIELDS}
    column = re.findall(r"^\| [a-z ]+ \| ([^|]+) \|.*\|.*\|.*\|", PAGE, re.MULTILINE)
    assert len(column) == 15
    told = {name for cell in column for name in re.findall(r"`(\w+)", cell)}
    assert {name for name in told if not hasattr(Queue, name)} - {*ITEM_FIELDS} == set()


@pytest.mark.parametrize("name", ["Celery", "RQ", "BullMQ", "SQS"])
def test_each_has_its_section(name: str) -> None:
    assert f"\n## {name}\n" in PAGE
