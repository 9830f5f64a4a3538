"""Lambda function: tells of queues and changes them."""

from osqueue.serving import Function

handler = Function("queues")
