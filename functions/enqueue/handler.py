"""Lambda function: queues jobs."""

from osqueue.serving import Function

handler = Function("enqueue")
