"""Metrics, for spark-submit: ``osqueue.pipeline.jobs.metrics`` says what it takes and does."""

import sys

from osqueue.pipeline.jobs import command, metrics

if __name__ == "__main__":
    sys.exit(command.script(metrics.main))
