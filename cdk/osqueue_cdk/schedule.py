"""The schedule: the reaper, once a minute."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from osqueue.contract.functions import FUNCTIONS

from .names import prefix_of

SOURCE = "osqueue.schedule"  # by which a function knows such an event
RETRIES = 1
AGE_S_MAX = 60  # the smallest that there is; the next tick does what this one could not


class ReaperSchedule(Construct):
    """One schedule for each function of the table that has one."""

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, functions: Mapping[str, lambda_.IFunction]
    ) -> None:
        super().__init__(scope, construct_id)
        self._deployment = name
        for each in FUNCTIONS:
            if each.schedule_minutes is not None:
                self._schedule(each.name, each.schedule_minutes, functions[each.name])

    def _schedule(self, name: str, minutes: int, function: lambda_.IFunction) -> None:
        title, prefix = name.capitalize(), prefix_of(self._deployment)
        role = iam.Role(
            self,
            f"{title}ScheduleRole",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
            description=f"Lets the schedule invoke {prefix}-{name}",
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
            name=f"{prefix}-{name}",
            description=f"osqueue {self._deployment}: {name}",
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
