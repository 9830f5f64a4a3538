"""Each check of this theme, removed in turn, is missed: the simulator says so."""

from __future__ import annotations

from simulation.mutations import too_late
from tests.support.controls import Case, cases


@cases(too_late)
def test_a_removed_check_is_caught_by_a_violation(case: Case) -> None:
    case.judge()
