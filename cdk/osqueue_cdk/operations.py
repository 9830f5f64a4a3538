"""Operations: alarms that tell somebody, and a dashboard. What each alarm means and what to do: docs/runbook.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as watch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from osqueue.contract import metrics

from .alarms import PERIOD, AlarmSpec, alarms_of, by_queue, count
from .names import prefix_of
from .settings import Alarms, DeploymentSettings


class Operations(Construct):
    """A topic, the alarms that write to it (``more`` beside those of every deployment), and a dashboard."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        settings: DeploymentSettings,
        functions: Mapping[str, lambda_.IFunction],
        more: Iterable[AlarmSpec] = (),
    ) -> None:
        super().__init__(scope, construct_id)
        self._prefix = prefix_of(name)
        self._told = [actions.SnsAction(each) for each in self._tell(settings.alarms)]
        specs = [*alarms_of(self._prefix, settings.alarms, functions), *more]
        self.alarms = [self._alarm(each) for each in specs]
        self._show(functions)

    # ── Whom to tell ─────────────────────────────────────────────────────────
    def _tell(self, alarms: Alarms) -> Iterator[sns.ITopic]:
        """The topic of this deployment, with the addresses it writes to, and one of somebody else's."""
        topic = sns.Topic(self, "Topic", topic_name=f"{self._prefix}-alarms", enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
        for email in alarms.emails:
            topic.add_subscription(subscriptions.EmailSubscription(email))
        yield topic
        if alarms.topic is not None:
            yield sns.Topic.from_topic_arn(self, "TopicOfYours", alarms.topic)

    def _alarm(self, spec: AlarmSpec) -> watch.Alarm:
        alarm = watch.Alarm(
            self,
            "".join(word.capitalize() for word in spec.name.split("-")),
            alarm_name=f"{self._prefix}-{spec.name}",
            alarm_description=f"{spec.what} See docs/runbook.md.",
            metric=spec.metric,
            threshold=spec.threshold,
            evaluation_periods=spec.periods,
            comparison_operator=spec.operator,
            treat_missing_data=spec.missing,
        )
        alarm.add_alarm_action(*self._told)
        alarm.add_ok_action(*self._told)
        return alarm

    # ── Dashboard ────────────────────────────────────────────────────────────
    def _show(self, functions: Mapping[str, lambda_.IFunction]) -> None:
        prefix = self._prefix
        each = functions.values()
        rows: list[list[watch.IWidget]] = [
            [watch.AlarmStatusWidget(title="Alarms", alarms=self.alarms, width=24, height=4)],
            [
                _graph("Jobs waiting, by queue", [by_queue(prefix, metrics.DEPTH, "Maximum")]),
                _graph(
                    "Oldest waiting job, seconds, by queue", [by_queue(prefix, metrics.OLDEST, "Maximum")]
                ),
                _graph("Dead letters, by queue", [by_queue(prefix, metrics.DEAD, "Maximum")]),
            ],
            [
                _graph(
                    "Commits",
                    [count(prefix, metrics.COMMITS, "Sum"), count(prefix, metrics.CONFLICTS, "Sum")],
                ),
                _graph(
                    "Commit, ms",
                    [count(prefix, metrics.COMMIT_MS, "p50"), count(prefix, metrics.COMMIT_MS, "p99")],
                ),
                _graph(
                    "Taken along, and leases that ran out",
                    [count(prefix, metrics.COMBINED, "Sum"), count(prefix, metrics.EXPIRED, "Sum")],
                ),
            ],
            [
                _graph("Invocations", [one.metric_invocations(period=PERIOD) for one in each]),
                _graph(
                    "Errors, and requests answered with 500 or 503",
                    [
                        count(prefix, metrics.FAULTS, "Sum"),
                        *(one.metric_errors(period=PERIOD) for one in each),
                    ],
                ),
                _graph(
                    "Duration, p99", [one.metric_duration(period=PERIOD, statistic="p99") for one in each]
                ),
            ],
        ]
        watch.Dashboard(self, "Dashboard", dashboard_name=prefix, widgets=rows)


def _graph(title: str, series: list[watch.IMetric]) -> watch.GraphWidget:
    return watch.GraphWidget(title=title, left=series, width=8, height=6)
