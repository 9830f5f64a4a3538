"""Errors: what they carry survives the way to another process."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from osqueue import errors
from osqueue.errors import JobFailed, OsqueueError, Rejected, Unavailable, WaitTimeout
from osqueue.events import Undelivered

KINDS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, OsqueueError)]
FULL: list[OsqueueError] = [
    Rejected("no", field="kind"),
    Unavailable("no", permanent=True),
    WaitTimeout("no", job_id="01890a5d-ac96-774b-bcce-b302099a8000"),
    JobFailed("no", job_id="a", type="ValueError", error="boom", traceback="line 1"),
    Undelivered("no", 3),
]


@pytest.mark.parametrize("again", [lambda each: pickle.loads(pickle.dumps(each)), copy.copy])  # noqa: S301
@pytest.mark.parametrize(
    "error", [*FULL, *(kind("no") for kind in KINDS)], ids=lambda each: type(each).__name__
)
def test_an_error_that_goes_to_another_process_arrives_whole(error: OsqueueError, again: Any) -> None:
    arrived = again(error)
    assert type(arrived) is type(error)
    assert (str(arrived), vars(arrived)) == ("no", vars(error))
