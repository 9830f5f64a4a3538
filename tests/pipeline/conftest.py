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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On both engines run tests of what differs between them: each query, what reads and asks, and work in tasks.

    Everything else is the same code on either, and runs on the one that answers in milliseconds.
    """
    if "engine" in metafunc.fixturenames:
        marks = metafunc.definition.iter_markers("both_engines")
        both = any(not each.args or {*each.args} & {*metafunc.fixturenames} for each in marks)
        names = ("local", "spark") if both else ("local",)
        metafunc.parametrize("engine", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The engine of a test: the local one, and Spark as well where it is marked ``both_engines``."""
    made = LocalEngine() if request.param == "local" else SparkEngine(request.getfixturevalue("spark"))
    yield made
    made.close()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)
