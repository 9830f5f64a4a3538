"""The consumer that is measured: it notes when each job began, and what each invocation asked of the store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import monotonic
from typing import Any

from osqueue.aws import consumer

PLACE = "BENCH_CONSUMED"  # a folder: a file of lines for each process


def note(line: dict[str, Any]) -> None:
    """Write a line of this process."""
    with (Path(os.environ[PLACE]) / str(os.getpid())).open("a") as file:
        print(json.dumps(line), file=file)


@consumer
def work(job: Any) -> None:
    """One job."""
    note({"job": job.payload, "began": monotonic()})


def handler(event: Any, context: Any) -> Any:
    """One invocation."""
    queue = work.queue(event["osqueue"]["queue"])
    before = dict(queue.requests)
    told = work(event, context)
    asked = {name: count - before.get(name, 0) for name, count in queue.requests.items()}
    note({"asked": asked, "claimed": told["claimed"]})
    return told
