"""The Spark data source ``osqueue``: live jobs as a table, finished ones as a stream, bulks of jobs out of DataFrames.

    import osqueue.spark

    osqueue.spark.register(spark)
    place = {"address": "s3://bucket/prefix", "queue": "emails"}
    spark.read.format("osqueue").options(**place).load()
    spark.readStream.format("osqueue").options(**place).load()
    df.write.format("osqueue").options(**place, batch_id="2026-11-21").mode("append").save()
    stream.writeStream.format("osqueue").options(**place).option("checkpointLocation", folder).start()

Spark pickles these classes by reference: ``osqueue`` has to be importable on every worker.
"""

from __future__ import annotations

from .datasource import OsqueueDataSource, register

__all__ = ["OsqueueDataSource", "register"]
