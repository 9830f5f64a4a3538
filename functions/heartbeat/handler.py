"""Lambda function: extends leases."""

from osqueue.aws_lambda import Function

handler = Function("heartbeat")
