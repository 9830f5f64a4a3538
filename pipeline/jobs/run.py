"""All of it: compaction, metrics and the report, one after the other in one session.

python -m pipeline.jobs.run file:///var/lib/jobs file:///var/lib/tables report.html
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession

from osqueue.errors import OsqueueError
from pipeline.jobs import compact, metrics, report
from pipeline.session import session


class Whole(Struct, frozen=True):
    """What to go through, and where to put it."""

    store: str  # address of the store, with archive/ in it
    tables: str  # address of the folder of the tables
    out: str  # the HTML file to write
    queues: tuple[str, ...] = ()  # none: all
    target_ms: int = metrics.TARGET_MS  # the longest wait on target


class Done(Struct, frozen=True):
    """What each step did."""

    compacted: compact.Compacted
    measured: metrics.Measured
    reported: report.Reported


def run(spark: SparkSession, config: Whole) -> Done:
    """Go through the whole archive. Raises what the steps raise."""
    compacted = compact.run(spark, compact.Compaction(config.store, config.tables, queues=config.queues))
    measured = metrics.run(
        spark, metrics.Metrics(config.tables, queues=config.queues, target_ms=config.target_ms)
    )
    reported = report.run(spark, report.Review(config.tables, config.out, queues=config.queues))
    return Done(compacted, measured, reported)


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point for ``spark-submit``: prints what was done as one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("store", help="address of the store, with archive/ in it")
    parser.add_argument("tables", help="address of the folder of the tables")
    parser.add_argument("out", help="the HTML file to write")
    parser.add_argument(
        "--queue", action="append", default=[], help="only this one; may be given again (all)"
    )
    parser.add_argument(
        "--target-ms", type=int, default=metrics.TARGET_MS, help="the longest wait on target (60000)"
    )
    given = parser.parse_args(arguments)
    config = Whole(given.store, given.tables, given.out, tuple(given.queue), given.target_ms)
    try:
        done = run(session("osqueue pipeline"), config)
    except OsqueueError as error:
        print(error.message, file=sys.stderr)
        return 1
    print(msgspec.json.encode(done).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
