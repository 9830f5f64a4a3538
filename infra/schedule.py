"""The schedule: the reaper, once a minute."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from osqueue.contract.functions import FUNCTIONS

from .config import Config

SOURCE = "osqueue.schedule"  # by which a function knows such an event
RETRIES = 1
AGE_S_MAX = 60  # the smallest that there is; the next tick does what this one could not


class ScheduleStack(Stack):
    """One schedule for each function of the table that has one."""

    def __init__(
        self, scope: Construct, config: Config, place: Environment, functions: Mapping[str, lambda_.Function]
    ) -> None:
        super().__init__(
            scope,
            f"{config.prefix}-schedule",
            env=place,
            description=f"osqueue {config.name}: the schedule of the reaper",
            termination_protection=config.protected,
        )
        for each in FUNCTIONS:
            if each.schedule_minutes is not None:
                self._schedule(config, each.name, each.schedule_minutes, functions[each.name])

    def _schedule(self, config: Config, name: str, minutes: int, function: lambda_.Function) -> None:
        title = name.capitalize()
        role = iam.Role(
            self,
            f"{title}ScheduleRole",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": self.account}}
            ),
            description=f"Lets the schedule invoke {config.prefix}-{name}",
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="Invoke", actions=["lambda:InvokeFunction"], resources=[function.function_arn]
            )
        )
        unit = "minute" if minutes == 1 else "minutes"
        scheduler.CfnSchedule(
            self,
            f"{title}Schedule",
            name=f"{config.prefix}-{name}",
            description=f"osqueue {config.name}: {name}",
            schedule_expression=f"rate({minutes} {unit})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=function.function_arn,
                role_arn=role.role_arn,
                input=json.dumps({"source": SOURCE, "scheduled_at": "<aws.scheduler.scheduled-time>"}),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=AGE_S_MAX, maximum_retry_attempts=RETRIES
                ),
            ),
        ).node.add_dependency(role)  # EventBridge Scheduler tries the role when the schedule is made
