"""Operations: alarms that tell somebody, and a dashboard. What each alarm means and what to do: docs/runbook.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_cloudwatch as watch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from osqueue.contract import metrics
from osqueue.contract.functions import METRICS_NAMESPACE
from osqueue.contract.metrics import Metric

from .config import Config
from .pipeline import FAILED, SUCCEEDED, PipelineStack, rule_name

PERIOD = Duration.minutes(5)
RACE_PERIOD = Duration.minutes(15)
HOUR = Duration.hours(1)  # between runs of the pipeline
QUARTER = Duration.minutes(15)
COMMITS_MIN = 100  # in that time: of a handful of commits a share says nothing


class OperationsStack(Stack):
    """A topic, the alarms that write to it, and a dashboard."""

    def __init__(
        self,
        scope: Construct,
        config: Config,
        place: Environment,
        functions: Mapping[str, lambda_.Function],
        pipeline: PipelineStack | None,
    ) -> None:
        super().__init__(
            scope,
            f"{config.prefix}-operations",
            env=place,
            description=f"osqueue {config.name}: alarms and the dashboard",
            termination_protection=config.protected,
        )
        self._config = config
        self._functions = functions
        self._told = [actions.SnsAction(each) for each in self._tell()]
        self._alarms = [
            self._oldest(),
            self._dead(),
            self._not_reaped(),
            self._conflicts(),
            self._faults(),
            *(self._errors(name, each) for name, each in functions.items()),
            *(self._throttles(name, each) for name, each in functions.items()),
            *(self._of_pipeline(pipeline) if pipeline is not None else ()),
        ]
        self._show()

    # ── Whom to tell ─────────────────────────────────────────────────────────
    def _tell(self) -> Iterator[sns.ITopic]:
        """The topic of this environment, with the addresses it writes to, and one of somebody else's."""
        topic = sns.Topic(self, "Topic", topic_name=f"{self._config.prefix}-alarms", enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        for email in self._config.alarms.emails:
            topic.add_subscription(subscriptions.EmailSubscription(email))
        yield topic
        if self._config.alarms.topic is not None:
            yield sns.Topic.from_topic_arn(self, "TopicOfYours", self._config.alarms.topic)

    def _alarm(
        self,
        name: str,
        what: str,
        metric: watch.IMetric,
        threshold: float,
        periods: int = 1,
        missing: watch.TreatMissingData = watch.TreatMissingData.NOT_BREACHING,
        operator: watch.ComparisonOperator = watch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
    ) -> watch.Alarm:
        alarm = watch.Alarm(
            self,
            "".join(word.capitalize() for word in name.split("-")),
            alarm_name=f"{self._config.prefix}-{name}",
            alarm_description=f"{what} See docs/runbook.md.",
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            comparison_operator=operator,
            treat_missing_data=missing,
        )
        alarm.add_alarm_action(*self._told)
        alarm.add_ok_action(*self._told)
        return alarm

    # ── Alarms ───────────────────────────────────────────────────────────────
    def _oldest(self) -> watch.Alarm:
        return self._alarm(
            "oldest-age",
            "A job has been claimable for long and nobody claims it.",
            self._count(metrics.OLDEST, "Maximum"),
            self._config.alarms.oldest_s,
            periods=2,
        )

    def _dead(self) -> watch.Alarm:
        return self._alarm(
            "dead-letters",
            "A queue holds dead letters: jobs whose attempts ran out.",
            self._count(metrics.DEAD, "Maximum"),
            self._config.alarms.dead,
        )

    def _not_reaped(self) -> watch.Alarm:
        return self._alarm(
            "reaper-not-run",
            "No pass of the reaper has ended well.",
            _filled(self._count(metrics.PASSES, "Sum")),
            1,
            periods=2,
            missing=watch.TreatMissingData.BREACHING,
            operator=watch.ComparisonOperator.LESS_THAN_THRESHOLD,
        )

    def _conflicts(self) -> watch.Alarm:
        lost = self._count(metrics.CONFLICTS, "Sum", RACE_PERIOD)
        won = self._count(metrics.COMMITS, "Sum", RACE_PERIOD)
        share = watch.MathExpression(
            expression=f"IF(won + lost >= {COMMITS_MIN}, lost / (won + lost), 0)",
            using_metrics={"won": won, "lost": lost},
            label="Share of commits that lost their race",
            period=RACE_PERIOD,
        )
        return self._alarm(
            "conflict-rate",
            "Many commits lose their race: too many writers for the shards.",
            share,
            self._config.alarms.conflict_share,
            periods=2,
        )

    def _faults(self) -> watch.Alarm:
        return self._alarm(
            "faults",
            "Requests are answered with 500 or 503: the bucket refuses, does not answer, or a function has a defect.",
            self._count(metrics.FAULTS, "Sum"),
            self._config.alarms.errors,
        )

    def _errors(self, name: str, function: lambda_.Function) -> watch.Alarm:
        return self._alarm(
            f"errors-{name}",
            f"Invocations of {function.node.id.lower()} fail: it crashes, or is stopped by its timeout or memory.",
            function.metric_errors(period=PERIOD, statistic="Sum"),
            self._config.alarms.errors,
        )

    def _throttles(self, name: str, function: lambda_.Function) -> watch.Alarm:
        return self._alarm(
            f"throttles-{name}",
            f"Invocations of {function.node.id.lower()} are refused: no concurrency is left.",
            function.metric_throttles(period=PERIOD, statistic="Sum"),
            1,
            periods=2,
        )

    # ── Alarms of the pipeline ───────────────────────────────────────────────
    def _of_pipeline(self, pipeline: PipelineStack) -> Iterator[watch.Alarm]:
        yield self._alarm(
            "pipeline-failed",
            "A run of the pipeline failed or was cancelled.",
            self._endings(FAILED),
            1,
        )
        yield self._alarm(
            "pipeline-not-run",
            "No run of the pipeline has ended well for hours.",
            _filled(self._endings(SUCCEEDED)),
            1,
            periods=self._config.alarms.pipeline_hours,
            missing=watch.TreatMissingData.BREACHING,
            operator=watch.ComparisonOperator.LESS_THAN_THRESHOLD,
        )
        yield self._alarm(
            "pipeline-not-started",
            "EMR Serverless refused to start runs of the pipeline.",
            pipeline.undelivered.metric_approximate_number_of_messages_visible(
                period=PERIOD, statistic="Maximum"
            ),
            1,
        )
        yield self._alarm(
            "pipeline-capacity",
            "The pipeline has used all the capacity it may have for an hour: its runs take too long.",
            watch.MathExpression(
                expression="used / allowed",
                using_metrics={
                    "used": _of_application(pipeline, "CPUAllocated"),
                    "allowed": _of_application(pipeline, "MaxCPUAllowed"),
                },
                label="Share of the capacity that is used",
                period=QUARTER,
            ),
            1,
            periods=4,
        )

    def _endings(self, name: str) -> watch.Metric:
        """How many runs ended so: what EventBridge counts of a rule on the default bus."""
        return watch.Metric(
            namespace="AWS/Events",
            metric_name="MatchedEvents",
            dimensions_map={"RuleName": rule_name(self._config, name)},
            statistic="Sum",
            period=HOUR,
            label=name,
        )

    # ── Metrics ──────────────────────────────────────────────────────────────
    def _count(self, metric: Metric, statistic: str, period: Duration = PERIOD) -> watch.Metric:
        """A metric over all queues of this deployment."""
        return watch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=metric.name,
            dimensions_map={metrics.SERVICE: self._config.prefix},
            statistic=statistic,
            period=period,
            label=metric.what,
        )

    def _by_queue(self, metric: Metric, statistic: str) -> watch.MathExpression:
        """A metric of each queue, whichever there are: queues are made by their first job."""
        search = (
            f"SEARCH('{{{METRICS_NAMESPACE},{metrics.SERVICE},{metrics.QUEUE}}} "
            f'MetricName="{metric.name}" {metrics.SERVICE}="{self._config.prefix}"\', '
            f"'{statistic}', {PERIOD.to_seconds()})"
        )
        return watch.MathExpression(expression=search, using_metrics={}, label="", period=PERIOD)

    # ── Dashboard ────────────────────────────────────────────────────────────
    def _show(self) -> None:
        each = self._functions.values()
        rows: list[list[watch.IWidget]] = [
            [watch.AlarmStatusWidget(title="Alarms", alarms=self._alarms, width=24, height=4)],
            [
                _graph("Jobs waiting, by queue", [self._by_queue(metrics.DEPTH, "Maximum")]),
                _graph("Oldest waiting job, seconds, by queue", [self._by_queue(metrics.OLDEST, "Maximum")]),
                _graph("Dead letters, by queue", [self._by_queue(metrics.DEAD, "Maximum")]),
            ],
            [
                _graph(
                    "Commits",
                    [self._count(metrics.COMMITS, "Sum"), self._count(metrics.CONFLICTS, "Sum")],
                ),
                _graph(
                    "Commit, ms",
                    [self._count(metrics.COMMIT_MS, "p50"), self._count(metrics.COMMIT_MS, "p99")],
                ),
                _graph(
                    "Taken along, and leases that ran out",
                    [self._count(metrics.COMBINED, "Sum"), self._count(metrics.EXPIRED, "Sum")],
                ),
            ],
            [
                _graph("Invocations", [one.metric_invocations(period=PERIOD) for one in each]),
                _graph(
                    "Errors, and requests answered with 500 or 503",
                    [self._count(metrics.FAULTS, "Sum"), *(one.metric_errors(period=PERIOD) for one in each)],
                ),
                _graph(
                    "Duration, p99", [one.metric_duration(period=PERIOD, statistic="p99") for one in each]
                ),
            ],
        ]
        watch.Dashboard(self, "Dashboard", dashboard_name=self._config.prefix, widgets=rows)


def _graph(title: str, series: list[watch.IMetric]) -> watch.GraphWidget:
    return watch.GraphWidget(title=title, left=series, width=8, height=6)


def _filled(metric: watch.Metric) -> watch.MathExpression:
    """A metric with 0 where it says nothing.

    Whatever an alarm makes of missing data, CloudWatch looks back over more periods than the alarm has, and what it
    finds there counts in place of what is missing: silence would be told hours late. What says nothing at all stays
    missing.
    """
    return watch.MathExpression(
        expression="FILL(counted, 0)",
        using_metrics={"counted": metric},
        label=metric.label,
        period=metric.period,
    )


def _of_application(pipeline: PipelineStack, name: str) -> watch.Metric:
    """A metric of EMR Serverless over all workers. CPUAllocated drops to 0 now and then: hence the maximum."""
    return watch.Metric(
        namespace="AWS/EMRServerless",
        metric_name=name,
        dimensions_map={
            "ApplicationId": pipeline.application.attr_application_id,
            "ApplicationName": pipeline.name,
        },
        statistic="Maximum",
        period=QUARTER,
    )
