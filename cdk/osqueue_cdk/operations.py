"""Operations: alarms that tell somebody, and a dashboard. What each alarm means and what to do: docs/runbook.md."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as watch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from osqueue.contract import metrics
from osqueue.contract.functions import FUNCTIONS

from .alarms import AlarmSpec, alarms_of, by_queue, count, of_function
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
        api_id: str,
        more: Iterable[AlarmSpec] = (),
    ) -> None:
        super().__init__(scope, construct_id)
        self._prefix = prefix_of(name)
        self._topic = self._own_topic(settings.alarms, settings.topic_kms_key)
        self._pager = self._topic_of_yours(settings.alarms)
        specs = [*alarms_of(self._prefix, settings.alarms, api_id), *more]
        self.alarms = [self._alarm(each) for each in specs]
        self._show()

    # ── Whom to tell ─────────────────────────────────────────────────────────
    def _own_topic(self, alarms: Alarms, kms_key: str | None) -> sns.Topic:
        """The topic of this deployment, with the addresses it writes to."""
        key = None if kms_key is None else kms.Key.from_key_arn(self, "TopicKey", kms_key)
        topic = sns.Topic(
            self, "Topic", topic_name=f"{self._prefix}-alarms", enforce_ssl=True, master_key=key
        )
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
        return topic

    def _topic_of_yours(self, alarms: Alarms) -> sns.ITopic | None:
        return None if alarms.topic is None else sns.Topic.from_topic_arn(self, "TopicOfYours", alarms.topic)

    def _alarm(self, spec: AlarmSpec) -> watch.Alarm:
        alarm = watch.Alarm(
            self,
            "".join(word.capitalize() for word in spec.name.split("-")),
            alarm_name=f"{self._prefix}-{spec.name}",
            alarm_description=f"{spec.what} See docs/runbook.md.",
            metric=spec.metric,
            threshold=spec.threshold,
            evaluation_periods=spec.periods,
            datapoints_to_alarm=spec.of_them,
            comparison_operator=spec.operator,
            treat_missing_data=spec.missing,
        )
        alarm.add_alarm_action(actions.SnsAction(self._topic))
        if self._pager is not None:
            # A new alarm becomes OK before anything has happened. A pager, which closes what is open, takes that for
            # what it is; people would get a mail for each alarm of the first deployment.
            alarm.add_alarm_action(actions.SnsAction(self._pager))
            alarm.add_ok_action(actions.SnsAction(self._pager))
        return alarm

    # ── Dashboard ────────────────────────────────────────────────────────────
    def _show(self) -> None:
        prefix, names = self._prefix, [each.name for each in FUNCTIONS]
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
                    "Jobs that came, completed and failed, by queue",
                    [
                        by_queue(prefix, metrics.ENQUEUED, "Sum"),
                        by_queue(prefix, metrics.COMPLETED, "Sum"),
                        by_queue(prefix, metrics.FAILED, "Sum"),
                    ],
                ),
                _graph(
                    "Wait for the first start, ms, p50 and p99, by queue",
                    [by_queue(prefix, metrics.WAIT_MS, "p50"), by_queue(prefix, metrics.WAIT_MS, "p99")],
                ),
                _graph(
                    "Invocations of consumers, and those for tickets that nobody had come for, by queue",
                    [by_queue(prefix, metrics.WAKES, "Sum"), by_queue(prefix, metrics.WAKES_AGAIN, "Sum")],
                ),
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
                _graph("Consumers at work, by queue", [by_queue(prefix, metrics.CONSUMERS, "Maximum")]),
                _graph(
                    "At work, % of what a consumer may, the most of any",
                    [count(prefix, metrics.CONSUMERS_BUSY, "Maximum")],
                ),
                _graph(
                    "Invoked again, and not come, the most of any",
                    [count(prefix, metrics.WAKE_TRIES, "Maximum")],
                ),
            ],
            [
                _graph("Invocations", [of_function(prefix, each, "Invocations") for each in names]),
                _graph(
                    "Errors, and requests answered with 500 or 503",
                    [
                        count(prefix, metrics.FAULTS, "Sum"),
                        *(of_function(prefix, each, "Errors") for each in names),
                    ],
                ),
                _graph("Duration, p99", [of_function(prefix, each, "Duration", "p99") for each in names]),
            ],
        ]
        watch.Dashboard(self, "Dashboard", dashboard_name=prefix, widgets=rows)


def _graph(title: str, series: list[watch.IMetric]) -> watch.GraphWidget:
    return watch.GraphWidget(title=title, left=series, width=8, height=6)
