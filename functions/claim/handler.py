"""Lambda function: leases jobs."""

from osqueue.aws_lambda import Function

handler = Function("claim")
