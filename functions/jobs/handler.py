"""Lambda function: reads and cancels single jobs, and takes slots of pacers."""

from osqueue.aws_lambda import Function

handler = Function("jobs")
