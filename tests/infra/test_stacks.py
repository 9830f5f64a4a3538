"""The templates say what the tables say, and nothing that nobody asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk.assertions import Match, Template

from osqueue.aws_calls import WAKES_VARIABLE
from osqueue.aws_lambda.handler import SCHEDULE
from osqueue.contract import functions as table
from osqueue.contract.functions import FUNCTIONS, deployed_name
from osqueue.contract.operations import ROUTES
from osqueue.objects.layout import PACERS, root_of, root_of_pacer

ENVIRONMENTS = ("dev", "staging", "prod")
HEAD = "3f9a/emails/0/head"
CONDITIONAL = [{"s3:if-match": '"etag"'}, {"s3:if-none-match": "*"}]
EVERYBODY = {
    "Effect": "Allow",
    "Action": "s3:*",
    "Resource": "*",
}  # the best that a caller's own policy can be


@pytest.fixture
def refused(prod: Any, policies: Any) -> Callable[..., bool]:
    """Does the bucket's policy refuse a request of somebody whose own policy lets him do everything?"""
    statements = prod.only("storage", "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]

    def ask(action: str, key: str, context: dict[str, str] | None = None) -> bool:
        return not policies.allowed([EVERYBODY, *statements], action, f"{policies.BUCKET}/{key}", context)

    return ask


# ── Storage ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_bucket_is_private_encrypted_and_not_versioned(name: str, environments: Any) -> None:
    template = Template.from_json(environments[name].templates["storage"])
    template.resource_count_is("AWS::S3::Bucket", 1)
    template.has_resource_properties(
        "AWS::S3::Bucket",
        {
            "PublicAccessBlockConfiguration": {
                "BlockPublicAcls": True,
                "BlockPublicPolicy": True,
                "IgnorePublicAcls": True,
                "RestrictPublicBuckets": True,
            },
            "BucketEncryption": Match.object_like(
                {
                    "ServerSideEncryptionConfiguration": [
                        {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
                    ]
                }
            ),
            "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
            "VersioningConfiguration": Match.absent(),
        },
    )


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_bucket_outlives_its_stack(name: str, environments: Any) -> None:
    Template.from_json(environments[name].templates["storage"]).has_resource(
        "AWS::S3::Bucket", {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
    )


@pytest.mark.parametrize("context", [{"aws:SecureTransport": "false"}, {"s3:TlsVersion": "1.1"}])
def test_nobody_reads_without_good_tls(context: dict[str, str], refused: Callable[..., bool]) -> None:
    assert refused("s3:GetObject", HEAD, context)
    assert not refused("s3:GetObject", HEAD)


def test_a_head_is_written_on_a_condition_only(refused: Callable[..., bool]) -> None:
    assert refused("s3:PutObject", HEAD)
    assert [refused("s3:PutObject", HEAD, each) for each in CONDITIONAL] == [False, False]


@pytest.mark.parametrize("queue", ["emails", "head", "a" * 64, "0"])
@pytest.mark.parametrize("shard", [0, 7, 255])
def test_the_heads_of_all_queues_and_shards_are_meant(
    queue: str, shard: int, refused: Callable[..., bool]
) -> None:
    assert refused("s3:PutObject", f"{root_of(queue, shard)}head")
    assert refused("s3:DeleteObject", f"{root_of(queue, shard)}head", {"s3:if-match": '"etag"'})


def test_nobody_deletes_a_head_or_a_version_of_it(refused: Callable[..., bool]) -> None:
    assert refused("s3:DeleteObject", HEAD)
    assert refused("s3:DeleteObjectVersion", HEAD)


def test_the_head_of_a_pacer_is_kept_like_a_queues(refused: Callable[..., bool]) -> None:
    key = root_of_pacer("stripe") + "head"
    assert refused("s3:PutObject", key)
    assert refused("s3:DeleteObject", key)
    assert not refused("s3:PutObject", root_of_pacer("stripe") + "clock")
    assert not refused("s3:PutObject", f"{PACERS}head")


@pytest.mark.parametrize(
    "key",
    [
        "3f9a/emails/0/clock",
        "intents/3f9a/emails/0/000000000001.e.1.000000000000000b.a.1.",
        "3f9a/emails/0/segments/0001-aa-1",
        "3f9a/head/0/bodies/0001-aa-1",
        "3f9a/head/0/finished/0001-aa-1",
        "queues/head",
        "ids/head/head",
        "elections/head",
        "elections/a/b/head",
        "backup/head/00/2030-01-01T00",
        "archive/queue=head/date=2030-01-01/hour=00/head",
        "doctor/a/b/head",
    ],
)
def test_other_objects_are_not_taken_for_heads(key: str, refused: Callable[..., bool]) -> None:
    assert not refused("s3:PutObject", key)
    assert not refused("s3:DeleteObject", key)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_lifecycle_rules_expire_announcements_alone_and_move_the_archive_alone(
    name: str, environments: Any
) -> None:
    rules = environments[name].only("storage", "AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    verbs = {"AbortIncompleteMultipartUpload", "Transitions", "ExpirationInDays"}
    about = {"Id", "Status", "Prefix"}
    assert [set(rule) - verbs - about for rule in rules] == [set()] * len(rules)
    assert [rule["Prefix"] for rule in rules if "Transitions" in rule] == ["archive/"]
    expiring = {rule.get("Prefix"): rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule}
    assert expiring == {"intents/": 7}
    # Both can be read at once, as history and purging need.
    kinds = {move["StorageClass"] for rule in rules for move in rule.get("Transitions", ())}
    assert kinds == {"STANDARD_IA", "GLACIER_IR"}


def test_an_archive_that_stays_where_it_is_has_no_rule(synthesise: Any) -> None:
    stay = {"infrequent_days": None, "glacier_days": None}
    rules = synthesise("x", {"x": {"archive": stay}}).only("storage", "AWS::S3::Bucket")[
        "LifecycleConfiguration"
    ]
    assert [rule["Id"] for rule in rules["Rules"]] == ["end-abandoned-uploads", "drop-old-announcements"]


# ── Functions ────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_functions_are_those_of_the_table(name: str, environments: Any) -> None:
    found = environments[name].resources("functions", "AWS::Lambda::Function").values()
    said = {each["FunctionName"]: (each["Timeout"], each["MemorySize"], each["Handler"]) for each in found}
    wanted = {
        deployed_name(f"osqueue-{name}", each.name): (each.timeout_s, each.memory_mb, table.HANDLER)
        for each in FUNCTIONS
    }
    assert said == wanted
    assert {(each["Runtime"], *each["Architectures"]) for each in found} == {("python3.14", "arm64")}
    assert all(len(each["Layers"]) == 1 for each in found)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_environment_variables_are_those_of_the_table(
    name: str, environments: Any, policies: Any
) -> None:
    for each in environments[name].resources("functions", "AWS::Lambda::Function").values():
        variables = each["Environment"]["Variables"]
        assert set(variables) == {
            table.STORE,
            table.EVENT_BUS,
            table.SERVICE,
            table.LOG_LEVEL,
            WAKES_VARIABLE,
        }
        bucket = f"osqueue-{name}-<AWS::AccountId>-<AWS::Region>-an"
        assert policies.plain(variables[table.STORE]) == f"s3://{bucket}"
        assert variables[table.SERVICE] == f"osqueue-{name}"
        logging = each["LoggingConfig"]  # Lambda itself holds nothing back: it would hold back metrics
        assert (logging["LogFormat"], logging["ApplicationLogLevel"]) == ("JSON", "DEBUG")


def test_a_window_reaches_the_functions(synthesise: Any) -> None:
    made = synthesise("x", {"x": {"window_s": 2.5}})
    for each in made.resources("functions", "AWS::Lambda::Function").values():
        assert each["Environment"]["Variables"][table.WINDOW] == "2.5"


def test_without_a_bus_no_function_is_told_of_one(synthesise: Any) -> None:
    made = synthesise("x", {"x": {"events": False}})
    assert "bus" not in made.templates
    assert "events:PutEvents" not in json.dumps(made.templates)
    for each in made.resources("functions", "AWS::Lambda::Function").values():
        assert table.EVENT_BUS not in each["Environment"]["Variables"]


def test_concurrency_is_reserved_where_the_configuration_says_so(synthesise: Any) -> None:
    made = synthesise("x", {"x": {"concurrency": {"enqueue": 40, "reaper": 2}}})
    found = made.resources("functions", "AWS::Lambda::Function").values()
    said = {each["FunctionName"]: each.get("ReservedConcurrentExecutions") for each in found}
    assert {name: number for name, number in said.items() if number is not None} == {
        "osqueue-x-enqueue": 40,
        "osqueue-x-reaper": 2,
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_log_is_kept_for_as_long_as_the_configuration_says(name: str, environments: Any) -> None:
    made = environments[name]
    groups = [
        *made.resources("functions", "AWS::Logs::LogGroup").values(),
        *made.resources("api", "AWS::Logs::LogGroup").values(),
    ]
    assert len(groups) == len(FUNCTIONS) + 1
    assert {each["RetentionInDays"] for each in groups} == {made.config.log_days}


# ── The API ──────────────────────────────────────────────────────────────────
def target_of(made: Any, route: dict[str, Any], policies: Any) -> str:
    """The name of the function that a route leads to."""
    integration = made.resources("api", "AWS::ApiGatewayV2::Integration")[
        route["Target"]["Fn::Join"][1][1]["Ref"]
    ]
    return str(policies.plain(integration["IntegrationUri"]).rpartition(":function:")[2])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_routes_are_those_of_the_table(name: str, environments: Any, policies: Any) -> None:
    made = environments[name]
    routes = made.resources("api", "AWS::ApiGatewayV2::Route").values()
    said = {each["RouteKey"]: (each["OperationName"], target_of(made, each, policies)) for each in routes}
    assert said == {
        f"{route.method} {route.path}": (route.name, deployed_name(f"osqueue-{name}", route.function))
        for route in ROUTES
    }
    assert len(routes) == len(ROUTES)


@pytest.mark.parametrize("scopes", [None, "osqueue/"])
def test_functions_are_told_what_scopes_begin_with(scopes: str | None, synthesise: Any) -> None:
    jwt = {
        "issuer": "https://id.example/pool",
        "audience": ["jobs"],
        **({"scopes": scopes} if scopes else {}),
    }
    made = Template.from_json(synthesise("x", {"x": {"jwt": jwt}}).templates["functions"])
    for each in made.find_resources("AWS::Lambda::Function").values():
        assert each["Properties"]["Environment"]["Variables"].get(table.SCOPES) == scopes


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_route_asks_for_a_signature(name: str, environments: Any) -> None:
    routes = environments[name].resources("api", "AWS::ApiGatewayV2::Route").values()
    assert {each["AuthorizationType"] for each in routes} == {"AWS_IAM"}


def test_with_an_issuer_every_route_asks_for_its_token(synthesise: Any) -> None:
    jwt = {"issuer": "https://id.example/pool", "audience": ["jobs", "admin"]}
    made = synthesise("x", {"x": {"jwt": jwt}})
    template = Template.from_json(made.templates["api"])
    template.has_resource_properties(
        "AWS::ApiGatewayV2::Authorizer",
        {
            "AuthorizerType": "JWT",
            "IdentitySource": ["$request.header.Authorization"],
            "JwtConfiguration": {"Issuer": "https://id.example/pool", "Audience": ["jobs", "admin"]},
        },
    )
    (authorizer,) = template.find_resources("AWS::ApiGatewayV2::Authorizer")
    template.all_resources_properties(
        "AWS::ApiGatewayV2::Route", {"AuthorizationType": "JWT", "AuthorizerId": {"Ref": authorizer}}
    )


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_function_has_one_integration_and_one_leave_to_be_called(name: str, environments: Any) -> None:
    made = environments[name]
    integrations = made.resources("api", "AWS::ApiGatewayV2::Integration").values()
    called = {route.function for route in ROUTES}
    assert len(integrations) == len(called)
    assert {(each["IntegrationType"], each["PayloadFormatVersion"]) for each in integrations} == {
        ("AWS_PROXY", "2.0")
    }
    leaves = made.resources("api", "AWS::Lambda::Permission").values()
    assert len(leaves) == len(called)
    assert {each["Principal"] for each in leaves} == {"apigateway.amazonaws.com"}
    # Another account's API must not call ours.
    assert all({"Ref": "Api"} in each["SourceArn"]["Fn::Join"][1] for each in leaves)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_function_of_the_api_ends_before_the_gateway_gives_up(name: str, environments: Any) -> None:
    made = environments[name]
    (limit,) = {
        each["TimeoutInMillis"] for each in made.resources("api", "AWS::ApiGatewayV2::Integration").values()
    }
    found = made.resources("functions", "AWS::Lambda::Function").values()
    waited = [each["Timeout"] for each in found if not each["FunctionName"].endswith("-reaper")]
    assert max(waited) * 1_000 < limit


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_stage_is_throttled_and_logs_every_request_without_its_content(
    name: str, environments: Any
) -> None:
    made = environments[name]
    stage = made.only("api", "AWS::ApiGatewayV2::Stage")
    throttle = made.config.throttle
    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == throttle.rate
    assert stage["DefaultRouteSettings"]["ThrottlingBurstLimit"] == throttle.burst
    line = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"$context.requestId", "$context.routeKey", "$context.status"} <= set(line.values())
    assert all(value.startswith("$context.") for value in line.values())
    assert not re.search("body|header|query", json.dumps(line), re.IGNORECASE)


# ── The schedule and the bus ─────────────────────────────────────────────────
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_schedule_invokes_the_reaper_every_minute(name: str, environments: Any, policies: Any) -> None:
    made = environments[name]
    schedule = made.only("schedule", "AWS::Scheduler::Schedule")
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert policies.plain(schedule["Target"]["Arn"]).endswith(f":function:osqueue-{name}-reaper")
    assert json.loads(schedule["Target"]["Input"]) == {
        "source": SCHEDULE,
        "scheduled_at": "<aws.scheduler.scheduled-time>",
    }
    assert schedule["Target"]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 1}


@pytest.mark.parametrize("stack", ["schedule", "pipeline"])
def test_a_schedule_is_made_after_what_its_role_may_do(stack: str, staging: Any) -> None:
    made = staging.templates[stack]["Resources"]
    (schedule,) = [each for each in made.values() if each["Type"] == "AWS::Scheduler::Schedule"]
    policies = {name for name in staging.resources(stack, "AWS::IAM::Policy") if "Schedule" in name}
    assert len(policies) == 1
    assert policies <= set(schedule["DependsOn"])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_stack_imports_what_another_one_exports(name: str, environments: Any) -> None:
    """An export cannot change for as long as somebody imports it: so the functions' stack could not, either."""
    for template in environments[name].templates.values():
        assert not re.search(r"Fn::ImportValue|Fn::GetStackOutput", json.dumps(template))
        assert [each for each in template.get("Outputs", {}).values() if "Export" in each] == []


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_a_stack_looks_up_in_ssm_one_before_it_has_left_there(name: str, environments: Any) -> None:
    made = environments[name]
    left = {
        each["Name"]: stack
        for stack in made.templates
        for each in made.resources(stack, "AWS::SSM::Parameter").values()
    }
    manifest = json.loads((made.folder / "manifest.json").read_text(encoding="utf-8"))["artifacts"]
    for stack, template in made.templates.items():
        for each in template.get("Parameters", {}).values():
            if each["Type"] == "AWS::SSM::Parameter::Value<String>" and each["Default"].startswith(
                "/osqueue"
            ):
                needed = f"{made.config.prefix}-{left[each['Default']]}"
                assert needed in manifest[f"{made.config.prefix}-{stack}"]["dependencies"]


def test_logs_of_a_protected_environment_outlive_their_stack(dev: Any, prod: Any, synthesise: Any) -> None:
    guarded = {"pipeline": {}, "protected": True, "alarms": {"emails": ["ada@example.com"]}}
    for made, policy in ((dev, "Delete"), (prod, "Retain"), (synthesise("x", {"x": guarded}), "Retain")):
        groups = [
            each
            for template in made.templates.values()
            for each in template["Resources"].values()
            if each["Type"] == "AWS::Logs::LogGroup"
        ]
        assert {each["DeletionPolicy"] for each in groups} == {policy}
        assert {each["UpdateReplacePolicy"] for each in groups} == {policy}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_version_of_the_layer_stays_for_whoever_uses_it(name: str, environments: Any) -> None:
    Template.from_json(environments[name].templates["functions"]).has_resource(
        "AWS::Lambda::LayerVersion", {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
    )


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_bucket_has_a_name_that_only_its_account_can_take(
    name: str, environments: Any, policies: Any
) -> None:
    bucket = environments[name].only("storage", "AWS::S3::Bucket")
    assert bucket["BucketNamespace"] == "account-regional"
    assert policies.plain(bucket["BucketName"]) == f"osqueue-{name}-<AWS::AccountId>-<AWS::Region>-an"


def test_a_pass_that_failed_is_not_repeated_by_lambda_as_well(prod: Any) -> None:
    config = prod.only("functions", "AWS::Lambda::EventInvokeConfig")
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (0, 60)


def test_the_bus_keeps_what_it_was_told_where_that_is_asked_for(dev: Any, prod: Any) -> None:
    assert dev.resources("bus", "AWS::Events::Archive") == {}
    assert prod.only("bus", "AWS::Events::Archive")["RetentionDays"] == prod.config.events_archive_days
    assert prod.only("bus", "AWS::Events::EventBus")["Name"] == "osqueue-prod"


# ── The whole ────────────────────────────────────────────────────────────────
def test_protected_stacks_cannot_be_deleted_by_accident(environments: Any) -> None:
    stacks_of = {"dev": 6, "staging": 7, "prod": 6}
    for name, protected in {"dev": False, "staging": False, "prod": True}.items():
        manifest = json.loads((environments[name].folder / "manifest.json").read_text(encoding="utf-8"))
        stacks = [
            each for each in manifest["artifacts"].values() if each["type"] == "aws:cloudformation:stack"
        ]
        assert len(stacks) == stacks_of[name]
        assert {each["properties"].get("terminationProtection", False) for each in stacks} == {protected}


def test_cfn_lint_has_nothing_to_say(environments: Any, lint: Callable[..., list[str]]) -> None:
    templates = [
        path for made in environments.values() for path in sorted(made.folder.glob("*.template.json"))
    ]
    assert len(templates) == 6 * len(ENVIRONMENTS) + 1  # one has the pipeline
    assert lint(templates) == []


def test_cfn_lint_would_say_something(tmp_path: Any, lint: Callable[..., list[str]]) -> None:
    template = tmp_path / "bad.template.json"
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"Versioned": True}}
    template.write_text(json.dumps({"Resources": {"Bucket": bucket}}), encoding="utf-8")
    assert any("Versioned" in each for each in lint([template]))


def test_cdk_nag_would_end_the_synthesis(empty_layer: Any, tmp_path: Any) -> None:
    from aws_cdk import App
    from aws_cdk import aws_sqs as sqs

    from infra.app import add_stacks
    from infra.config import load

    app = App(outdir=str(tmp_path))
    add_stacks(app, load("dev"), empty_layer, None)
    sqs.Queue(app.node.find_child("osqueue-dev-storage"), "Plain")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="AwsSolutions-SQS4"):
        app.synth()
