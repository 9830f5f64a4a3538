"""The one place that makes a Spark session, so that every job, test and benchmark runs with the same settings."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from ..errors import NotInstalled
from .needs import missing, on_cluster

# What results depend on.
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",  # what cannot be read is told, never skipped in silence
    "spark.sql.files.ignoreMissingFiles": "false",
}
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # a job to list files pays off on S3 only
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Metrics are some 150 classes: with room for 100, a session that computes them again compiles all of them again.
    "spark.sql.codegen.cache.maxEntries": "1000",
}


def session(
    name: str = "osqueue", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session. Where nobody has set a master (``spark-submit`` and EMR do), it is this machine's cores.

    ``settings`` are added last. On this machine the driver is reached on the loopback address only, and Java keeps
    to itself: what goes wrong is raised here, and ``spark-submit`` shows its log. Raises NotInstalled.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    _importable()
    if master is None and on_cluster():
        return _made(builder, {**SETTINGS, **(settings or {})})
    if (why := missing()) is not None:
        raise NotInstalled(f"the pipeline cannot run. {why}")
    with _quietly():
        spark = _made(builder.master(master or "local[*]"), {**LOCAL, **SETTINGS, **(settings or {})})
    spark.sparkContext.setLogLevel("ERROR")
    # PySpark logs every error that it raises, with pages of Java frames.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return spark


def _made(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def _quietly() -> Iterator[None]:
    """Java is started with a file as its standard error; what it said is printed if it does not come up.

    It warns of options that Spark itself gives it, Spark warns of this machine before its log level can be set, and
    later it logs each task that failed with pages of frames.
    """
    with tempfile.TemporaryFile() as said:
        ours = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            with open(ours, "wb", closefd=False) as stream:
                stream.write(said.read())
            raise
        finally:
            os.dup2(ours, 2)
            os.close(ours)


def _importable() -> None:
    """Workers of this machine begin with its environment, not with this process's path: the library goes there."""
    ours = [Path(__file__).resolve().parents[2]]
    there = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*map(str, ours), *filter(None, there)]))
