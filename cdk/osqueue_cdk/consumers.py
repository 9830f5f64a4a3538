"""Push consumers: functions of yours that are invoked when jobs of a queue wait.

``attach`` prepares a function, gives it its rights, and makes a resource of the stack that attaches it to the queue:
the ``queues`` function of the deployment is its provider (``osqueue.aws_lambda.stack_event``).
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec
from aws_cdk import CfnResource, CustomResource, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import IDependable

from osqueue import limits
from osqueue.aws.function import BUS_VARIABLE, SERVICE_VARIABLE, STORE_VARIABLE
from osqueue.aws.run import RESERVE_SECONDS
from osqueue.aws_calls import WAKES_VARIABLE
from osqueue.contract.operations import BY_NAME
from osqueue.errors import Rejected
from osqueue.model.consumer import Consumer
from osqueue.model.settings import change_of

from .access import CONSUMER
from .functions import ARCHITECTURE, RUNTIME
from .rights import CONSUMER_TAG, in_the_bucket
from .settings import Misconfigured

if TYPE_CHECKING:
    from .deployment import Deployment

RESOURCE = "Custom::OsqueueConsumer"
ANSWERED_WITHIN = Duration.minutes(5)  # by the queues function; CloudFormation itself would wait for an hour
# A wake is a hint, and fired again by the queue. A minute is the smallest age that Lambda takes.
WAKE_AGE_S_MAX = 60
WAKE_RETRIES = 0
ALLOWED = "Allow"
NO_WINDOW = Duration.seconds(0)
LEASE = Duration.millis(limits.LEASE_MS_DEFAULT)


def attach(
    deployment: Deployment,
    queue: str,
    name: str,
    function: lambda_.IFunction,
    wished: Consumer,
    layer: bool,
    tells: bool,
) -> CustomResource:
    """Make a function, or its alias, a consumer of a queue. Raises Misconfigured."""
    own = _defined_here(function)
    _check(deployment, name, own, wished, layer)
    title = re.sub(r"\W|_", "", queue.title())
    digest = hashlib.sha256(f"{deployment.names.name}\0{queue}\0{name}".encode()).hexdigest()
    title = f"Consumer{title}{digest[:8]}"
    if deployment.node.try_find_child(title) is not None:
        raise Misconfigured(
            f"name: queue {queue!r} has a consumer {name!r} already. Give each its own; a queue has up to four"
        )
    _prepare(deployment, own, layer, tells)
    _set_wakes_to_expire(function)
    resource = CustomResource(
        deployment,
        title,
        resource_type=RESOURCE,
        service_token=deployment.names.function_arn(BY_NAME["configure"].function),
        service_timeout=ANSWERED_WITHIN,
        properties={
            "Queue": queue,
            "Consumer": name,
            "Settings": Stack.of(deployment).to_json_string(msgspec.to_builtins(wished)),
        },
    )
    made = resource.node.default_child
    assert isinstance(made, CfnResource)
    # The same wherever it stands in the tree: under another id CloudFormation would attach it, and then detach it as
    # the one that has gone.
    made.override_logical_id(title)
    rights: list[IDependable] = [*in_the_bucket(deployment, queue, CONSUMER, own), deployment.grant_wake(own)]
    resource.node.add_dependency(function, *rights, *deployment.made)
    return resource


def _defined_here(function: lambda_.IFunction) -> lambda_.Function:
    """The function itself, of an alias or a version."""
    found: object = function
    if isinstance(found, lambda_.Alias):
        found = found.version
    if isinstance(found, lambda_.Version):
        found = found.lambda_
    if not isinstance(found, lambda_.Function):
        raise Misconfigured(
            "function: it is defined elsewhere, so its tag, environment and rights cannot be given here. Call"
            " add_consumer in the stack that defines it; Osqueue.from_name finds the deployment there"
        )
    return found


def _check(deployment: Deployment, name: str, own: lambda_.Function, wished: Consumer, layer: bool) -> None:
    try:
        change_of({"consumers": {name: wished}})
    except Rejected as error:
        raise Misconfigured(error.message) from None
    if Stack.of(own) != Stack.of(deployment):
        raise Misconfigured(
            "function: it is of another stack than the deployment. Name the deployment there, and attach it to that:"
            f" Osqueue.from_name(…, {deployment.names.name!r})"
        )
    timeout = own.timeout or Duration.seconds(3)  # what Lambda takes for none
    if not timeout.is_unresolved() and timeout.to_seconds() < RESERVE_SECONDS:
        raise Misconfigured(
            f"function: its timeout is {timeout.to_seconds():g} s, which leaves a consumer no time. Give it"
            f" {RESERVE_SECONDS:g} s at least, such as timeout=Duration.minutes(5)"
        )
    if layer and (own.runtime.name, own.architecture.name) != (RUNTIME.name, ARCHITECTURE.name):
        raise Misconfigured(
            f"function: the layer is for {RUNTIME.name} on {ARCHITECTURE.name}, and it runs {own.runtime.name} on"
            f" {own.architecture.name}. Choose the layer's, or put osqueue[s3] into its code and pass layer=False"
        )
    resource = _resource_of(own)
    other = resource.tags.tag_values().get(CONSUMER_TAG)
    if other not in (None, deployment.names.name):
        raise Misconfigured(
            f"function: it consumes queues of the deployment {other!r}, and its environment names one store. Define"
            " another function"
        )
    if resource.recursive_loop not in (None, ALLOWED):
        raise Misconfigured(
            f"function: its recursive_loop is {resource.recursive_loop}: Lambda would stop a consumer that invokes its"
            " own successor. Leave it out"
        )


def _prepare(deployment: Deployment, own: lambda_.Function, layer: bool, tells: bool) -> None:
    """What makes a consumer of a function, of however many queues."""
    wished = layer, tells
    known = deployment.consumers.get(own.node.path)
    if known is not None and known != wished:
        raise Misconfigured(
            "function: it consumes another queue already, with another layer= or events=. A function has one"
            " environment: say the same for each queue, or define another function"
        )
    deployment.consumers[own.node.path] = wished
    resource = _resource_of(own)
    if (
        known is not None or CONSUMER_TAG in resource.tags.tag_values()
    ):  # by this object, or by another for the same name
        return
    # At once and not by an aspect, so that another call sees it.
    resource.tags.set_tag(CONSUMER_TAG, deployment.names.name)
    resource.recursive_loop = ALLOWED
    own.add_environment(STORE_VARIABLE, deployment.address("bucket"))
    own.add_environment(WAKES_VARIABLE, "lambda")
    own.add_environment(SERVICE_VARIABLE, deployment.names.prefix)
    if tells and deployment.has_bus:
        own.add_environment(BUS_VARIABLE, deployment.names.bus)
        deployment.event_bus.grant_put_events_to(own)
    if layer:
        own.add_layers(deployment.layer)


def _set_wakes_to_expire(function: lambda_.IFunction) -> None:
    """No wake waits for hours, or comes three times; what is invoked has this setting for itself, an alias too."""
    config = function.node.try_find_child("EventInvokeConfig")
    if config is None:
        function.configure_async_invoke(
            max_event_age=Duration.seconds(WAKE_AGE_S_MAX), retry_attempts=WAKE_RETRIES
        )
        return
    made = config.node.default_child
    assert isinstance(made, lambda_.CfnEventInvokeConfig)
    if (made.maximum_event_age_in_seconds, made.maximum_retry_attempts) != (WAKE_AGE_S_MAX, WAKE_RETRIES):
        raise Misconfigured(
            f"function: asynchronous invocations of a consumer wait {WAKE_AGE_S_MAX} s at most, and are not repeated:"
            " the queue fires a wake again. Leave max_event_age and retry_attempts out, or set"
            f" max_event_age=Duration.seconds({WAKE_AGE_S_MAX}), retry_attempts={WAKE_RETRIES}"
        )


def _resource_of(own: lambda_.Function) -> lambda_.CfnFunction:
    resource = own.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    return resource
