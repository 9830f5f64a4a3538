"""The consumer of the demo's last part: the stack invokes it when letters wait, and nobody polls."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from osqueue.aws import consumer

LETTER_S = 0.01
PLACE = "DEMO_LETTERS"  # a folder: one line for each job, in a file for each process


@consumer
def handler(job: Any) -> None:
    """Note that it ran, after as long as a small letter takes."""
    time.sleep(LETTER_S)
    with (Path(os.environ[PLACE]) / str(os.getpid())).open("a") as notes:
        print(job.job_id, file=notes)
