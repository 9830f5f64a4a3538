"""The controls of the simulator as test cases, for the files that walk them theme by theme."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import pytest

from simulation.mutations.control import Control, Detection


class Case(NamedTuple):
    """One check, and one place where its lack is seen."""

    control: Control
    detection: Detection

    def judge(self) -> None:
        """The violation is seen there without the check."""
        with self.control.remove():
            violation = self.detection.look()
        assert re.search(self.detection.words, violation), violation or "nothing was seen"


def cases(theme: ModuleType) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Every case of a theme."""
    found = [Case(control, detection) for control in theme.CONTROLS for detection in control.detections]
    names = [f"{case.control.name}, in {case.detection.place}" for case in found]
    return pytest.mark.parametrize("case", found, ids=names)
