"""Lambda function: leases jobs."""

from osqueue.serving import Function

handler = Function("claim")
