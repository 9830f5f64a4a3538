"""The Lambda functions: what each is called, how long and with how much memory it may run, and its environment.

One table for the CDK app, the local stack and the documentation.
"""

from __future__ import annotations

from msgspec import Struct

# API Gateway gives up on an HTTP API's integration after 30 s, so a function has to have answered before.
GATEWAY_TIMEOUT_S = 30
DEADLINE_MARGIN_S = 2.0  # a request is answered (429 or 503) this long before its function is stopped
WAIT_S_MAX = 20.0  # a claim or a result is waited for at most this long in one request
BODY_BYTES_MAX = 6 * 1024 * 1024 - 64 * 1024  # Lambda takes and gives 6 MB; the envelope needs some of it
PAYLOAD_BYTES_MAX = 256 * 1024  # of one job in a request's body
CONTENT_BYTES_MAX = (
    32 * 1024 * 1024
)  # of what is uploaded beside a request: the function that takes it holds it

# Environment variables, set by the CDK app and by the local stack.
STORE = "OSQUEUE_STORE"  # the address of the bucket: s3://bucket/prefix
EVENT_BUS = (
    "OSQUEUE_EVENT_BUS"  # the name of an EventBridge bus that is told of every transition; may be absent
)
SCOPES = "OSQUEUE_SCOPES"  # what scopes of tokens begin with; may be absent: tokens then allow everything
SERVICE = "OSQUEUE_SERVICE"  # the deployment's name, on each line of the log and each metric; consumers', too
METRICS_NAMESPACE = "osqueue"
LOG_LEVEL = "OSQUEUE_LOG_LEVEL"  # DEBUG, INFO, WARNING or ERROR: which lines the log gets
WINDOW = "OSQUEUE_WINDOW"  # seconds that an operation waits for those of other requests; may be absent: 0
LOG_FORMAT = "AWS_LAMBDA_LOG_FORMAT"  # set by Lambda itself, by the function's logging configuration

HANDLER = "handler.handler"  # as deployed: of functions/<name>/handler.py
HANDLERS = "osqueue.aws_lambda.handlers"  # the module that has the same handlers by their functions' names


class FunctionSpec(Struct, frozen=True):
    """One Lambda function."""

    name: str  # its folder in functions/, its name in HANDLERS, and the end of its deployed name
    what: str
    timeout_s: int
    memory_mb: int
    writes: bool = True  # does it commit?
    schedule_minutes: int | None = None  # invoked by the schedule, this often


FUNCTIONS: tuple[FunctionSpec, ...] = (
    FunctionSpec("enqueue", "queues jobs", 28, 512),
    FunctionSpec("claim", "leases jobs, and makes workers' turns", 28, 512),
    FunctionSpec("complete", "hears how attempts ended", 28, 512),
    FunctionSpec("heartbeat", "extends leases, and hears which workers there are", 28, 512),
    FunctionSpec("jobs", "reads and cancels single jobs, and takes slots of pacers", 28, 512),
    FunctionSpec("queues", "reads and changes queues and pacers", 28, 512),
    FunctionSpec("reaper", "upkeep of every queue, and its archive", 300, 1024, schedule_minutes=1),
)

BY_NAME: dict[str, FunctionSpec] = {each.name: each for each in FUNCTIONS}


def deployed_name(prefix: str, function: str) -> str:
    """The name of a function in AWS: ``lambda://osqueue-dev`` calls ``osqueue-dev-enqueue`` and its siblings."""
    return f"{prefix}-{function}"
