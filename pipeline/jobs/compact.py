"""Compaction, for spark-submit: ``osqueue.pipeline.jobs.compact`` says what it takes and does."""

import sys

from osqueue.pipeline.jobs import command, compact

if __name__ == "__main__":
    sys.exit(command.script(compact.main))
