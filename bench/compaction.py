"""Compaction of an archive: rows a second, beside what Spark needs to copy the same files into Parquet. Needs PySpark.

100,000 jobs in parts of 10,000, over the hours of a day; one in 32 has failed once. ``--scale 10`` and ``--scale 50``
are 1 and 5 million. One process, two cores, both sides in turn after a warm-up, the faster round of each. A copy is
one table, neither checked nor cut into hours; the fairer comparison writes the two tables of compaction, cut the same.
Spark does not flush what it writes to the disk, so compaction does not here, either (``fsync=off``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench.row import BenchOptions, Figure, at_least, exactly, ratio

JOBS = 100_000
PART_JOBS = 10_000
HOURS = 24
ROOT = Path(__file__).resolve().parents[1]
ALIKE = {"spark.sql.shuffle.partitions": "2", "spark.sql.parquet.compression.codec": "zstd"}
MIDNIGHT_MS = 1_767_571_200_000  # 2026-01-05, UTC
SECONDS_MAX = 3600.0  # for all of it


def run(options: BenchOptions) -> Iterator[Figure]:
    """What one process with a Spark session measures."""
    if importlib.util.find_spec("pyspark") is None:
        raise RuntimeError("PySpark is not installed in this environment")
    jobs = max(10_000, int(JOBS * options.scale))
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        command = [sys.executable, "-m", "bench.compaction", folder, str(jobs), str(options.rounds)]
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, timeout=SECONDS_MAX
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    speed = {name: jobs / found[name] for name in ("compaction", "copy", "tables")}
    yield exactly(f"{jobs:,} jobs: in the table", found["jobs"], jobs, "jobs", f"{found['parts']} parts")
    yield Figure(
        "compaction", speed["compaction"], "jobs/s", note="jobs and attempts, checked, without repeats"
    )
    yield Figure("Spark's own copy", speed["copy"], "jobs/s", note="JSON to one Parquet table")
    yield Figure(
        "Spark's own two tables", speed["tables"], "jobs/s", note="JSON to jobs and attempts, by hour"
    )
    yield at_least("compaction over Spark's own copy", ratio(speed["compaction"], speed["copy"]), 0.8)
    yield Figure("compaction over Spark's own two tables", ratio(speed["compaction"], speed["tables"]), "x")
    yield Figure("archive, bytes a job", found["archive_bytes"] / jobs, "bytes", note="gzip")
    yield Figure("both tables, bytes a job", found["table_bytes"] / jobs, "bytes", note="Parquet, zstd")


def fill(store: Path, jobs: int) -> int:
    """Write an archive; answers how many parts it has."""
    from osqueue.core.archive_record import encode_part

    rng = Random(7)
    parts = made = 0
    for hour in range(HOURS):
        left = jobs * (hour + 1) // HOURS - made
        made += left
        while left:
            count = min(left, PART_JOBS)
            left -= count
            folder = store / f"archive/queue=bench/date=2026-01-05/hour={hour:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            name = f"00-{parts:012x}-{rng.getrandbits(48):012x}.jsonl.gz"
            (folder / name).write_bytes(encode_part([_record(rng, hour) for _ in range(count)]))
            parts += 1
    return parts


def _record(rng: Random, hour: int) -> Any:
    enqueued = MIDNIGHT_MS + hour * 3_600_000 + rng.randrange(3_500_000)
    return record_of(rng, enqueued, workers=40, sound=32)


def record_of(rng: Random, enqueued: int, workers: int, sound: int) -> Any:
    """A job that one of so many workers completed; one in ``sound`` failed first."""
    from osqueue.core.archive_record import RECORD_FORMAT, ArchiveRecord, AttemptRecord

    start = enqueued + rng.randrange(20_000)
    end = start + rng.randrange(40_000)
    worker = f"worker-{rng.randrange(workers)}"
    leases = [AttemptRecord(1, worker, start, end, "completed")]
    if rng.randrange(sound) == 0:
        error = f"connection to 10.0.0.{rng.randrange(256)} refused"
        leases = [AttemptRecord(1, worker, start, end, "failed", error, "ConnectionError")]
        leases.append(AttemptRecord(2, worker, end + 1000, end := end + 3000, "completed"))
    key = f"{enqueued:012x}7{rng.getrandbits(76):019x}"
    job_id = "-".join((key[:8], key[8:12], key[12:16], key[16:20], key[20:]))
    used = len(leases)
    size = rng.randrange(900)
    return ArchiveRecord(
        *(RECORD_FORMAT, job_id, used, "completed", enqueued, end, used, size),
        kind="mail",
        attempts=tuple(leases),
    )


def measure(folder: Path, jobs: int, rounds: int) -> dict[str, Any]:
    """The seconds of each side, the faster round."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from osqueue.pipeline.engines.spark import SparkEngine
    from osqueue.pipeline.jobs import compact
    from osqueue.pipeline.session import session

    spark = session("osqueue bench", master="local[2]", settings=ALIKE)
    engine = SparkEngine(spark)
    small, store = folder / "small", folder / "store"
    fill(small, 5_000)
    parts = fill(store, jobs)
    hour = ("queue", "date", "hour")

    def rows(place: Path) -> DataFrame:
        return spark.read.schema(_schema()).json(f"file://{place}/archive")

    def compaction(place: Path) -> int:
        return compact.run(engine, compact.Compaction(str(place), f"file://{folder}/tables?fsync=off")).jobs

    def copy(place: Path) -> None:
        rows(place).write.mode("overwrite").parquet(f"file://{folder}/copy")

    def tables(place: Path) -> None:
        each = rows(place)
        each.write.mode("overwrite").partitionBy(*hour).parquet(f"file://{folder}/two/jobs")
        leases = each.select("job_id", "kind", "priority", F.explode("attempts").alias("lease"), *hour)
        leases = leases.select("job_id", "kind", "priority", "lease.*", *hour)
        leases.write.mode("overwrite").partitionBy(*hour).parquet(f"file://{folder}/two/attempts")

    sides: dict[str, Callable[[Path], Any]] = {"compaction": compaction, "copy": copy, "tables": tables}
    for _ in range(3):
        for side in sides.values():
            side(small)
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        shutil.rmtree(folder / "tables", ignore_errors=True)  # what is there already is not written again
        for name, side in sides.items():
            began = perf_counter()
            side(store)
            taken[name].append(perf_counter() - began)
    found: dict[str, Any] = {name: min(seconds) for name, seconds in taken.items()}
    written = spark.read.parquet(f"file://{folder}/tables/jobs").count()
    spark.stop()
    return found | {
        "jobs": written,
        "parts": parts,
        "archive_bytes": _bytes(store, "*.jsonl.gz"),
        "table_bytes": _bytes(folder / "tables", "*.parquet"),
    }


def _schema() -> Any:
    """A record's fields as Spark reads them, and the columns that the folders tell of."""
    from msgspec.structs import fields
    from pyspark.sql import types

    from osqueue.core.archive_record import ArchiveRecord, AttemptRecord

    text = types.StringType()
    kinds: dict[Any, types.DataType] = {int: types.LongType(), str: text, str | None: text}

    def columns(record: Any) -> types.StructType:
        return types.StructType([types.StructField(each.name, kinds[each.type]) for each in fields(record)])

    kinds[tuple[AttemptRecord, ...]] = types.ArrayType(columns(AttemptRecord))
    whole = columns(ArchiveRecord).add("queue", text).add("date", types.DateType())
    return whole.add("hour", types.IntegerType())


def _bytes(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern))


def main() -> None:
    parser = argparse.ArgumentParser(description="The process with a Spark session.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("jobs", type=int)
    parser.add_argument("rounds", type=int)
    given = parser.parse_args()
    print(json.dumps(measure(given.folder, given.jobs, given.rounds)))


if __name__ == "__main__":
    main()
