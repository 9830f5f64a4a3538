"""A write on a cluster of two executors, each a process of its own; one is killed when its task has staged everything.

    python killed_executor.py FOLDER

prints as JSON which executors there were, and what is in the queue afterwards. It is a program of its own because a
process has one Spark context, and that of the tests has no executors to kill.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS = 4_000
PARTITIONS = 4


def main(folder: Path) -> dict[str, Any]:
    import pyspark

    from osqueue import Queue
    from osqueue.pipeline.session import session
    from osqueue.spark import OsqueueDataSource, options
    from osqueue.spark.writer import BulkDataSourceWriter
    from tests.pipeline.quick import JAVA, QUICK

    class Killing(OsqueueDataSource):  # defined here, so that it is pickled by value
        @classmethod
        def name(cls) -> str:
            return "osqueue_killing"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            class Writer(BulkDataSourceWriter):
                def write(self, iterator: Iterator[Any]) -> Any:
                    message = super().write(iterator)
                    # This process is a child of Python's daemon, and that one of the executor.
                    executor = int(
                        Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
                    )
                    (folder / f"executor-{executor}").touch()
                    with contextlib.suppress(FileExistsError):
                        (folder / "killed").touch(exist_ok=False)
                        command = Path(f"/proc/{executor}/cmdline").read_text()
                        assert "CoarseGrainedExecutorBackend" in command, command
                        os.kill(executor, signal.SIGKILL)
                    return message

            return Writer(options.write_options(self.options), schema, overwrite)

    spark = session(
        "killed executor",
        master="local-cluster[2,1,512]",
        settings={
            **QUICK,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": JAVA,
            # A machine that stands still for a minute is no executor that died.
            "spark.network.timeout": "600s",
            "spark.worker.timeout": "600",
        },
    )
    spark.dataSource.register(Killing)
    address = f"file://{folder}/jobs?fsync=off"
    q = Queue.connect(address, "emails")
    q.enqueue({"n": -1})
    before = q.stats()["commits"]
    frame = spark.range(ROWS, numPartitions=PARTITIONS).selectExpr(
        "named_struct('n', id, 'pad', repeat('x', 2000)) payload"
    )
    place = {"address": address, "queue": "emails", "batch_id": "one"}
    for _ in range(2):  # the second run is the same batch
        frame.write.format("osqueue_killing").options(**place).mode("append").save()
    work = Path(pyspark.__file__).parent / "work"  # where Spark's workers keep what executors print
    application = spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(work / application, ignore_errors=True)
    with contextlib.suppress(OSError):  # others are using it
        work.rmdir()
    commits = q.stats()["commits"] - before
    found: list[int] = []
    while leases := q.claim(1_000):
        found.extend(lease.payload["n"] for lease in leases)
        q.complete_many(leases)
    return {
        "killed": (folder / "killed").exists(),
        "executors": len(list(folder.glob("executor-*"))),
        "bodies": sum(path.is_file() for path in folder.rglob("bodies/*")),
        "commits": commits,
        "each once": sorted(found) == list(range(-1, ROWS)),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)
