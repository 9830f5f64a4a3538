"""The one Spark session of these tests, and a folder for a small archive and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.engines.local import LocalEngine
from osqueue.pipeline.engines.spark import SparkEngine
from osqueue.pipeline.session import session
from tests.pipeline.past import Archive
from tests.pipeline.quick import QUICK


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores; a task may fail twice, so that retries happen as they do on a cluster."""
    made = session("osqueue tests", master="local[2,3]", settings=QUICK)
    yield made
    made.stop()


@pytest.fixture(scope="session", params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Each of the two: what a test says of tables and reports holds for both."""
    made = LocalEngine() if request.param == "local" else SparkEngine(request.getfixturevalue("spark"))
    yield made
    made.close()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)
