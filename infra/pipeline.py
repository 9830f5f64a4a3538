"""The Spark pipeline: an EMR Serverless application, the bucket of its tables, and a run every hour.

**A bucket of its own.** Who may read history, or write tables of it, need not be somebody who may rewrite queues. So
the jobs' role reads ``archive/`` in the queues' bucket, and everything else it does is in the tables' bucket.

**One run at a time.** Two runs over the same hours would do the same work twice, and stand in each other's way where
they write. So the application runs one and lets the next one wait. A schedule's retry may start a run twice; the second
finds nothing to change.

**What changes with the code is in the schedule's request**, not in the application: an application can be changed only
while it is stopped, and in this release a run's configuration replaces the application's instead of adding to it.
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CfnOutput, Duration, Environment, Stack
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from osqueue_cdk.access import ARCHIVE
from osqueue_cdk.acknowledged import because, wildcard_because
from osqueue_cdk.buckets import private_bucket, use_of_key
from osqueue_cdk.logs import log_group
from osqueue_cdk.names import Names

from .bundle import ENTRY, PYTHON
from .config import Config

RELEASE = "emr-spark-8.0.0"  # Spark 4.0.2, as pyproject.toml pins it
ARCHITECTURE = "ARM64"  # as infra.bundle.EMR builds for, and cheaper
WORKER_CPUS = 2  # of the driver, and of each executor
WORKER_GB = 8
OVERHEAD_GB = 3  # of these, for Python, which compaction is done in, and what else is not Java's heap
DISK_GB = 20  # what a worker has without a price
IDLE_MINUTES = 5  # until the application stops; it costs nothing then, nor idle without workers

MINUTE = 10  # past the hour: the reaper, every minute, has archived by then what ended before it
RUN_MINUTES_MAX = 50  # then a run is cancelled, so that the next one finds its place
QUEUED_MINUTES_MAX = 60  # a run that waits longer for the one before it is given up
START_RETRIES = 3
START_AGE_S_MAX = 900

TABLES = "tables"  # the folder of the tables in their bucket
REPORT = "reports/latest.html"

APPLICATION_ID = "pipeline-application"  # its name in SSM (osqueue_cdk.names.Names.parameter)
FAILED, SUCCEEDED = "pipeline-failed", "pipeline-succeeded"
ENDINGS = {FAILED: ["FAILED", "CANCELLED"], SUCCEEDED: ["SUCCESS"]}  # the states in which a run ends


class PipelineStack(Stack):
    """The application, its bucket and its role, the schedule, and rules that count how runs end."""

    def __init__(self, scope: Construct, config: Config, place: Environment, bundle: Path) -> None:
        super().__init__(
            scope,
            f"{config.prefix}-pipeline",
            env=place,
            description=f"osqueue {config.name}: the Spark pipeline over the archive",
            termination_protection=config.protected,
        )
        assert config.pipeline is not None
        self._config, self._pipeline, self._names = config, config.pipeline, Names(self, config.name)
        self.name = application_name(config)
        self._archive = assets.Asset(self, "Environment", path=str(bundle))
        self._entry = assets.Asset(self, "Entry", path=str(ENTRY))
        self._tables = self._bucket()
        self._logs = log_group(self, "Logs", f"/aws/emr-serverless/{self.name}", config)
        self.application = self._application()
        self._role = self._jobs_role()
        self.undelivered = self._queue()
        self._schedule()
        self._count_endings()
        self._outputs()

    # ── What runs ────────────────────────────────────────────────────────────
    def _application(self) -> emr.CfnApplication:
        workers = 1 + self._pipeline.executors
        return emr.CfnApplication(
            self,
            "Application",
            name=self.name,
            release_label=RELEASE,
            type="SPARK",
            architecture=ARCHITECTURE,
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=IDLE_MINUTES
            ),
            maximum_capacity=emr.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{workers * WORKER_CPUS} vCPU",
                memory=f"{workers * WORKER_GB} GB",
                disk=f"{workers * DISK_GB} GB",
            ),
            scheduler_configuration=emr.CfnApplication.SchedulerConfigurationProperty(
                max_concurrent_runs=1, queue_timeout_minutes=QUEUED_MINUTES_MAX
            ),
            monitoring_configuration=emr.CfnApplication.MonitoringConfigurationProperty(
                cloud_watch_logging_configuration=emr.CfnApplication.CloudWatchLoggingConfigurationProperty(
                    enabled=True, log_group_name=self._logs.log_group_name
                )
            ),
        )

    @property
    def _settings(self) -> str:
        """What spark-submit is told. The archive is unpacked into ``environment`` where each process works."""
        environment = {
            "PYTHONPATH": "./environment",
            "PYSPARK_PYTHON": f"python{PYTHON}",
            "AWS_DEFAULT_REGION": self.region,  # for the library's S3 client; nobody documents that it is there
        }
        settings = {
            "spark.archives": f"{self._archive.s3_object_url}#environment",
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": f"python{PYTHON}",
            **{f"spark.emr-serverless.driverEnv.{name}": value for name, value in environment.items()},
            **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
            **_sizes("driver"),
            **_sizes("executor"),
            "spark.dynamicAllocation.initialExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": str(self._pipeline.executors),
        }
        return " ".join(f"--conf {name}={value}" for name, value in settings.items())

    # ── Where it writes ──────────────────────────────────────────────────────
    def _bucket(self) -> s3.Bucket:
        bucket = private_bucket(self, "Tables", [], self._config.kms_key)
        because(
            bucket,
            "AwsSolutions-S1",
            "As for the queues' bucket: CloudTrail data events can be switched on (docs/security.md).",
        )
        return bucket

    # ── What it may do ───────────────────────────────────────────────────────
    def _jobs_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "JobsRole",
            assumed_by=iam.ServicePrincipal(
                "emr-serverless.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            ),
            description=f"What the Spark jobs of {self.name} may do",
        )
        store, tables = self._names.bucket_arn, self._tables.bucket_arn
        for sid, actions, resources in (
            ("ReadArchive", ["s3:GetObject"], [f"{store}/{ARCHIVE}"]),
            ("Tables", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], [f"{tables}/*"]),
            # Without it S3 answers 403 where there is no object, and not 404.
            ("List", ["s3:ListBucket"], [store, tables]),
            ("ReadCode", ["s3:GetObject"], [_key(self._archive), _key(self._entry)]),
            # As EMR Serverless documents it for a log group that is there.
            ("FindLogs", ["logs:DescribeLogGroups"], ["*"]),
            (
                "Log",
                ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                [self._logs.log_group_arn],
            ),
        ):
            role.add_to_policy(iam.PolicyStatement(sid=sid, actions=actions, resources=resources))
        if self._config.kms_key is not None:
            role.add_to_policy(use_of_key(self._config.kms_key))
        for resource, why in {
            f"{store}/{ARCHIVE}": "Parts are named by queue, hour and content.",
            f"{tables}/*": "Files are named by table, queue and day; the rest of the bucket are reports.",
            "*": "EMR Serverless looks for the log group in the list of all.",
        }.items():
            wildcard_because(role, resource, why)
        return role

    # ── When it runs ─────────────────────────────────────────────────────────
    def _schedule(self) -> None:
        role = iam.Role(
            self,
            "ScheduleRole",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": self.account}}
            ),
            description=f"Lets the schedule start runs of {self.name}",
        )
        for sid, action, resource, conditions in (
            ("Start", "emr-serverless:StartJobRun", self.application.attr_arn, None),
            (
                "Pass",
                "iam:PassRole",
                self._role.role_arn,
                {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
            ),
            ("SetAside", "sqs:SendMessage", self.undelivered.queue_arn, None),
        ):
            role.add_to_policy(
                iam.PolicyStatement(sid=sid, actions=[action], resources=[resource], conditions=conditions)
            )
        scheduler.CfnSchedule(
            self,
            "Schedule",
            name=self.name,
            description=f"osqueue {self._config.name}: the pipeline",
            schedule_expression=f"cron({MINUTE} * * * ? *)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=f"arn:{self.partition}:scheduler:::aws-sdk:emrserverless:startJobRun",
                role_arn=role.role_arn,
                input=self.to_json_string(self._request()),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=START_AGE_S_MAX, maximum_retry_attempts=START_RETRIES
                ),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(
                    arn=self.undelivered.queue_arn
                ),
            ),
        ).node.add_dependency(role)  # EventBridge Scheduler tries the role when the schedule is made

    def _request(self) -> dict[str, object]:
        """A StartJobRun, as the scheduler fills it in. A client token takes no colon, so it is not the time."""
        return {
            "ApplicationId": self.application.attr_application_id,
            "ClientToken": "<aws.scheduler.execution-id>",
            "ExecutionRoleArn": self._role.role_arn,
            "ExecutionTimeoutMinutes": RUN_MINUTES_MAX,
            "Name": self.name,
            "JobDriver": {
                "SparkSubmit": {
                    "EntryPoint": self._entry.s3_object_url,
                    "EntryPointArguments": [
                        *(f"s3://{self._names.bucket}", self._tables_address, self._report_address),
                        *("--at", "<aws.scheduler.scheduled-time>"),
                        *("--hours", str(self._pipeline.hours), "--days", str(self._pipeline.days)),
                    ],
                    "SparkSubmitParameters": self._settings,
                }
            },
        }

    def _queue(self) -> sqs.Queue:
        """Requests that EMR Serverless refused, with its reason."""
        queue = sqs.Queue(
            self,
            "NotStarted",
            queue_name=not_started(self._config),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        because(
            queue, "AwsSolutions-SQS3", "It is itself where the schedule puts what could not be delivered."
        )
        return queue

    # ── How runs end ─────────────────────────────────────────────────────────
    def _count_endings(self) -> None:
        """A rule for each kind of ending: EventBridge counts what it matches, and the log group keeps the events."""
        place = f"/aws/events/{self.name}"
        group = log_group(self, "Endings", place, self._config)
        group_arn = f"arn:{self.partition}:logs:{self.region}:{self.account}:log-group:{place}"
        leave = logs.CfnResourcePolicy(
            self,
            "EndingsPolicy",
            policy_name=f"{self.name}-endings",
            policy_document=self.to_json_string(
                {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": ["events.amazonaws.com", "delivery.logs.amazonaws.com"]},
                            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
                            "Resource": f"{group_arn}:*",
                        }
                    ],
                }
            ),
        )
        leave.node.add_dependency(group)
        for name, states in ENDINGS.items():
            rule = events.CfnRule(
                self,
                "".join(word.capitalize() for word in name.split("-")),
                name=rule_name(self._config, name),
                description=f"Runs of {self.name} that ended {' or '.join(states)}",
                event_pattern={
                    "source": ["aws.emr-serverless"],
                    "detail-type": ["EMR Serverless Job Run State Change"],
                    "detail": {"applicationId": [self.application.attr_application_id], "state": states},
                },
                targets=[events.CfnRule.TargetProperty(id="Endings", arn=group_arn)],
            )
            rule.node.add_dependency(leave)

    # ── What people need ─────────────────────────────────────────────────────
    @property
    def _tables_address(self) -> str:
        return f"s3://{self._tables.bucket_name}/{TABLES}"

    @property
    def _report_address(self) -> str:
        return f"s3://{self._tables.bucket_name}/{REPORT}"

    def _outputs(self) -> None:
        for name, value in {
            "ApplicationId": self.application.attr_application_id,
            "JobsRoleArn": self._role.role_arn,
            "TablesAddress": self._tables_address,
            "ReportAddress": self._report_address,
            "EntryPoint": self._entry.s3_object_url,
            "SubmitParameters": self._settings,
        }.items():
            CfnOutput(self, name, value=value)
        ssm.StringParameter(
            self,
            "ApplicationIdForOthers",
            parameter_name=self._names.parameter(APPLICATION_ID),
            string_value=self.application.attr_application_id,
            description=f"osqueue {self._config.name}: for the alarms on its pipeline",
        )


def application_name(config: Config) -> str:
    """The name of the application, of its runs and of their schedule."""
    return f"{config.prefix}-pipeline"


def not_started(config: Config) -> str:
    """The name of the queue of runs that could not be started."""
    return f"{application_name(config)}-not-started"


def rule_name(config: Config, name: str) -> str:
    """The name of a rule, by which EventBridge counts what it matched."""
    return f"{config.prefix}-{name}"


def _sizes(process: str) -> dict[str, str]:
    return {
        f"spark.{process}.cores": str(WORKER_CPUS),
        f"spark.{process}.memory": f"{WORKER_GB - OVERHEAD_GB}g",
        f"spark.{process}.memoryOverhead": f"{OVERHEAD_GB}g",
    }


def _key(asset: assets.Asset) -> str:
    return asset.bucket.arn_for_objects(asset.s3_object_key)
