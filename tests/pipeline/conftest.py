"""The one Spark session of these tests, and a folder for a small archive and its tables."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.past import Archive

# Without Spark there is nothing here to run.
collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("pyspark") is None else []

QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.files.minPartitionNum": "1",
    "spark.driver.memory": "1g",
    # To compile a plan takes seconds, and to interpret it over a handful of rows nothing.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores; a task may fail twice, so that retries happen as they do on a cluster."""
    from pipeline.session import session

    made = session("osqueue tests", master="local[2,3]", settings=QUICK)
    yield made
    made.stop()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    from tests.pipeline.past import Archive

    return Archive(tmp_path)
