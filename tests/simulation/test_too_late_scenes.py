"""Scenes of operations that come too late, each the way it ends well."""

from __future__ import annotations

import pytest

from osqueue.core.ops import Code
from simulation.scenes import play
from simulation.too_late_scenes import SCENES

REFUSED = {
    "kept by its former holder": Code.TICKET_LOST,
    "replaced after its deadline": Code.RETRY,
    "grown beside a listener": Code.RETRY,
    "attached to an ended batch": Code.BATCH_OVER,
    "replaced into an ended batch": Code.BATCH_OVER,
}


@pytest.mark.parametrize(("scene", "code"), REFUSED.items())
def test_an_operation_that_comes_too_late_is_refused(scene: str, code: Code) -> None:
    assert play(SCENES[scene]) == code


def test_a_replacement_of_a_job_cancelled_with_many_others_is_queued_as_a_new_job() -> None:
    assert play(SCENES["replaced after a mass cancel"]).status == "queued"
