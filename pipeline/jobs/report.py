"""The report, for spark-submit: ``osqueue.pipeline.jobs.report`` says what it takes and does."""

import sys

from osqueue.pipeline.jobs import command, report

if __name__ == "__main__":
    sys.exit(command.script(report.main))
