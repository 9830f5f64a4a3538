"""The alarms of the Spark pipeline, beside those of every deployment. What to do: docs/runbook.md."""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as watch
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from osqueue_cdk.alarms import PERIOD, AlarmSpec, filled
from osqueue_cdk.names import Names

from .config import Config
from .pipeline import APPLICATION_ID, FAILED, SUCCEEDED, application_name, not_started, rule_name

HOUR = Duration.hours(1)  # between runs of the pipeline
QUARTER = Duration.minutes(15)


def pipeline_alarms(scope: Construct, config: Config) -> Iterator[AlarmSpec]:
    """Every alarm of the pipeline, by the names of what another stack holds."""
    assert config.pipeline is not None
    parameter = Names(scope, config.name).parameter(APPLICATION_ID)
    application = ssm.StringParameter.value_for_string_parameter(scope, parameter)
    yield AlarmSpec(
        name="pipeline-failed",
        what="A run of the pipeline failed or was cancelled.",
        metric=_endings(config, FAILED),
        threshold=1,
    )
    yield AlarmSpec(
        name="pipeline-endings-lost",
        what="The end of a run of the pipeline did not reach its log group.",
        metric=watch.MathExpression(
            expression="SUM([FILL(failed, 0), FILL(succeeded, 0)])",
            using_metrics={
                "failed": _of_rule(config, FAILED, "FailedInvocations"),
                "succeeded": _of_rule(config, SUCCEEDED, "FailedInvocations"),
            },
            label="Events that EventBridge could not deliver",
            period=HOUR,
        ),
        threshold=1,
    )
    yield AlarmSpec(
        name="pipeline-not-run",
        what="No run of the pipeline has ended well for hours.",
        metric=filled(_endings(config, SUCCEEDED)),
        threshold=1,
        periods=config.pipeline.silent_hours,
        missing=watch.TreatMissingData.BREACHING,
        operator=watch.ComparisonOperator.LESS_THAN_THRESHOLD,
    )
    yield AlarmSpec(
        name="pipeline-not-started",
        what="EMR Serverless refused to start runs of the pipeline.",
        metric=watch.Metric(
            namespace="AWS/SQS",
            metric_name="ApproximateNumberOfMessagesVisible",
            dimensions_map={"QueueName": not_started(config)},
            statistic="Maximum",
            period=PERIOD,
        ),
        threshold=1,
    )
    yield AlarmSpec(
        name="pipeline-capacity",
        what="The pipeline has used all the capacity it may have for an hour: its runs take too long.",
        metric=watch.MathExpression(
            expression="used / allowed",
            using_metrics={
                "used": _of_application(config, application, "CPUAllocated"),
                "allowed": _of_application(config, application, "MaxCPUAllowed"),
            },
            label="Share of the capacity that is used",
            period=QUARTER,
        ),
        threshold=1,
        periods=4,
    )


def _endings(config: Config, name: str) -> watch.Metric:
    """How many runs ended so."""
    return _of_rule(config, name, "MatchedEvents")


def _of_rule(config: Config, name: str, metric: str) -> watch.Metric:
    """What EventBridge counts of a rule on the default bus."""
    return watch.Metric(
        namespace="AWS/Events",
        metric_name=metric,
        dimensions_map={"RuleName": rule_name(config, name)},
        statistic="Sum",
        period=HOUR,
        label=name,
    )


def _of_application(config: Config, application: str, name: str) -> watch.Metric:
    """A metric of EMR Serverless over all workers. CPUAllocated drops to 0 now and then: hence the maximum."""
    return watch.Metric(
        namespace="AWS/EMRServerless",
        metric_name=name,
        dimensions_map={"ApplicationId": application, "ApplicationName": application_name(config)},
        statistic="Maximum",
        period=QUARTER,
    )
