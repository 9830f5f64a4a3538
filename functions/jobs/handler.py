"""Lambda function: tells of single jobs and cancels them."""

from osqueue.aws_lambda import Function

handler = Function("jobs")
