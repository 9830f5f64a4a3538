"""What roles are given: one queue's keys in the bucket, and leave to invoke consumers.

What a queue invokes is data in its head, and whoever may configure the queue may set it. So whoever commits may invoke
functions that carry a tag for it, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from aws_cdk import aws_iam as iam
from constructs import Construct

from .access import OF_LIMITERS, OF_ONE_QUEUE, WHY, Access
from .acknowledged import wildcard_because
from .buckets import use_of_key
from .names import Names

if TYPE_CHECKING:
    from .deployment import Deployment

CONSUMER_TAG = "osqueue-consumer"  # its value is the deployment's name
WHY_ANY_FUNCTION = (
    "Consumers are attached from other stacks; the condition names the tag that makes one of a function."
)

Conditions = Mapping[str, Mapping[str, str]]


def in_the_bucket(
    deployment: Deployment, queue: str, access: Access, grantee: iam.IGrantable
) -> Iterator[iam.Grant]:
    """A queue's own keys in the bucket, as far as some access goes; a directory bucket is given whole."""
    bucket = deployment.names.bucket_arn
    if deployment.names.directory_bucket is not None:
        session, conditions = session_in(deployment.names), None if access.write else READS_ONLY
        yield give(grantee, session.actions, {session.resources[0]: ""}, conditions)
        access = access.kept()
    # Keys hold no payload, no result and no id; without the list S3 answers 403 for what does not exist.
    yield give(grantee, ["s3:ListBucket"], {bucket: ""})
    for action, patterns in (
        ("s3:GetObject", access.read),
        ("s3:PutObject", access.write),
        ("s3:DeleteObject", access.delete),
    ):
        own = [each for each in patterns if each in OF_ONE_QUEUE]
        why = {f"{bucket}/{OF_ONE_QUEUE[each].format(queue=queue)}": WHY[each] for each in own}
        if access.borrows:
            shared = [each for each in patterns if each in OF_LIMITERS]
            why |= {f"{bucket}/{OF_LIMITERS[each]}": WHY[each] for each in shared}
        if why:
            yield give(grantee, [action], why)
    key = deployment.kms_key
    if key is not None:
        yield give(grantee, use_of_key(key).actions, {key: ""})


# Who asks for a session and no mode gets the most that is allowed.
READS_ONLY: Conditions = {"StringEquals": {"s3express:SessionMode": "ReadOnly"}}


def session_in(names: Names) -> iam.PolicyStatement:
    """Leave to use the directory bucket: a session reads and writes all of it, for it knows no keys."""
    return iam.PolicyStatement(
        sid="Session", actions=["s3express:CreateSession"], resources=[names.directory_bucket_arn]
    )


def leave_to_wake(names: Names) -> iam.PolicyStatement:
    """Leave to invoke the consumers of a deployment."""
    return iam.PolicyStatement(
        sid="Wake",
        actions=["lambda:InvokeFunction"],
        resources=[names.functions_arn],
        conditions=_tagged(names),
    )


def to_wake(names: Names, grantee: iam.IGrantable) -> iam.Grant:
    """The same for somebody else's role."""
    return give(grantee, ["lambda:InvokeFunction"], {names.functions_arn: WHY_ANY_FUNCTION}, _tagged(names))


def _tagged(names: Names) -> Conditions:
    return {"StringEquals": {f"aws:ResourceTag/{CONSUMER_TAG}": names.name}}


def give(
    grantee: iam.IGrantable,
    actions: list[str],
    resources: Mapping[str, str],
    conditions: Conditions | None = None,
) -> iam.Grant:
    """Allow actions on resources, each with the reason why it is a pattern, should it be one."""
    principal = grantee.grant_principal
    if isinstance(principal, Construct):
        for resource, reason in resources.items():
            wildcard_because(principal, resource, reason)
    return iam.Grant.add_to_principal(
        grantee=grantee, actions=actions, resource_arns=[*resources], conditions=conditions
    )
