"""1,000,000 jobs out of a DataFrame and back into one: seconds, store requests, commits. Needs PySpark and a JDK.

Files without flushes, Spark on two cores of this machine. The session is up before the clock starts, and has run a
small write and a small read; the DataFrame is made of numbers, so making it costs next to nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.row import BenchOptions, Figure, at_most, exactly

JOBS = 1_000_000
PARTITIONS = 8
WRITE_SECONDS_MAX = 60.0
REQUESTS_MAX = 500
ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 900.0  # for all of it


def run(options: BenchOptions) -> Iterator[Figure]:
    """What one process with a Spark session measures."""
    if importlib.util.find_spec("pyspark") is None:
        raise RuntimeError("PySpark is not installed in this environment")
    jobs = max(10_000, int(JOBS * options.scale))
    for shards in (1, 4):
        with TemporaryDirectory(prefix="osqueue-bench-") as folder:
            command = [
                sys.executable,
                "-m",
                "bench.source",
                folder,
                "--jobs",
                str(jobs),
                "--shards",
                str(shards),
            ]
            done = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, timeout=SECONDS_MAX
            )
        found = json.loads(done.stdout.splitlines()[-1])
        yield from _rows(found, jobs, shards)


def _rows(found: dict[str, Any], jobs: int, shards: int) -> Iterator[Figure]:
    place = "1 shard" if shards == 1 else f"{shards} shards"
    spent = ", ".join(f"{count} {kind.upper()}" for kind, count in found["requests"].items() if count)
    total = sum(found["requests"].values())
    yield exactly(f"{place}: jobs queued by one write", found["queued"], jobs, "jobs")
    yield exactly(f"{place}: jobs visible before its commit", found["before"], 0, "jobs")
    yield exactly(f"{place}: commits", found["commits"], shards, "commits")
    rate = f"{jobs / found['write_s']:,.0f} jobs/s"
    yield at_most(f"{place}: write of {jobs:,} rows", found["write_s"], WRITE_SECONDS_MAX, "s", rate)
    yield at_most(f"{place}: store requests, the tasks' included", total, REQUESTS_MAX, "requests", spent)
    yield Figure(f"{place}: the same batch_id again", found["again_s"], "s", note="nothing enqueued")
    yield exactly(f"{place}: jobs queued after that", found["queued_again"], jobs, "jobs")
    yield exactly(f"{place}: jobs read back, each once", found["read"], jobs, "jobs")
    note = f"{jobs / found['read_s']:,.0f} jobs/s, payloads included"
    yield Figure(f"{place}: read of {jobs:,} live jobs", found["read_s"], "s", note=note)


# ── The process with the session ─────────────────────────────────────────────
def measure(folder: str, jobs: int, shards: int) -> dict[str, Any]:
    """Write, write again, read."""
    from osqueue import Queue
    from osqueue.pipeline.session import session
    from osqueue.spark import OsqueueDataSource, options
    from osqueue.spark.writer import BulkDataSourceWriter

    class Counted(OsqueueDataSource):
        """The data source, telling what its write took."""

        @classmethod
        def name(cls) -> str:
            return "osqueue_counted"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            class Writer(BulkDataSourceWriter):
                def commit(self, messages: Sequence[Any]) -> None:
                    queued = Queue.connect(address, "bulk").stats()["queued"]
                    told = {"before": queued - shards, "requests": self.attach(messages)}
                    Path(folder, "told.json").write_text(json.dumps(told), encoding="utf-8")

            return Writer(options.write_options(self.options), schema, overwrite)

    address = f"file://{folder}/jobs?fsync=off"
    spark = session("bench", master="local[2]")
    spark.dataSource.register(Counted)

    def write(count: int, queue: str, batch: str) -> float:
        frame = spark.range(count, numPartitions=PARTITIONS).selectExpr(
            "named_struct('n', id, 'to', concat('user-', id, '@example.com'), 'template', 'welcome') payload"
        )
        begun = time.monotonic()
        place = {"address": address, "queue": queue, "batch_id": batch}
        frame.write.format("osqueue_counted").options(**place).mode("append").save()
        return time.monotonic() - begun

    def read(queue: str) -> float:
        frame = spark.read.format("osqueue_counted").options(address=address, queue=queue).load()
        begun = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        return time.monotonic() - begun

    queue = Queue.connect(address, "bulk")
    queue.configure(shards=shards)
    for _ in range(shards):  # so that there are heads, and commits can be counted
        queue.enqueue("first")
    write(1_000, "warm", "one")
    read("warm")
    before = queue.stats()["commits"]
    found: dict[str, Any] = {"write_s": write(jobs, "bulk", "one")}
    found.update(json.loads(Path(folder, "told.json").read_text(encoding="utf-8")))
    stats = queue.stats()
    found["queued"], found["commits"] = stats["queued"] - shards, stats["commits"] - before
    found["again_s"] = write(jobs, "bulk", "one")
    found["queued_again"] = queue.stats()["queued"] - shards
    found["read_s"] = read("bulk")
    rows = spark.read.format("osqueue_counted").options(address=address, queue="bulk").load()
    found["read"] = rows.selectExpr("count(distinct get_json_object(payload, '$.n'))").collect()[0][0]
    spark.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--shards", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.folder, arguments.jobs, arguments.shards)), flush=True)


if __name__ == "__main__":
    main()
