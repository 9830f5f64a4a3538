"""Jobs that run themselves: handlers as Lambda functions that osqueue invokes when jobs wait.

    from osqueue.aws import consumer

    @consumer(threads=8)
    def handler(job):
        send(job.payload["to"])

Attached to a queue (``q.configure(consumers={"mailer": Consumer(target="arn:…")})``) such a function is invoked by
whoever brings it work, claims, works, and ends when nothing is left. ``sqs_shaped`` takes functions that were written
for SQS as they are. See docs/consumers.md.
"""

from __future__ import annotations

from ..aws_calls.wakes import LambdaWaker
from .function import ConsumerFunction, consumer
from .sqs import sqs_shaped

__all__ = ["ConsumerFunction", "LambdaWaker", "consumer", "sqs_shaped"]
