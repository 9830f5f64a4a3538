"""What the comparison of embedded queues makes of its workers' answers."""

from __future__ import annotations

import pytest

from bench.embedded import CROWDS, OVER_PEER, PARTS, RoundTally, Setting, compared, over, run, tally
from bench.row import BenchOptions


def rounds(*rates: float) -> list[RoundTally]:
    return [RoundTally(rate=rate, twice=0, longest_s=0.0) for rate in rates]


def test_three_steps_of_any_process_are_a_job() -> None:
    answers = [
        {"steps": 7, "taken": ["a", "b"], "longest_s": 0.1},
        {"steps": 5, "taken": ["c"], "longest_s": 0.3},
    ]
    assert tally(answers, 0.5) == RoundTally(rate=8.0, twice=0, longest_s=0.3)


def test_a_job_that_two_processes_claimed_is_seen() -> None:
    answers = [
        {"steps": 3, "taken": ["a", "b"], "longest_s": 0.0},
        {"steps": 3, "taken": ["b"], "longest_s": 0},
    ]
    assert tally(answers, 1.0).twice == 1


def test_a_ratio_is_the_median_of_the_rounds_ratios_not_the_ratio_of_medians() -> None:
    figure = over("ours", rounds(10, 400, 90), rounds(10, 100, 30), 3.5)
    assert (figure.figure, figure.goal, figure.mark) == (3.0, "≥ 3.5", "missed")
    assert figure.note == "1.00 to 4.00 in 3 rounds"


def test_a_ratio_without_a_goal_only_informs() -> None:
    figure = compared("either", [(1.0, 2.0)])
    assert (figure.figure, figure.goal, figure.mark) == (0.5, "", "")


def test_rounds_without_a_partner_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        over("ours", rounds(1, 2), rounds(1))


def test_every_setting_has_its_goal_and_its_name() -> None:
    assert set(OVER_PEER) == {(processes, flushed) for processes in CROWDS for flushed in (True, False)}
    assert [Setting(processes, True).name for processes in (1, 4)] == [
        "1 process, flushed",
        "4 processes, flushed",
    ]
    assert Setting(16, False).name == "16 processes, not flushed"


def test_a_part_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=f"called two-jobs; there are {', '.join(PARTS)}"):
        list(run(BenchOptions(seconds=1, rounds=1, scale=1, parts=("raw", "two-jobs"))))
