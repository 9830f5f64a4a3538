"""The list of controls: each has a name of its own, is seen somewhere, and is walked by a test."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from simulation import (
    consuming,
    empty_claims,
    fairness,
    first_come,
    following,
    grouping,
    mass_cancels,
    schedules,
)
from simulation.flow_profiles import FLOW_CONTROL
from simulation.mutations import CONTROLS, THEMES
from simulation.mutations.control import Control

TABLE = Path(__file__).parents[3] / "docs/design/0019-invariants.md"


def test_no_two_controls_share_a_name_and_each_is_seen_somewhere() -> None:
    names = [control.name for control in CONTROLS]
    assert len(set(names)) == len(names)
    assert all(isinstance(control, Control) and control.detections for control in CONTROLS)


def test_every_theme_is_walked() -> None:
    walked = {file.stem.removeprefix("test_") for file in Path(__file__).parent.glob("test_*.py")}
    assert walked - {"control"} == {theme.__name__.rpartition(".")[2] for theme in THEMES}


def test_the_table_of_what_is_promised_names_checks_and_controls_that_there_are() -> None:
    rows = [row.split("|")[1:-1] for row in TABLE.read_text().splitlines() if row.startswith("| ")]
    cells = [tuple(re.findall("`([^`]+)`", cell) for cell in row[1:]) for row in rows[1:]]
    assert all(checks and controls for checks, controls in cells)
    checks = {check for each, _ in cells for check in each}
    controls = {control for _, each in cells for control in each}
    assert {check for check in checks if find_spec(f"simulation.{check}") is None} == set()
    assert controls - {control.name for control in CONTROLS} == set()
    asked = (consuming, empty_claims, fairness, first_come, following, grouping, mass_cancels, schedules)
    assert {each.__name__.removeprefix("simulation.") for each in asked} - checks == set()


def test_every_kind_of_run_of_flow_control_shows_that_some_check_sees() -> None:
    places = {detection.place for control in CONTROLS for detection in control.detections}
    assert {profile.name for profile in FLOW_CONTROL} - places == set()
