"""The pipeline over long, thin histories: one run of everything, and what a part and an hour of a queue cost.

The shape is that of a real log: 188,041 jobs of 27 queues over 11 days, in 3,551 hours of queues and 11,161 parts, one
job in seven with a second attempt. The slopes are from runs over as many jobs in fewer parts, and in fewer hours. Then
a week of 200 queues, each with 100 jobs an hour. Seconds are those of the processor, in one process, but for the goal
of that week, which is for all cores and by a clock. Files are not flushed (``fsync=off``): what is measured is ours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from bench.compaction import record_of
from bench.row import BenchOptions, Figure, at_most, exactly

JOBS, QUEUES, DAYS, HOURS, PARTS = 188_041, 27, 11, 3_551, 11_161
WEEK_QUEUES, WEEK_DAYS, WEEK_HOURLY = 200, 7, 100
WEEK_SECONDS_MAX = 180.0  # of a clock on the wall
ROOT = Path(__file__).resolve().parents[1]
MIDNIGHT_MS = 1_767_571_200_000  # 2026-01-05, UTC
HOUR_MS = 3_600_000
SECONDS_MAX = 3600.0


def run(options: BenchOptions) -> Iterator[Figure]:
    """Each shape in a process of its own."""
    jobs, hours, parts = (max(64, int(each * options.scale)) for each in (JOBS, HOURS, PARTS))
    whole = _measured(jobs, hours, parts)
    yield exactly(f"{jobs:,} jobs in {parts:,} parts: in the table", whole["jobs"], jobs, "jobs")
    for name in ("compact", "metrics", "report", "all"):
        yield Figure(f"{name}, seconds", whole[name], "s")
    fewer = _measured(jobs, hours, max(hours, parts // 3))
    slope = (whole["all"] - fewer["all"]) / max(1, parts - max(hours, parts // 3))
    yield Figure("one part more, at equal data", slope * 1000, "ms")
    denser = _measured(jobs, max(1, hours // 10), parts)
    slope = (whole["all"] - denser["all"]) / (hours - max(1, hours // 10))
    yield Figure("one hour of a queue more, at equal data", slope * 1000, "ms")
    queues = max(1, int(WEEK_QUEUES * options.scale))
    hours = queues * 24 * WEEK_DAYS
    week = _measured(hours * WEEK_HOURLY, hours, hours, queues, WEEK_DAYS, all_cores=True)
    name = f"a week of {queues} queues with {WEEK_HOURLY} jobs an hour"
    yield exactly(f"{name}: in the table", week["jobs"], hours * WEEK_HOURLY, "jobs")
    yield at_most(f"{name}, elapsed", week["all, elapsed"], WEEK_SECONDS_MAX * options.scale, "s")


def _measured(*shape: int, all_cores: bool = False) -> dict[str, Any]:
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        command = [sys.executable, "-m", "bench.thin", folder, *map(str, shape)]
        command += [] if all_cores else ["--cores", "1"]
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, timeout=SECONDS_MAX
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fill(store: Path, jobs: int, hours: int, parts: int, queues: int = QUEUES, days: int = DAYS) -> None:
    """Write an archive: hours of queues drawn from all that there are, parts and jobs spread over them."""
    from osqueue.core.archive_record import encode_part

    rng = Random(7)
    there = [(queue, hour) for queue in range(queues) for hour in range(24 * days)]
    drawn = rng.sample(there, min(hours, len(there)))
    made = number = 0
    for at, (queue, hour) in enumerate(drawn):
        mine = parts * (at + 1) // len(drawn) - number
        for each in range(mine):
            count = jobs * (number + 1) // parts - made
            began = MIDNIGHT_MS + hour * HOUR_MS
            written = began + each * HOUR_MS // (mine + 1)
            records = [
                record_of(rng, written - rng.randrange(300_000), workers=12, sound=7) for _ in range(count)
            ]
            name = f"00-{number:012x}-{rng.getrandbits(48):012x}.jsonl.gz"
            folder = (
                store / f"archive/queue=q{queue:02d}/date=2026-01-{5 + hour // 24:02d}/hour={hour % 24:02d}"
            )
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(encode_part(records))
            made, number = made + count, number + 1


def measure(folder: Path, engine_name: str = "local", cores: int | None = None) -> dict[str, Any]:
    """The seconds of each step of one run over the archive of a folder; of the processor, those of this process."""
    from osqueue.pipeline.ended import ended
    from osqueue.pipeline.engines import choice
    from osqueue.pipeline.jobs import compact, metrics, report

    store, tables = str(folder / "store"), f"file://{folder}/tables?fsync=off"
    took: dict[str, Any] = {}

    @contextlib.contextmanager
    def timed(name: str) -> Iterator[None]:
        began, began_at = process_time(), perf_counter()
        yield
        took[name], took[f"{name}, elapsed"] = process_time() - began, perf_counter() - began_at

    with choice.engine(engine_name, cores=cores) as engine, timed("all"):
        with timed("compact"):
            took["jobs"] = compact.run(engine, compact.Compaction(store, tables)).jobs
        with timed("metrics"):
            read = ended(engine, engine.place(tables, "tables"))
            metrics.run(engine, metrics.Metrics(tables), read=read)
        with timed("report"):
            report.run(engine, report.Review(tables, str(folder / "report.html")), read)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description="The process that is measured.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "shape", type=int, nargs="*", help="jobs, hours, parts, queues, days; none: filled already"
    )
    parser.add_argument("--engine", default="local")
    parser.add_argument("--cores", type=int, help="of the engine local (all)")
    given = parser.parse_args()
    if given.shape:
        fill(given.folder / "store", *given.shape)
    print(json.dumps(measure(given.folder, given.engine, given.cores)))


if __name__ == "__main__":
    main()
