"""The stack of the Spark pipeline, read from its template: what runs, when, as whom, and who hears of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from infra import bundle
from infra.config import Pipeline
from infra.pipeline import ENDINGS, MINUTE, REPORT, RUN_MINUTES_MAX, TABLES
from osqueue.objects.archive import ROOT as ARCHIVE
from osqueue.pipeline.engines import choice
from osqueue.pipeline.jobs import compact, metrics, report
from osqueue.pipeline.jobs import run as job
from osqueue.pipeline.stretch import Compacted

APPLICATION = "AWS::EMRServerless::Application"
PART = f"{ARCHIVE}queue=emails/date=2030-01-01/hour=00/00-000000000000-0123456789ab.jsonl.gz"
PARTITION = f"{TABLES}/jobs/queue=emails/date=2030-01-01"
ROWS = f"{PARTITION}/rows.parquet"

Wanted = tuple[str, str]  # action, resource


@pytest.fixture(scope="session")
def large(synthesise: Any) -> Any:
    """An environment that asks for more than the defaults."""
    asked = {"executors": 20, "hours": 12, "days": 31, "silent_hours": 5}
    alarms = {"emails": ["on-call@example.com"]}
    return synthesise(
        "big",
        {"big": {"pipeline": asked, "log_days": 90, "alarms": alarms, "protected": True}},
    )


@pytest.fixture
def request_of(policies: Any) -> Callable[[Any], dict[str, Any]]:
    """What a schedule asks EMR Serverless for."""

    def read(made: Any) -> dict[str, Any]:
        target = made.only("pipeline", "AWS::Scheduler::Schedule")["Target"]
        found: dict[str, Any] = json.loads(policies.plain(target["Input"]))
        return found

    return read


def settings_of(request: dict[str, Any]) -> dict[str, str]:
    words = request["JobDriver"]["SparkSubmit"]["SparkSubmitParameters"].split(" ")
    assert set(words[::2]) == {"--conf"}
    return dict(word.split("=", 1) for word in words[1::2])


# ── Whether ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ["dev", "prod"])
def test_an_environment_that_does_not_ask_for_a_pipeline_has_none(name: str, environments: Any) -> None:
    made = environments[name]
    assert "pipeline" not in made.templates
    assert "emr-serverless" not in json.dumps(made.templates)
    alarms = made.resources("operations", "AWS::CloudWatch::Alarm").values()
    assert [each["AlarmName"] for each in alarms if "pipeline" in each["AlarmName"]] == []


# ── The application ──────────────────────────────────────────────────────────
def test_the_application_runs_the_release_whose_spark_the_tests_run_on(staging: Any) -> None:
    import pyspark

    application = staging.only("pipeline", APPLICATION)
    assert (application["ReleaseLabel"], application["Type"]) == ("emr-spark-8.0.0", "SPARK")
    assert pyspark.__version__.startswith("4.0.")  # of that release; another one brings another Spark


def test_the_application_starts_for_a_run_and_stops_after_it(staging: Any) -> None:
    application = staging.only("pipeline", APPLICATION)
    assert application["AutoStartConfiguration"] == {"Enabled": True}
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 5}
    assert "InitialCapacity" not in application  # kept warm, workers would cost money around the clock


def test_runs_never_overlap(staging: Any, request_of: Any) -> None:
    runs = staging.only("pipeline", APPLICATION)["SchedulerConfiguration"]
    assert runs["MaxConcurrentRuns"] == 1
    assert 15 <= runs["QueueTimeoutMinutes"] <= 720  # what EMR Serverless takes
    assert request_of(staging)["ExecutionTimeoutMinutes"] == RUN_MINUTES_MAX < 60


@pytest.mark.parametrize("which", ["staging", "large"])
def test_the_capacity_is_that_of_one_run_with_all_its_executors(
    which: str, request: pytest.FixtureRequest, request_of: Any
) -> None:
    made = request.getfixturevalue(which)
    settings = settings_of(request_of(made))
    executors = int(settings["spark.dynamicAllocation.maxExecutors"])
    assert executors == made.config.pipeline.executors

    def of_both(name: str) -> int:
        driver, executor = (
            int(settings[f"spark.{each}.{name}"].removesuffix("g")) for each in ("driver", "executor")
        )
        return driver + executors * executor

    capacity = made.only("pipeline", APPLICATION)["MaximumCapacity"]
    assert capacity["Cpu"] == f"{of_both('cores')} vCPU"
    assert capacity["Memory"] == f"{of_both('memory') + of_both('memoryOverhead')} GB"
    assert capacity["Disk"] == f"{(1 + executors) * 20} GB"


def test_nothing_that_changes_with_the_code_is_in_the_application(staging: Any) -> None:
    """It can be changed only while it is stopped, so that a deployment during a run would fail."""
    application = json.dumps(staging.only("pipeline", APPLICATION))
    assert "RuntimeConfiguration" not in application
    assert "assets" not in application


# ── A run ────────────────────────────────────────────────────────────────────
def test_a_run_starts_every_hour_after_the_reaper_has_archived(staging: Any) -> None:
    schedule = staging.only("pipeline", "AWS::Scheduler::Schedule")
    assert schedule["ScheduleExpression"] == "cron(10 * * * ? *)"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["Target"]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 900, "MaximumRetryAttempts": 3}


def test_a_run_is_asked_for_as_emr_serverless_takes_it(staging: Any, request_of: Any, policies: Any) -> None:
    target = staging.only("pipeline", "AWS::Scheduler::Schedule")["Target"]
    assert policies.plain(target["Arn"]).endswith(":scheduler:::aws-sdk:emrserverless:startJobRun")
    asked = request_of(staging)
    assert set(asked) == {
        *("ApplicationId", "ClientToken", "ExecutionRoleArn", "ExecutionTimeoutMinutes", "JobDriver", "Name")
    }
    assert asked["ClientToken"] == "<aws.scheduler.execution-id>"  # the time has colons, which are refused
    assert asked["Name"] == "osqueue-staging-pipeline"


def test_the_names_of_the_request_are_those_of_the_api() -> None:
    """A universal target takes the API's names with capitals; botocore knows them."""
    import botocore.session

    shape = botocore.session.get_session().get_service_model("emr-serverless").operation_model("StartJobRun")
    known = {name[0].upper() + name[1:] for name in shape.input_shape.members}
    assert {"ApplicationId", "ClientToken", "ExecutionRoleArn", "ExecutionTimeoutMinutes"} <= known
    assert {"JobDriver", "Name"} <= known
    submit = shape.input_shape.members["jobDriver"].members["sparkSubmit"].members
    assert {name[0].upper() + name[1:] for name in submit} == {
        "EntryPoint",
        "EntryPointArguments",
        "SparkSubmitParameters",
    }
    assert re.fullmatch(shape.input_shape.members["clientToken"].metadata["pattern"], "d32c5kddcf5bb8c3")
    assert not re.fullmatch(
        shape.input_shape.members["clientToken"].metadata["pattern"], "2030-01-01T00:10:00Z"
    )


