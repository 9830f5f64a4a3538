"""The list of controls: each has a name of its own, is seen somewhere, and is walked by a test."""

from __future__ import annotations

from pathlib import Path

from simulation.mutations import CONTROLS, THEMES
from simulation.mutations.control import Control


def test_no_two_controls_share_a_name_and_each_is_seen_somewhere() -> None:
    names = [control.name for control in CONTROLS]
    assert len(set(names)) == len(names)
    assert all(isinstance(control, Control) and control.detections for control in CONTROLS)


def test_every_theme_is_walked() -> None:
    walked = {file.stem.removeprefix("test_") for file in Path(__file__).parent.glob("test_*.py")}
    assert walked - {"control"} == {theme.__name__.rpartition(".")[2] for theme in THEMES}
