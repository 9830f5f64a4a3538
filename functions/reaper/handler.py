"""Lambda function: upkeep of every queue, and its archive."""

from osqueue.serving import Function

handler = Function("reaper")
