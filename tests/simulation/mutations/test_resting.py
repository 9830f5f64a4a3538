"""Each rule of this theme, removed in turn, is missed: the simulator finds a job that waits for too long."""

from __future__ import annotations

from simulation.mutations import resting
from tests.support.controls import Case, cases


@cases(resting)
def test_a_removed_rule_is_caught_by_a_violation(case: Case) -> None:
    case.judge()
