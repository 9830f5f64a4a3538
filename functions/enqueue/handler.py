"""Lambda function: queues jobs."""

from osqueue.aws_lambda import Function

handler = Function("enqueue")
