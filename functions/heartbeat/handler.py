"""Lambda function: extends leases."""

from osqueue.serving import Function

handler = Function("heartbeat")
