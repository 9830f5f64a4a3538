"""What Spark asks first: which schema there is, and who reads, follows and writes."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from . import options
from .columns import SCHEMA
from .live import LiveReader
from .tail import TailReader
from .writer import BulkDataSourceWriter, StreamDataSourceWriter


def register(spark: SparkSession) -> None:
    """Make ``format("osqueue")`` known to a session."""
    spark.dataSource.register(OsqueueDataSource)


class OsqueueDataSource(DataSource):
    """The data source "osqueue". Raises Rejected for options that mean nothing, by name and with the remedy."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "osqueue"

    def schema(self) -> StructType:
        """The columns of jobs, live and finished alike."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """``spark.read``: the live jobs, as of one commit of each shard."""
        return LiveReader(options.read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """``spark.readStream``: the finished jobs, as they are archived."""
        return TailReader(options.tail_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """``df.write``: one bulk of jobs."""
        return BulkDataSourceWriter(options.write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """``df.writeStream``: one bulk for each micro-batch, the same one when it is replayed."""
        return StreamDataSourceWriter(options.sink_options(self.options), schema, overwrite)
