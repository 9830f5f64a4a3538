"""Log groups: named, kept for as long as the settings say. Those of a protected deployment outlive their stack."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from .settings import LOG_DAYS, DeploymentSettings

# CDK has a constant for each number of days, in the same order, and one more for ever.
_RETENTION = dict(zip(LOG_DAYS, logs.RetentionDays, strict=False))


def log_group(scope: Construct, title: str, name: str, settings: DeploymentSettings) -> logs.LogGroup:
    """A log group that keeps its entries for ``log_days``."""
    key = settings.logs_kms_key
    return logs.LogGroup(
        scope,
        title,
        log_group_name=name,
        encryption_key=None if key is None else kms.Key.from_key_arn(scope, f"{title}Key", key),
        retention=_RETENTION[settings.log_days],
        removal_policy=RemovalPolicy.RETAIN if settings.protected else RemovalPolicy.DESTROY,
    )
