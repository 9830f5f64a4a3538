"""Findings of cdk-nag that are meant: each with its reason, beside the construct it is about."""

from __future__ import annotations

from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct


def because(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept a finding on a construct and all below it."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))


def wildcard_because(construct: IConstruct, resource: str, reason: str) -> None:
    """Accept that a policy names a resource by a pattern. One without a ``*`` is no finding, and is passed over."""
    text = _as_it_is_told(Stack.of(construct).resolve(resource))
    if "*" in text:
        because(construct, f"AwsSolutions-IAM5[Resource::{text}]", reason)


def _as_it_is_told(value: Any) -> str:
    """A resource of a template as cdk-nag writes it: ``<Bucket.Arn>/*``."""
    if isinstance(value, str):
        return value
    ((function, given),) = value.items()
    if function == "Fn::Join":
        return str(given[0]).join(map(_as_it_is_told, given[1]))
    if function == "Fn::GetAtt":
        return f"<{given[0]}.{given[1]}>"
    return f"<{given}>"  # Ref
