"""Lambda function: hears how attempts ended."""

from osqueue.serving import Function

handler = Function("complete")
