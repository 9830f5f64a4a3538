"""A session in another time zone: hours and days would be its own, beside those that other runs have written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from osqueue.errors import Rejected
from osqueue.pipeline.engines.spark import SparkEngine
from osqueue.pipeline.jobs import metrics, report, run
from tests.pipeline.past import Archive

ZONE = "spark.sql.session.timeZone"
JOBS: dict[str, Callable[[SparkSession, str], Any]] = {
    "metrics": lambda spark, root: metrics.run(SparkEngine(spark), metrics.Metrics(root)),
    "report": lambda spark, root: report.run(SparkEngine(spark), report.Review(root, f"{root}/report.html")),
    "all of it": lambda spark, root: run.run(
        SparkEngine(spark), run.PipelineRun(root, root, f"{root}/report.html")
    ),
    "a question": lambda spark, root: SparkEngine(spark).ask(root, "SELECT 1"),
}


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[SparkSession]:
    """The session as a notebook in New York has it."""
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "America/New_York")
    yield spark
    spark.conf.set(ZONE, before or "UTC")


@pytest.mark.parametrize("act", JOBS.values(), ids=JOBS.keys())
def test_a_session_in_another_time_zone_is_refused_with_the_setting_and_the_remedy(
    elsewhere: SparkSession, archive: Archive, act: Callable[[SparkSession, str], Any]
) -> None:
    with pytest.raises(Rejected) as told:
        act(elsewhere, str(archive.tables))
    assert f"{ZONE} is America/New_York" in told.value.message
    assert f'spark.conf.set("{ZONE}", "UTC")' in told.value.message
    elsewhere.conf.set(ZONE, "Etc/UTC")  # the same by another name
    SparkEngine(elsewhere).ask(str(archive.tables), "SELECT 1")
