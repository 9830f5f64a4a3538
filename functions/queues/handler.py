"""Lambda function: tells of queues and changes them."""

from osqueue.aws_lambda import Function

handler = Function("queues")
