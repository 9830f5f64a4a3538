"""Log groups: named, kept for as long as the configuration says, and gone with their stack."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Construct

from .config import LOG_DAYS

# CDK has a constant for each number of days, in the same order, and one more for ever.
_RETENTION = dict(zip(LOG_DAYS, logs.RetentionDays, strict=False))


def log_group(scope: Construct, title: str, name: str, days: int) -> logs.LogGroup:
    """A log group that keeps its entries for so many days, one of ``LOG_DAYS``."""
    return logs.LogGroup(
        scope,
        title,
        log_group_name=name,
        retention=_RETENTION[days],
        removal_policy=RemovalPolicy.DESTROY,
    )
