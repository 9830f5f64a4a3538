"""Lambda function: upkeep of every queue, and its archive."""

from osqueue.aws_lambda import Function

handler = Function("reaper")
