"""The analyst: a process that makes history of a replay's archive, and reads out of the tables what they say.

``python -m demo.analyst local file:///…/store tables report.html`` writes one line of JSON for each step, and at the
end what it read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from demo.history import TARGET_MS, TITLE, AnalysisStep, TableTotals
from demo.measure import Percentiles
from osqueue.errors import OsqueueError
from osqueue.pipeline import tables
from osqueue.pipeline.engines import choice
from osqueue.pipeline.engines.base import Engine, Relation, rows
from osqueue.pipeline.jobs import compact, metrics, report

SUMS = {
    tables.METRICS_HOURLY: ("enqueued", "claimed", "completed", "failed", "cancelled", "retried", "stalled"),
    tables.METRICS_DAILY: ("enqueued", "claimed", "completed", "failed", "cancelled", "retried", "stalled"),
    tables.METRICS_WORKERS: ("claimed", "completed", "failed", "stalled"),
    tables.METRICS_ERRORS: ("attempts",),
}
SETTINGS = {  # of Spark, for an archive so small that to compile plans takes longer than to work through it
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
}


def main() -> int:
    try:
        work(*sys.argv[1:])
    except OsqueueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def work(name: str, store: str, root: str, out: str) -> None:
    """The whole pipeline on an engine, and what came of it."""
    say(AnalysisStep("start"))
    with choice.engine(name, SETTINGS) as engine:
        compact.run(engine, compact.Compaction(store, root), counting("compaction"))
        metrics.run(engine, metrics.Metrics(root, target_ms=TARGET_MS), counting("metrics"))
        say(AnalysisStep("report"))
        report.run(engine, report.Review(root, out, title=TITLE))
        say(AnalysisStep("check"))
        say(read(engine, f"file://{root}"))


def counting(step: str) -> Callable[[int, int], None]:
    """Tells of a step that it begins, and how far it is."""
    say(AnalysisStep(step))
    return lambda done, total: say(AnalysisStep(step, done, total))


def say(what: AnalysisStep | TableTotals) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


def read(engine: Engine, root: str) -> TableTotals:
    """What the tables say, by SQL alone."""
    jobs, attempts = (engine.read(root, table) for table in (tables.JOBS, tables.ATTEMPTS))
    ended = engine.sql(f"SELECT * FROM {attempts} WHERE final")  # noqa: S608 - names of our own
    return TableTotals(
        states=_counts(engine, jobs, "state"),
        outcomes=_counts(engine, attempts, "outcome"),
        jobs=_one(engine, "count(DISTINCT job_id) AS n", jobs)["n"],
        attempts=_one(engine, "count(DISTINCT concat(job_id, ' ', cast(run AS string))) AS n", attempts)["n"],
        wait=_percentiles(engine, jobs, "wait_ms"),
        run=_percentiles(engine, ended, "run_ms"),
        sums={
            table.name: _sums(engine, engine.read(root, table), columns) for table, columns in SUMS.items()
        },
    )


def _one(engine: Engine, figures: str, relation: Relation) -> dict[str, Any]:
    (row,) = rows(engine, engine.sql(f"SELECT {figures} FROM {relation}"))  # noqa: S608 - names of our own
    return row


def _counts(engine: Engine, relation: Relation, by: str) -> dict[str, int]:
    found = engine.sql(f"SELECT {by}, count(*) AS n FROM {relation} GROUP BY {by}")  # noqa: S608 - names of our own
    return {row[by]: row["n"] for row in rows(engine, found)}


def _sums(engine: Engine, relation: Relation, columns: tuple[str, ...]) -> dict[str, int]:
    sums = ", ".join(f"sum({name}) AS {name}" for name in columns)
    return {name: value or 0 for name, value in _one(engine, f"count(*) AS rows, {sums}", relation).items()}


def _percentiles(engine: Engine, relation: Relation, of: str) -> Percentiles:
    """By nearest rank, as the demo's own."""
    ranks = ", ".join(
        f"percentile_disc({rank / 100}) WITHIN GROUP (ORDER BY {of}) AS p{rank}" for rank in (50, 95, 99)
    )
    return Percentiles(*((value or 0) / 1000 for value in _one(engine, ranks, relation).values()))


if __name__ == "__main__":
    sys.exit(main())