@pytest.mark.parametrize("which", ["staging", "large"])
def test_the_job_takes_the_arguments_of_the_schedule(
    which: str, request: pytest.FixtureRequest, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = request.getfixturevalue(which)
    arguments = request_of(made)["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
    given: list[job.PipelineRun] = []

    def noted(spark: object, config: job.PipelineRun, progress: object) -> job.PipelineResult:
        given.append(config)
        return job.PipelineResult(
            Compacted(), metrics.MetricsResult(), report.ReviewResult("", 0, 0, 0, "", "")
        )

    monkeypatch.setattr(choice, "chosen", lambda asked, read: nullcontext())
    monkeypatch.setattr(job, "run", noted)
    moment = {"<aws.scheduler.scheduled-time>": "2030-01-01T00:10:00Z"}  # as the scheduler writes it
    assert job.main([moment.get(each, each) for each in arguments]) == 0
    (config,) = given
    assert config.at is not None
    assert config.at.isoformat() == "2030-01-01T00:10:00+00:00"
    assert (config.hours, config.days) == (made.config.pipeline.hours, made.config.pipeline.days)
    assert config.store == f"s3://{made.config.prefix}-<AWS::AccountId>-<AWS::Region>-an"
    assert re.fullmatch(rf"s3://<Tables\w+>/{TABLES}", config.tables)
    assert re.fullmatch(rf"s3://<Tables\w+>/{REPORT}", config.out)


def test_spark_unpacks_the_archive_where_python_looks(staging: Any, request_of: Any) -> None:
    settings = settings_of(request_of(staging))
    archive, _, folder = settings["spark.archives"].partition("#")
    assert archive.endswith((".tgz", ".tar.gz"))  # Spark leaves anything else as it is
    for process in ("spark.emr-serverless.driverEnv", "spark.executorEnv"):
        assert settings[f"{process}.PYTHONPATH"] == f"./{folder}"
        assert settings[f"{process}.PYSPARK_PYTHON"] == f"python{bundle.PYTHON}"
        assert settings[f"{process}.AWS_DEFAULT_REGION"] == "<AWS::Region>"
    assert settings["spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON"] == f"python{bundle.PYTHON}"


def test_what_is_uploaded_is_what_a_run_is_told_to_fetch(
    staging: Any, request_of: Any, empty_jobs: Any
) -> None:
    manifest = json.loads((staging.folder / "osqueue-staging-pipeline.assets.json").read_text("utf-8"))
    uploaded = {
        place["objectKey"]: (staging.folder / each["source"]["path"]).read_bytes()
        for each in manifest["files"].values()
        for place in each["destinations"].values()
    }
    entry = request_of(staging)["JobDriver"]["SparkSubmit"]["EntryPoint"].rpartition("/")[2]
    archive = settings_of(request_of(staging))["spark.archives"].partition("#")[0].rpartition("/")[2]
    assert uploaded[entry] == bundle.ENTRY.read_bytes()
    assert uploaded[archive] == empty_jobs.read_bytes()


def test_the_architecture_is_the_one_that_the_archive_is_built_for(staging: Any) -> None:
    names = {"ARM64": "aarch64", "X86_64": "x86_64"}
    architecture = names[staging.only("pipeline", APPLICATION)["Architecture"]]
    assert bundle.EMR.system is not None
    assert bundle.EMR.system.startswith(architecture)


# ── The bucket ───────────────────────────────────────────────────────────────
def test_the_tables_have_a_bucket_of_their_own_private_and_encrypted(staging: Any) -> None:
    bucket = staging.only("pipeline", "AWS::S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    (whole,) = [
        each
        for each in staging.templates["pipeline"]["Resources"].values()
        if each["Type"] == "AWS::S3::Bucket"
    ]
    assert (whole["DeletionPolicy"], whole["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_tables_never_expire(staging: Any) -> None:
    (rule,) = staging.only("pipeline", "AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert [name for name in rule if "Expiration" in name or "Transition" in name] == []


@pytest.mark.parametrize("context", [{"aws:SecureTransport": "false"}, {"s3:TlsVersion": "1.1"}])
def test_nobody_reads_tables_without_good_tls(context: dict[str, str], staging: Any, policies: Any) -> None:
    statements = staging.only("pipeline", "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    everything = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    key = f"{policies.TABLES}/{ROWS}"
    assert policies.allowed([everything, *statements], "s3:GetObject", key)
    assert not policies.allowed([everything, *statements], "s3:GetObject", key, context)


# ── Who may do what ──────────────────────────────────────────────────────────
def looked_for(bucket: str, path: str) -> Iterator[Wanted]:
    """By the file system that Spark reads tables with: a path is an object, else a folder, which is a listing."""
    yield "s3:GetObject", f"{bucket}/{path}"
    yield "s3:ListBucket", bucket


def replaced(bucket: str, key: str) -> Iterator[Wanted]:
    """By the library: what is there is read, and then written on that condition, for which S3 wants both rights."""
    yield "s3:ListBucket", bucket  # an object that is not there is told as such to whom may list
    yield "s3:GetObject", f"{bucket}/{key}"
    yield "s3:PutObject", f"{bucket}/{key}"


def asked_by_jobs(policies: Any, code: list[str], group: str) -> Iterator[Wanted]:
    """All of a run."""
    store, own = policies.BUCKET, policies.TABLES
    yield from (("s3:GetObject", each) for each in code)
    yield "s3:ListBucket", store
    yield "s3:GetObject", f"{store}/{PART}"
    yield from replaced(own, ROWS)
    yield "s3:DeleteObject", f"{own}/{ROWS}"
    for path in (TABLES, f"{TABLES}/jobs", PARTITION, ROWS):
        yield from looked_for(own, path)
    yield from replaced(own, REPORT)
    yield "logs:DescribeLogGroups", "*"
    for action in ("CreateLogStream", "DescribeLogStreams", "PutLogEvents"):
        yield f"logs:{action}", group


def statements_of(made: Any, title: str) -> list[dict[str, Any]]:
    found = made.resources("pipeline", "AWS::IAM::Policy").items()
    (policy,) = [each for name, each in found if name.startswith(title)]
    return list(policy["PolicyDocument"]["Statement"])


@pytest.fixture
def asked(staging: Any, policies: Any) -> list[Wanted]:
    by_sid = {each["Sid"]: each for each in statements_of(staging, "JobsRole")}
    code = [policies.plain(each) for each in by_sid["ReadCode"]["Resource"]]
    assert len(code) == 2
    assert all("*" not in each for each in code)
    return list(asked_by_jobs(policies, code, policies.plain(by_sid["Log"]["Resource"])))


def test_the_jobs_role_is_enough_for_a_run(asked: list[Wanted], staging: Any, policies: Any) -> None:
    statements = statements_of(staging, "JobsRole")
    store = staging.only("storage", "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    own = staging.only("pipeline", "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    refused = [each for each in asked if not policies.allowed([*statements, *store, *own], *each)]
    assert refused == []


def test_the_jobs_role_allows_nothing_that_a_run_does_not_need(
    asked: list[Wanted], staging: Any, policies: Any
) -> None:
    granted, used = set(), set()
    for each in statements_of(staging, "JobsRole"):
        for action in policies.listed(each["Action"]):
            for pattern in map(policies.plain, policies.listed(each["Resource"])):
                granted.add((action, pattern))
                if any(action == one and policies.matches(pattern, resource) for one, resource in asked):
                    used.add((action, pattern))
    assert granted - used == set()
    assert [action for action, _ in granted if "*" in action] == []


@pytest.mark.parametrize(
    "wanted",
    [
        ("s3:PutObject", PART),
        ("s3:DeleteObject", PART),
        ("s3:GetObject", "3f9a/emails/0/head"),
        ("s3:PutObject", "3f9a/emails/0/head"),
        ("s3:GetObject", "3f9a/emails/0/bodies/0001-aa-1"),
        ("s3:GetObject", "ids/emails/00"),
        ("s3:GetObject", "backup/emails/00/2030-01-01T00"),
        ("s3:DeleteObject", "intents/3f9a/emails/0/000000000001.e.1.000000000000000b.a.1."),
    ],
)
def test_the_jobs_do_not_touch_queues(wanted: Wanted, staging: Any, policies: Any) -> None:
    action, key = wanted
    assert not policies.allowed(statements_of(staging, "JobsRole"), action, f"{policies.BUCKET}/{key}")


def test_only_emr_serverless_takes_the_jobs_role(staging: Any) -> None:
    roles = staging.resources("pipeline", "AWS::IAM::Role").items()
    trusted = {
        re.sub(r"[0-9A-F]{8}$", "", name): each["AssumeRolePolicyDocument"]["Statement"]
        for name, each in roles
    }
    services = {name: found[0]["Principal"]["Service"] for name, found in trusted.items()}
    assert services == {
        "JobsRole": "emr-serverless.amazonaws.com",
        "ScheduleRole": "scheduler.amazonaws.com",
    }
    for (statement,) in trusted.values():
        assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    assert all("ManagedPolicyArns" not in each for _, each in roles)


def test_the_schedule_starts_runs_of_this_application_as_this_role_and_no_more(
    staging: Any, policies: Any
) -> None:
    statements = statements_of(staging, "ScheduleRole")
    found = {each["Action"]: policies.plain(each["Resource"]) for each in statements}
    assert set(found) == {"emr-serverless:StartJobRun", "iam:PassRole", "sqs:SendMessage"}
    assert all("*" not in resource for resource in found.values())
    assert "Application" in found["emr-serverless:StartJobRun"]
    assert "JobsRole" in found["iam:PassRole"]
    passed = {
        service: policies.allowed(
            statements, "iam:PassRole", found["iam:PassRole"], {"iam:PassedToService": service}
        )
        for service in ("emr-serverless.amazonaws.com", "lambda.amazonaws.com")
    }
    assert passed == {"emr-serverless.amazonaws.com": True, "lambda.amazonaws.com": False}


def test_a_request_that_was_refused_is_kept_where_the_schedule_may_put_it(
    staging: Any, policies: Any
) -> None:
    ((name, queue),) = staging.resources("pipeline", "AWS::SQS::Queue").items()
    assert (queue["QueueName"], queue["SqsManagedSseEnabled"]) == (
        "osqueue-staging-pipeline-not-started",
        True,
    )
    target = staging.only("pipeline", "AWS::Scheduler::Schedule")["Target"]
    assert target["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": [name, "Arn"]}
    (send,) = [each for each in statements_of(staging, "ScheduleRole") if each["Action"] == "sqs:SendMessage"]
    assert send["Resource"] == {"Fn::GetAtt": [name, "Arn"]}


# ── Who hears of it ──────────────────────────────────────────────────────────
def alarm_of(made: Any, name: str) -> dict[str, Any]:
    alarms = made.resources("operations", "AWS::CloudWatch::Alarm").values()
    (found,) = [each for each in alarms if each["AlarmName"] == f"{made.config.prefix}-{name}"]
    return dict(found)


def watched_rule(alarm: dict[str, Any]) -> tuple[str, str]:
    """The state of runs that an alarm counts, by the rule it names: metric and rule."""
    (metric,) = (
        [alarm]
        if "MetricName" in alarm
        else [each["MetricStat"]["Metric"] for each in alarm["Metrics"] if "MetricStat" in each]
    )
    assert metric["Namespace"] == "AWS/Events"
    (dimension,) = metric["Dimensions"]
    assert dimension["Name"] == "RuleName"
    return metric["MetricName"], dimension["Value"]


@pytest.mark.parametrize(
    ("alarm", "states"), [("pipeline-failed", {"FAILED", "CANCELLED"}), ("pipeline-not-run", {"SUCCESS"})]
)
def test_alarms_about_endings_count_what_their_rules_match(
    alarm: str, states: set[str], staging: Any
) -> None:
    metric, name = watched_rule(alarm_of(staging, alarm))
    assert metric == "MatchedEvents"
    rules = {each["Name"]: each for each in staging.resources("pipeline", "AWS::Events::Rule").values()}
    pattern = rules[name]["EventPattern"]
    assert pattern["source"] == ["aws.emr-serverless"]
    assert pattern["detail-type"] == ["EMR Serverless Job Run State Change"]
    assert set(pattern["detail"]["state"]) == states
    assert pattern["detail"]["applicationId"] == [{"Fn::GetAtt": ["Application", "ApplicationId"]}]


def test_every_state_in_which_a_run_ends_is_counted_once() -> None:
    """Of botocore's; a run in any other state goes on."""
    import botocore.session

    shapes = botocore.session.get_session().get_service_model("emr-serverless")
    known = set(shapes.shape_for("JobRunState").enum)
    going_on = {"SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING", "QUEUED"}
    counted = [state for states in ENDINGS.values() for state in states]
    assert sorted(counted) == sorted(known - going_on)


@pytest.mark.parametrize("which", ["staging", "large"])
def test_silence_for_some_hours_is_told(which: str, request: pytest.FixtureRequest) -> None:
    made = request.getfixturevalue(which)
    alarm = alarm_of(made, "pipeline-not-run")
    assert alarm["TreatMissingData"] == "breaching"
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")
    assert alarm["EvaluationPeriods"] == made.config.pipeline.silent_hours


def test_a_full_application_is_told_by_the_metrics_of_its_name(staging: Any) -> None:
    alarm = alarm_of(staging, "pipeline-capacity")
    stats = [each["MetricStat"] for each in alarm["Metrics"] if "MetricStat" in each]
    assert {each["Metric"]["MetricName"] for each in stats} == {"CPUAllocated", "MaxCPUAllowed"}
    for each in stats:
        assert each["Metric"]["Namespace"] == "AWS/EMRServerless"
        dimensions = {one["Name"]: one["Value"] for one in each["Metric"]["Dimensions"]}
        assert set(dimensions) == {"ApplicationId", "ApplicationName"}
        assert dimensions["ApplicationName"] == staging.only("pipeline", APPLICATION)["Name"]
    assert alarm["TreatMissingData"] == "notBreaching"  # while it is stopped there is nothing


def test_what_runs_say_and_how_they_ended_is_kept_as_long_as_other_logs(large: Any, policies: Any) -> None:
    groups = large.resources("pipeline", "AWS::Logs::LogGroup").values()
    assert {each["LogGroupName"]: each["RetentionInDays"] for each in groups} == {
        "/aws/emr-serverless/osqueue-big-pipeline": 90,
        "/aws/events/osqueue-big-pipeline": 90,
    }
    policy = json.loads(policies.plain(large.only("pipeline", "AWS::Logs::ResourcePolicy")["PolicyDocument"]))
    (statement,) = policy["Statement"]
    for rule in large.resources("pipeline", "AWS::Events::Rule").values():
        (target,) = rule["Targets"]
        assert policies.matches(statement["Resource"], f"{policies.plain(target['Arn'])}:a-stream")


# ── The whole ────────────────────────────────────────────────────────────────
def test_the_stack_tells_what_a_run_by_hand_needs(staging: Any) -> None:
    outputs = {
        name for name, each in staging.templates["pipeline"]["Outputs"].items() if "Export" not in each
    }
    assert outputs == {
        *("ApplicationId", "JobsRoleArn", "TablesAddress", "ReportAddress", "EntryPoint", "SubmitParameters")
    }


def test_a_protected_environment_protects_it(large: Any) -> None:
    manifest = json.loads((large.folder / "manifest.json").read_text(encoding="utf-8"))
    stack = manifest["artifacts"]["osqueue-big-pipeline"]
    assert stack["properties"]["terminationProtection"] is True


def test_what_it_may_be_asked_for_is_what_the_configuration_says() -> None:
    assert {field.name for field in msgspec.structs.fields(Pipeline)} == {
        *("executors", "hours", "days", "silent_hours")
    }
    assert Pipeline().hours > compact.LOOK_BACK_HOURS
    assert MINUTE + RUN_MINUTES_MAX <= 60
