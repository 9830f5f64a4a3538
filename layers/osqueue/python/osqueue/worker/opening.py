"""Giving a claimed job its payload."""

from __future__ import annotations

from typing import Any

from ..errors import OsqueueError, Timeout, Unavailable
from ..model import validation
from ..model.codecs import Codec
from ..operations.claims import GrantedLease
from .job import WorkerJob
from .outcomes import RunFailed, RunOutcome, RunReleased

GIVE_BACK_DELAY_SECONDS = 5.0  # before a job whose payload could not be read is tried again


def open_content(job: WorkerJob[Any], granted: GrantedLease, codec: Codec) -> RunOutcome | None:
    """Give a job its payload and its input; answers how it ends where that cannot be."""
    try:
        job.payload = codec.decode_payload(granted.payload, granted.lease.job.codec)
        job.input = granted.input_by(codec, job.payload)
    except (Unavailable, Timeout):  # the store's trouble, not the job's: no attempt is used
        return RunReleased(GIVE_BACK_DELAY_SECONDS)
    except OsqueueError as error:
        return RunFailed(validation.error_details(error))
    return None
