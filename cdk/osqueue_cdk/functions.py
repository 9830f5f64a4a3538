"""The Lambda functions, each from the table ``osqueue.contract.functions`` and with a role of its own (``access``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from osqueue.aws_calls import WAKES_VARIABLE
from osqueue.contract import functions as table
from osqueue.contract.functions import FUNCTIONS, FunctionSpec

from .access import ACCESS, WHY
from .acknowledged import because, wildcard_because
from .assets import Assets
from .buckets import use_of_key
from .canary import Canaries
from .logs import log_group
from .names import ALIAS, Names
from .rights import WHY_ANY_FUNCTION, leave_to_wake, session_in
from .settings import DeploymentSettings

LAYER = (
    "layer"  # the parameter of SSM that holds the ARN of its version, for consumers (names.Names.parameter)
)
RUNTIME = lambda_.Runtime.PYTHON_3_14
ARCHITECTURE = lambda_.Architecture.ARM_64
# An invocation by the schedule that failed or is late is not worth repeating: the next is a minute away.
SCHEDULED_AGE_MAX = Duration.minutes(1)


class Functions(Construct):
    """The layer, and one function for each entry of the table."""

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, settings: DeploymentSettings, assets: Assets
    ) -> None:
        super().__init__(scope, construct_id)
        self._names, self._settings, self._assets = Names(self, name, settings.express_zone), settings, assets
        self.layer = lambda_.LayerVersion(
            self,
            "Layer",
            code=lambda_.Code.from_asset(str(assets.layer)),
            description="osqueue and what its functions load",
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[ARCHITECTURE],
            removal_policy=RemovalPolicy.RETAIN,  # other functions may use a version, and older ones come back
        )
        ssm.StringParameter(
            self,
            "LayerVersion",
            parameter_name=self._names.parameter(LAYER),
            string_value=self.layer.layer_version_arn,
            description=f"osqueue {name}: for stacks whose functions consume its queues",
        )
        self.functions = {each.name: self._function(each) for each in FUNCTIONS}
        # What the gateway and the schedule invoke.
        self.targets: Mapping[str, lambda_.IFunction] = self.functions
        if settings.canary is not None:
            self.targets = Canaries(
                self,
                "Canaries",
                names=self._names,
                functions=self.functions,
                canary=settings.canary,
                layer=assets.layer,
            ).aliases

    def _function(self, function: FunctionSpec) -> lambda_.Function:
        title = function.name.capitalize()
        name = self._names.function(function.name)
        group = log_group(self, f"{title}Logs", f"/aws/lambda/{name}", self._settings)
        scheduled = function.schedule_minutes is not None
        code = str(self._assets.functions / function.name)
        return lambda_.Function(
            self,
            title,
            function_name=name,
            description=f"osqueue: {function.what}",
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            code=lambda_.Code.from_asset(code, exclude=["**/__pycache__", "**/*.pyc"]),
            handler=table.HANDLER,
            layers=[self.layer],
            timeout=Duration.seconds(function.timeout_s),
            memory_size=function.memory_mb,
            environment=self._environment(),
            role=self._role(function, name, group),
            log_group=group,
            logging_format=lambda_.LoggingFormat.JSON,
            # The functions decide what is logged: Lambda would hold back metrics as well, which have no level.
            application_log_level_v2=lambda_.ApplicationLogLevel.DEBUG,
            tracing=lambda_.Tracing.ACTIVE if self._settings.tracing else lambda_.Tracing.DISABLED,
            reserved_concurrent_executions=self._settings.concurrency.get(function.name),
            # What callers invoke without waiting for an answer Lambda repeats by itself, twice. A repeated enqueue is
            # the same job: by the keys that its client drew, else by those that are made of the invocation.
            retry_attempts=0 if scheduled else None,
            max_event_age=SCHEDULED_AGE_MAX if scheduled else None,
        )

    def _environment(self) -> dict[str, str]:
        environment = {
            table.STORE: self._names.store,
            table.SERVICE: self._names.prefix,
            table.LOG_LEVEL: self._settings.log_level,
            WAKES_VARIABLE: "lambda",
        }
        if self._settings.window_s:
            environment[table.WINDOW] = f"{self._settings.window_s:g}"
        if self._settings.events:
            environment[table.EVENT_BUS] = self._names.bus
        if self._settings.jwt is not None and self._settings.jwt.scopes is not None:
            environment[table.SCOPES] = self._settings.jwt.scopes
        return environment

    def _role(self, function: FunctionSpec, name: str, group: logs.LogGroup) -> iam.Role:
        role = iam.Role(
            self,
            f"{function.name.capitalize()}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"What {name} may do",
        )
        access = ACCESS[function.name]
        bucket = self._names.bucket_arn
        if self._names.directory_bucket is not None:
            access = access.kept()
            role.add_to_policy(session_in(self._names))
        # Without ListBucket S3 answers 403, not 404, for what does not exist. A condition on s3:prefix would do the
        # same to GetObject, whose requests have no prefix.
        role.add_to_policy(_allow("List", ["s3:ListBucket"], [bucket]))
        for sid, action, keys in (
            ("Read", "s3:GetObject", access.read),
            ("Write", "s3:PutObject", access.write),
            ("Delete", "s3:DeleteObject", access.delete),
        ):
            if keys:
                role.add_to_policy(_allow(sid, [action], [f"{bucket}/{each}" for each in keys]))
        for pattern in sorted({*access.read, *access.write, *access.delete}):
            wildcard_because(role, f"{bucket}/{pattern}", WHY[pattern])
        streams = ["logs:CreateLogStream", "logs:PutLogEvents"]
        role.add_to_policy(_allow("Log", streams, [group.log_group_arn]))
        if self._settings.kms_key is not None:
            role.add_to_policy(use_of_key(self._settings.kms_key))
        if self._settings.events:
            role.add_to_policy(_allow("Tell", ["events:PutEvents"], [self._names.bus_arn]))
        if self._settings.tracing:  # the function itself adds what lets it tell X-Ray
            because(
                role, "AwsSolutions-IAM5[Resource::*]", "Traces have no resources that a policy could name."
            )
        if function.writes:
            role.add_to_policy(leave_to_wake(self._names))
            wildcard_because(role, self._names.functions_arn, WHY_ANY_FUNCTION)
        return role


def named_targets(scope: Construct, name: str, settings: DeploymentSettings) -> dict[str, lambda_.IFunction]:
    """What the gateway and the schedule invoke of a deployment whose functions are in another stack."""
    names = Names(scope, name)
    alias = "" if settings.canary is None else f":{ALIAS}"
    return {
        each.name: lambda_.Function.from_function_arn(
            scope, f"{each.name.capitalize()}ByName", names.function_arn(each.name) + alias
        )
        for each in FUNCTIONS
    }


def _allow(sid: str, actions: list[str], resources: Iterable[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=actions, resources=list(resources))
