"""Who may use a queue: least privilege by the roles of ``osqueue.contract.roles``, over each way that leads to it.

| way | what a grant names | how far it reaches |
|---|---|---|
| ``http`` | the routes of the role, with the queue in their paths | this queue, these operations |
| ``lambda`` | the functions that answer the role's routes | every queue, and every route of those functions |
| ``bucket`` | the queue's keys, as those functions need them | this queue; who writes may change all of it |

So ``http`` is the default. ``lambda`` saves the gateway, ``bucket`` every hop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Literal

from aws_cdk import CustomResource, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from osqueue import limits
from osqueue.contract.operations import ROUTES
from osqueue.contract.roles import Role, may
from osqueue.contract.route import Route
from osqueue.model.consumer import Consumer
from osqueue.model.validation import queue_name

from .access import access_of
from .consumers import LEASE, NO_WINDOW, attach
from .rights import give, in_the_bucket
from .settings import Misconfigured

if TYPE_CHECKING:
    from .deployment import Deployment

Via = Literal["http", "lambda", "bucket"]

# It changes settings and purges jobs, of any queue. Who may invoke it operates them, whatever else it answers.
OPERATORS = "queues"


class DeployedQueue:
    """A queue of a deployment. Nothing is made of it here: it comes to be with its first job."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        """Raises ``osqueue.Rejected`` for what is no queue's name."""
        self.name = queue_name(name)
        self._deployment = deployment

    def grant_read(self, grantee: iam.IGrantable, via: Via = "http") -> iam.Grant:
        """Look at everything, contents included, and change nothing. Raises Misconfigured over ``lambda``."""
        return self._grant(Role.READ, grantee, via)

    def grant_enqueue(self, grantee: iam.IGrantable, via: Via = "http") -> iam.Grant:
        """Add jobs, follow them and take them back."""
        return self._grant(Role.ENQUEUE, grantee, via)

    def grant_work(self, grantee: iam.IGrantable, via: Via = "http") -> iam.Grant:
        """Claim jobs, keep them and say how they ended."""
        return self._grant(Role.WORK, grantee, via)

    def grant_operate(self, grantee: iam.IGrantable, via: Via = "http") -> iam.Grant:
        """Everything."""
        return self._grant(Role.OPERATE, grantee, via)

    def add_consumer(
        self,
        name: str,
        function: lambda_.IFunction,
        *,
        batch: int = limits.CONSUMER_BATCH_DEFAULT,
        max_concurrency: int = limits.CONSUMER_CONCURRENCY_DEFAULT,
        window: Duration = NO_WINDOW,
        kinds: Sequence[str] | None = None,
        lease: Duration = LEASE,
        layer: bool = True,
        events: bool = True,
    ) -> CustomResource:
        """Have a function, or an alias of it, invoked when jobs wait. The deployment attaches it.

        ``name`` tells the consumers of a queue apart. Up to ``max_concurrency`` invocations claim ``batch`` jobs at
        once, of ``kinds`` or of all; fewer than a batch wait for others during ``window``. The jobs of one that dies
        wait for the rest of their ``lease``. The function gets layer, environment, tag and rights;
        ``layer=False`` where its code brings ``osqueue[s3]``, ``events=False`` where nobody is to be told on the event
        bus of what it commits. Raises Misconfigured.
        """
        wished = Consumer(
            target=function.function_arn,
            kinds=kinds,  # type: ignore[arg-type]  # read with the rest
            batch=batch,
            max_concurrency=max_concurrency,
            window=window.to_milliseconds() / 1_000,
            lease=lease.to_milliseconds() / 1_000,
        )
        return attach(self._deployment, self.name, name, function, wished, layer, events)

    def _grant(self, role: Role, grantee: iam.IGrantable, via: Via) -> iam.Grant:
        ways = {"http": self._over_http, "lambda": self._over_lambda, "bucket": self._in_the_bucket}
        if via not in ways:
            raise Misconfigured(f"via: {via!r} is none of {', '.join(ways)}")
        return reduce(lambda done, each: done.combine(each), ways[via](role, grantee))

    # ── Ways ─────────────────────────────────────────────────────────────────
    def _over_http(self, role: Role, grantee: iam.IGrantable) -> Iterator[iam.Grant]:
        if self._deployment.takes_tokens:
            raise Misconfigured(
                "via: the API takes tokens and no AWS signatures, so a role means nothing to it. Give the caller a"
                ' token, or grant via="lambda"'
            )
        names, api_id = self._deployment.names, self._deployment.api_id
        requests = sorted({request_of(each, self.name) for each in routes_of(role)})
        arns = [names.requests_arn(api_id, f"$default/{each}") for each in requests]
        why = dict.fromkeys(arns, "What a request is about stands in its path: a job, a batch, a schedule.")
        yield give(grantee, ["execute-api:Invoke"], why)

    def _over_lambda(self, role: Role, grantee: iam.IGrantable) -> Iterator[iam.Grant]:
        if role is Role.READ:
            raise Misconfigured(
                'via: whoever invokes functions may change what they answer for. Grant reading via="http" or'
                ' via="bucket"'
            )
        names = self._deployment.names
        arns = [
            names.function_arn(each)
            for each in functions_of(role)
            if each != OPERATORS or role is Role.OPERATE
        ]
        yield give(grantee, ["lambda:InvokeFunction"], dict.fromkeys(arns, ""))

    def _in_the_bucket(self, role: Role, grantee: iam.IGrantable) -> Iterator[iam.Grant]:
        access = access_of(functions_of(role), reads_only=role is Role.READ)
        yield from in_the_bucket(self._deployment, self.name, access, grantee)


def routes_of(role: Role) -> list[Route]:
    """The operations on one queue that a role may call."""
    return [each for each in ROUTES if "{queue}" in each.path and may(role, each)]


def functions_of(role: Role) -> list[str]:
    """The functions that answer them."""
    return sorted({each.function for each in routes_of(role)})


def request_of(route: Route, queue: str) -> str:
    """A route of one queue, as policies name requests: ``GET/v1/queues/emails/jobs/*``."""
    parts = (
        f"{queue}" if part == "{queue}" else "*" if part[:1] == "{" else part
        for part in route.path.split("/")
    )
    return f"{route.method}{'/'.join(parts)}"
