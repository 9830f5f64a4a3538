"""Scenes of turns, each the way it ends well."""

from __future__ import annotations

import pytest

from simulation.scenes import play
from simulation.turn_scenes import SCENES


@pytest.mark.parametrize(
    "scene", ["a note read once its writer is answered", "a note read by two", "an answer to another's note"]
)
def test_what_belongs_to_other_notes_changes_no_answer(scene: str) -> None:
    assert play(SCENES[scene]) == ()


def test_a_writer_that_joins_a_busy_one_wins_the_next_swap() -> None:
    play(SCENES["a writer joins a busy one"])


def test_a_writer_who_got_no_turn_finds_that_its_note_was_carried_out() -> None:
    assert len(play(SCENES["a note carried out too late"])) == 1
