"""Lambda function: tells of single jobs and cancels them."""

from osqueue.serving import Function

handler = Function("jobs")
