"""The jobs of the pipeline: each has ``run(spark, config)``, and a ``main()`` that only parses."""
