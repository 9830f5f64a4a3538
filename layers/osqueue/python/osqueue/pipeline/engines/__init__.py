"""What runs the pipeline: Spark, or DuckDB in this process. Both run the same SQL over the same tables.

The SQL of ``figures`` and ``report`` is Spark's as far as DuckDB understands it, too. A few functions of Spark that
DuckDB does not have are macros there (``local``).
"""
