"""A run of the pipeline that kills itself after so many writes, when what it writes has no name yet.

    python -m tests.pipeline.killed_run JOB STORE TABLES OUT WRITES

JOB is ``run`` or ``compact``. With 0 writes it lives, and prints how many there were: before metrics, and in all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osqueue.pipeline.engines.local import LocalEngine
from osqueue.pipeline.jobs import compact, run
from osqueue.pipeline.jobs.command import Progress, silent
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.jobs.run import PipelineRun
from osqueue.stores.file import FileStore


def main(job: str, store: str, tables: str, out: str, last: str) -> dict[str, int]:
    written = 0

    def counted(write: Callable[..., Any], before: bool) -> Callable[..., Any]:
        def act(*arguments: Any, **more: Any) -> Any:
            nonlocal written
            made = None if before else write(*arguments, **more)
            written += 1
            if written == int(last):
                os.kill(os.getpid(), signal.SIGKILL)
            return write(*arguments, **more) if before else made

        return act

    # The file of a table is written and has no name; the page is a draft.
    FileStore._write_temporary = counted(FileStore._write_temporary, before=False)  # type: ignore[method-assign]
    Path.replace = counted(Path.replace, before=True)  # type: ignore[method-assign]
    before_metrics = 0

    def step(what: str) -> Progress:
        nonlocal before_metrics
        if what == "tables of metrics":
            before_metrics = written
        return silent

    engine = LocalEngine()
    if job == "compact":
        compact.run(engine, Compaction(store, tables))
    else:
        run.run(engine, PipelineRun(store, tables, out), step)
    return {"before_metrics": before_metrics, "all": written}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)
