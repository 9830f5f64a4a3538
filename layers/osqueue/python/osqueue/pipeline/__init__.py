"""The data pipeline: a queue's archive as tables, their metrics, and a Spark data source, through PySpark."""
