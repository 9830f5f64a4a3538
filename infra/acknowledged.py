"""Findings of cdk-nag that are meant: each with its reason, beside the construct it is about."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct


def because(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept a finding on a construct and all below it."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
