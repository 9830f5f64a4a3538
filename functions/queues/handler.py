"""Lambda function: reads and changes queues and pacers."""

from osqueue.aws_lambda import Function

handler = Function("queues")
