"""All of it, for spark-submit: ``osqueue.pipeline.jobs.run`` says what it takes and does."""

import sys

from osqueue.pipeline.jobs import command, run

if __name__ == "__main__":
    sys.exit(command.script(run.main))
