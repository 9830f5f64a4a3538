"""The one place that makes a Spark session, so that every job, test and benchmark runs with the same settings."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

import osqueue

# What results depend on. Everything else is about speed or quiet, and a cluster may set it otherwise.
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.ignoreCorruptFiles": "false",  # damaged parts are named, never skipped in silence
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
}


def session(
    name: str = "osqueue", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session. Where nobody has set a master (``spark-submit`` and EMR do), it is this machine's cores.

    ``settings`` are added last. On this machine the driver is reached on the loopback address only.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    _importable()
    submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
        for key, value in LOCAL.items():
            builder = builder.config(key, value)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if master is not None or not submitted:
        spark.sparkContext.setLogLevel("ERROR")
        # PySpark logs every error that it raises, with pages of Java frames.
        logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    return spark


def _importable() -> None:
    """Workers of this machine begin with its environment, not with this process's path: both packages go there."""
    ours = [Path(__file__).resolve().parents[1], Path(osqueue.__file__).resolve().parents[1]]
    there = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*map(str, ours), *filter(None, there)]))
