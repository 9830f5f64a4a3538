"""Lambda function: hears how attempts ended."""

from osqueue.aws_lambda import Function

handler = Function("complete")
