"""The soak that kills servers sees what it looks for: a job lost, one done twice, a completion forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.kills import faults_of

COUNTERS = {"enqueued": 2, "completed": 2}
THERE = {
    "a": SimpleNamespace(state="completed", result="by ada"),
    "b": SimpleNamespace(state="completed", result="by bob"),
}
TOLD = {"a": ["by ada"], "b": ["by bob"]}


def test_nothing_is_wrong_where_each_job_is_there_once_with_its_result() -> None:
    assert faults_of(["a", "b"], TOLD, THERE, COUNTERS) == []
    assert (
        faults_of(["a", "b"], {"a": ["by ada", "by ada"]}, THERE, COUNTERS) == []
    )  # told twice, or not at all


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"found": {**THERE, "b": None}}, "b: its enqueue was acknowledged, and it is not there"),
        ({"found": {**THERE, "b": SimpleNamespace(state="queued", result=None)}}, "b: it is queued"),
        ({"completions": {**TOLD, "b": ["by eve", "by bob"]}}, "b: 2 completions were acknowledged"),
        (
            {"completions": {**TOLD, "b": ["by eve"]}},
            "b: {'by eve'} was acknowledged, and the result is 'by bob'",
        ),
        ({"counters": {**COUNTERS, "enqueued": 3}}, "3 jobs were enqueued, of 2 acknowledged"),
        ({"counters": {**COUNTERS, "completed": 1}}, "1 jobs were completed, of 2 acknowledged"),
    ],
)
def test_what_must_not_be_is_told(changed: dict[str, Any], fault: str) -> None:
    given = {"completions": TOLD, "found": THERE, "counters": COUNTERS, **changed}
    (told,) = faults_of(["a", "b"], **given)
    assert told.startswith(fault)
