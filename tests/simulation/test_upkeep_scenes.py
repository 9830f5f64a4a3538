"""Scenes of upkeep, each the way it ends well."""

from __future__ import annotations

import pytest

from osqueue.core.ops import Code
from simulation.scenes import play
from simulation.upkeep_scenes import SCENES


def test_a_bulk_that_joins_just_before_the_collectors_floor_is_committed_keeps_its_segment() -> None:
    assert play(SCENES["attached before the floor"]) == 1


def test_a_floor_that_others_raised_does_not_make_a_collector_delete_what_it_has_not_looked_up() -> None:
    assert play(SCENES["attached as pointers move"]) == 1


@pytest.mark.parametrize("scene", ["id refused to be freed", "id perhaps freed"])
def test_a_job_whose_id_may_still_stand_for_it_is_not_forgotten(scene: str) -> None:
    assert play(SCENES[scene]).status == "queued"


def test_an_entry_that_was_taken_over_is_not_closed() -> None:
    assert play(SCENES["taken over as it is closed"]).status == "duplicate"


def test_a_table_that_was_collected_before_its_commit_is_written_anew() -> None:
    assert play(SCENES["merged after the collector"]) == 1


def test_copies_of_what_is_in_an_index_that_were_collected_before_their_commit_are_written_anew() -> None:
    assert play(SCENES["unfolded after the collector"]) == 6


def test_a_payload_that_was_collected_before_its_commit_is_staged_again() -> None:
    assert play(SCENES["enqueued after the collector"]).status == "queued"


def test_a_result_that_was_collected_before_its_commit_is_staged_again() -> None:
    (done,) = play(SCENES["completed after the collector"])
    assert done.ok


def test_a_segment_that_was_collected_before_its_commit_is_refused() -> None:
    assert play(SCENES["attached after the collector"]) == Code.STALE


def test_a_bulk_that_was_collected_before_its_commit_is_refused_as_a_whole() -> None:
    assert play(SCENES["loaded after the collector"]) == {"Throttled": 1}


def test_a_segment_written_anew_and_collected_before_its_commit_takes_nothings_place() -> None:
    assert play(SCENES["rewritten after the collector"]) == 2


def test_merged_segments_are_refused_when_they_are_old_or_a_rule_covers_some() -> None:
    assert play(SCENES["segments merged after the collector"]) == Code.STALE
    assert play(SCENES["segments merged across a rule"]) == Code.RETRY


def test_a_worker_that_stood_still_while_it_asked_for_the_time_asks_again() -> None:
    assert 10_000 <= play(SCENES["asked for the time"]) < 13_000
