"""New code of the functions by degrees: CodeDeploy moves an alias, and moves it back where invocations fail."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as watch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from osqueue.contract.functions import BY_NAME

from .acknowledged import because
from .names import ALIAS, Names
from .settings import Canary

POLICY = "service-role/AWSCodeDeployRoleForLambdaLimited"
CONFIGS = {
    5: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
    10: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_10_MINUTES,
    15: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_15_MINUTES,
    30: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_30_MINUTES,
}
ALARM_PERIOD = Duration.minutes(1)


class Canaries(Construct):
    """An alias of each function, with what moves it. The gateway and the schedule invoke the aliases."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Names,
        functions: Mapping[str, lambda_.Function],
        canary: Canary,
        layer: Path,
    ) -> None:
        super().__init__(scope, construct_id)
        self._names, self._canary = names, canary
        self._digest = hashlib.sha256(layer.read_bytes()).hexdigest()
        self._role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com"))
        because(
            self._role,
            f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{POLICY}]",
            "The policy that CodeDeploy documents for moving aliases: it reads alarms and changes aliases.",
        )
        self._application = codedeploy.LambdaApplication(self, "Application", application_name=names.prefix)
        self.aliases = {name: self._alias(name, each) for name, each in functions.items()}

    def _alias(self, name: str, function: lambda_.Function) -> lambda_.Alias:
        # The code of a function is its layer: without this a new one would make no new version.
        function.invalidate_version_based_on(self._digest)
        scheduled = BY_NAME[name].schedule_minutes is not None
        alias = lambda_.Alias(
            self,
            f"{name.capitalize()}Alias",
            alias_name=ALIAS,
            version=function.current_version,
            # What the function has of this is for calls without the alias.
            retry_attempts=0 if scheduled else None,
            max_event_age=Duration.minutes(1) if scheduled else None,
        )
        alarm = watch.Alarm(
            self,
            f"{name.capitalize()}Errors",
            alarm_name=f"{self._names.prefix}-canary-{name}",
            alarm_description=f"Invocations of {name} fail: a deployment that is under way goes back.",
            metric=alias.metric_errors(period=ALARM_PERIOD, statistic="Sum"),
            threshold=self._canary.errors,
            evaluation_periods=1,
            comparison_operator=watch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=watch.TreatMissingData.NOT_BREACHING,
        )
        codedeploy.LambdaDeploymentGroup(
            self,
            f"{name.capitalize()}Group",
            application=self._application,
            deployment_group_name=self._names.function(name),
            alias=alias,
            alarms=[alarm],
            deployment_config=CONFIGS[self._canary.minutes],
            role=self._role,
        )
        return alias
