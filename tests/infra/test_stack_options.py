"""What stands in front of the API and what encrypts its buckets, where an environment asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from osqueue.contract.functions import FUNCTIONS
from osqueue.contract.operations import ROUTES


def test_no_page_in_a_browser_may_call_unless_it_is_asked_for(prod: Any) -> None:
    assert "CorsConfiguration" not in prod.only("api", "AWS::ApiGatewayV2::Api")


def test_pages_of_the_origins_that_are_named_may_call(synthesise: Any) -> None:
    made = synthesise("x", {"x": {"cors": {"origins": ["https://app.example.com"], "max_age_s": 60}}})
    assert made.only("api", "AWS::ApiGatewayV2::Api")["CorsConfiguration"] == {
        "AllowOrigins": ["https://app.example.com"],
        "AllowMethods": sorted({route.method for route in ROUTES}),
        "AllowHeaders": [
            "authorization",
            "content-type",
            "x-amz-content-sha256",
            "x-amz-date",
            "x-amz-security-token",
        ],
        "ExposeHeaders": ["retry-after"],
        "MaxAge": 60,
    }
    # A route of ours for OPTIONS would get the preflight in the gateway's place, and ask for a signature.
    assert "OPTIONS" not in {route.method for route in ROUTES}


CERTIFICATE = "arn:aws:acm:eu-west-1:123456789012:certificate/ab12"


def test_the_api_has_a_name_of_its_own_where_one_is_given(synthesise: Any) -> None:
    given = {"name": "jobs.example.com", "certificate": CERTIFICATE}
    made = synthesise("x", {"x": {"domain": given}})
    name = made.only("api", "AWS::ApiGatewayV2::DomainName")
    (how,) = name["DomainNameConfigurations"]
    assert (name["DomainName"], how["CertificateArn"]) == ("jobs.example.com", CERTIFICATE)
    assert (how["EndpointType"], how["SecurityPolicy"]) == ("REGIONAL", "TLS_1_2")
    assert made.only("api", "AWS::ApiGatewayV2::ApiMapping") == {
        "ApiId": {"Ref": "Api"},
        "DomainName": {"Ref": "Domain"},
        "Stage": {"Ref": "Stage"},
    }
    outputs = made.templates["api"]["Outputs"]
    assert outputs["Endpoint"]["Value"] == "https://jobs.example.com"
    assert outputs["DomainTarget"]["Value"] == {"Fn::GetAtt": ["Domain", "RegionalDomainName"]}
    assert made.resources("api", "AWS::Route53::RecordSet") == {}


def test_its_zone_gets_the_record(synthesise: Any, lint: Callable[..., list[str]]) -> None:
    given = {"name": "jobs.example.com", "certificate": CERTIFICATE, "zone": "Z0123456789ABC"}
    made = synthesise("x", {"x": {"domain": given, "cors": {"origins": ["*"]}}})
    record = made.only("api", "AWS::Route53::RecordSet")
    assert (record["HostedZoneId"], record["Name"], record["Type"]) == (
        "Z0123456789ABC",
        "jobs.example.com",
        "A",
    )
    assert record["AliasTarget"] == {
        "DNSName": {"Fn::GetAtt": ["Domain", "RegionalDomainName"]},
        "HostedZoneId": {"Fn::GetAtt": ["Domain", "RegionalHostedZoneId"]},
    }
    assert lint([made.folder / "osqueue-x-api.template.json"]) == []


# ── A key of one's own ───────────────────────────────────────────────────────
KEY = "arn:aws:kms:eu-west-1:123456789012:key/11111111-2222-3333-4444-555555555555"


def test_without_a_key_no_role_may_use_one(staging: Any) -> None:
    assert "kms:" not in json.dumps(staging.templates)


def test_buckets_are_encrypted_with_the_key_that_is_given(
    synthesise: Any, lint: Callable[..., list[str]]
) -> None:
    made = synthesise("x", {"x": {"kms_key": KEY, "pipeline": {}}})
    for stack in ("storage", "pipeline"):
        (rule,) = made.only(stack, "AWS::S3::Bucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule == {
            "BucketKeyEnabled": True,
            "ServerSideEncryptionByDefault": {"KMSMasterKeyID": KEY, "SSEAlgorithm": "aws:kms"},
        }
    assert lint(sorted(made.folder.glob("*.template.json"))) == []


def test_whoever_uses_the_bucket_may_use_its_key(synthesise: Any) -> None:
    made = synthesise("x", {"x": {"kms_key": KEY, "pipeline": {}}})
    policies = [
        *made.resources("functions", "AWS::IAM::Policy").values(),
        *(
            each
            for name, each in made.resources("pipeline", "AWS::IAM::Policy").items()
            if name.startswith("JobsRole")
        ),
    ]
    assert len(policies) == len(FUNCTIONS) + 1
    for policy in policies:
        (leave,) = [each for each in policy["PolicyDocument"]["Statement"] if each["Sid"] == "Key"]
        assert (leave["Action"], leave["Resource"]) == (["kms:Decrypt", "kms:GenerateDataKey"], KEY)


# ── Queues that may be removed ───────────────────────────────────────────────
@pytest.mark.parametrize("removable", [False, True])
def test_heads_may_be_deleted_only_where_queues_may_be_removed(synthesise: Any, removable: bool) -> None:
    made = synthesise("x", {"x": {"queues_removable": removable}})
    policy = made.only("storage", "AWS::S3::BucketPolicy")
    denied = {each["Sid"]: each["Action"] for each in policy["PolicyDocument"]["Statement"] if "Sid" in each}
    assert ("HeadsAreNeverDeleted" in denied) is not removable
    assert "HeadsChangeByCompareAndSwapOnly" in denied


# ── Keys for logs and for the topic ──────────────────────────────────────────
def groups_of(made: Any) -> list[dict[str, Any]]:
    return [
        each for stack in made.templates for each in made.resources(stack, "AWS::Logs::LogGroup").values()
    ]


def test_logs_are_encrypted_with_the_key_that_is_given(synthesise: Any, staging: Any) -> None:
    made = synthesise("x", {"x": {"logs_kms_key": KEY, "pipeline": {}}})
    assert {each.get("KmsKeyId") for each in groups_of(made)} == {KEY}
    assert {each.get("KmsKeyId") for each in groups_of(staging)} == {None}


def test_the_topic_is_encrypted_with_the_key_that_is_given(synthesise: Any, staging: Any) -> None:
    made = synthesise("x", {"x": {"topic_kms_key": KEY}})
    assert made.only("operations", "AWS::SNS::Topic")["KmsMasterKeyId"] == KEY
    assert "KmsMasterKeyId" not in staging.only("operations", "AWS::SNS::Topic")


# ── Traces ───────────────────────────────────────────────────────────────────
def test_functions_are_traced_where_it_is_asked_for(synthesise: Any, prod: Any) -> None:
    made = synthesise("x", {"x": {"tracing": True}})
    for each in made.resources("functions", "AWS::Lambda::Function").values():
        assert each["TracingConfig"] == {"Mode": "Active"}
    actions = json.dumps(list(made.resources("functions", "AWS::IAM::Policy").values()))
    assert actions.count("xray:PutTraceSegments") == len(FUNCTIONS)
    assert "xray" not in json.dumps(prod.templates)
    assert "TracingConfig" not in json.dumps(prod.templates)


# ── New code by degrees ──────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def careful(synthesise: Any) -> Any:
    return synthesise("x", {"x": {"canary": {"minutes": 10, "errors": 3}}})


def test_new_code_comes_by_degrees_and_goes_back_where_it_fails(careful: Any) -> None:
    groups = careful.resources("functions", "AWS::CodeDeploy::DeploymentGroup").values()
    alarms = careful.resources("functions", "AWS::CloudWatch::Alarm")
    assert len(groups) == len(alarms) == len(FUNCTIONS)
    watched = set()
    for group in groups:
        assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent10Minutes"
        assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
        (alarm,) = group["AlarmConfiguration"]["Alarms"]
        watched.add(alarm["Name"]["Ref"])
    assert watched == {*alarms}
    for alarm in alarms.values():
        assert (alarm["MetricName"], alarm["Threshold"], alarm["Period"]) == ("Errors", 3, 60)
        assert {each["Name"] for each in alarm["Dimensions"]} == {"FunctionName", "Resource"}


def test_calls_and_the_schedule_follow_what_is_moved(careful: Any, policies: Any, prod: Any) -> None:
    aliases = [
        each
        for each in careful.templates["functions"]["Resources"].values()
        if each["Type"] == "AWS::Lambda::Alias"
    ]
    assert {each["Properties"]["Name"] for each in aliases} == {"live"}
    assert all("CodeDeployLambdaAliasUpdate" in each["UpdatePolicy"] for each in aliases)
    for made, ending in ((careful, ":live"), (prod, "")):
        invoked = [
            *(
                each["IntegrationUri"]
                for each in made.resources("api", "AWS::ApiGatewayV2::Integration").values()
            ),
            *(each["FunctionName"] for each in made.resources("api", "AWS::Lambda::Permission").values()),
            made.only("schedule", "AWS::Scheduler::Schedule")["Target"]["Arn"],
            made.only("schedule", "AWS::IAM::Policy")["PolicyDocument"]["Statement"][0]["Resource"],
        ]
        begin = f"arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:{made.config.prefix}-"
        assert {policies.plain(each) for each in invoked} == {
            f"{begin}{each.name}{ending}" for each in FUNCTIONS
        }


def test_a_tick_that_fails_is_repeated_by_no_alias(careful: Any) -> None:
    configs = careful.resources("functions", "AWS::Lambda::EventInvokeConfig").values()
    assert [(each["MaximumEventAgeInSeconds"], each["MaximumRetryAttempts"]) for each in configs] == [
        (60, 0)
    ] * 2


def test_another_layer_is_another_version(in_one_stack: Any, tmp_path: Any) -> None:
    """Of the functions' code it is nearly all; without a version CodeDeploy would have nothing to move to."""
    from osqueue_cdk import Assets, Canary, DeploymentSettings, Osqueue

    def versions(content: bytes) -> set[str]:
        layer = tmp_path / "layer.zip"
        layer.write_bytes(content)

        def fill(stack: Any, assets: Any) -> None:
            settings = DeploymentSettings(canary=Canary())
            Osqueue(stack, "Jobs", name="x", settings=settings, assets=Assets(layer, assets.functions))

        return {*in_one_stack(fill).resources("AWS::Lambda::Version")}

    assert len(versions(b"one") - versions(b"two")) == len(FUNCTIONS)


def test_templates_with_canaries_are_ones_that_cloudformation_takes(
    careful: Any, lint: Callable[..., list[str]]
) -> None:
    assert lint([careful.folder / f"osqueue-x-{each}.template.json" for each in ("functions", "api")]) == []


# ── The end of a bucket ──────────────────────────────────────────────────────
def test_the_bucket_goes_with_its_stack_where_it_is_asked_for(synthesise: Any, prod: Any) -> None:
    made = synthesise("x", {"x": {"bucket_stays": False, "queues_removable": True}})
    for environment, policy in ((made, "Delete"), (prod, "Retain")):
        (bucket,) = [
            each
            for each in environment.templates["storage"]["Resources"].values()
            if each["Type"] == "AWS::S3::Bucket"
        ]
        assert (bucket["DeletionPolicy"], bucket["UpdateReplacePolicy"]) == (policy, policy)


# ── From a VPC ───────────────────────────────────────────────────────────────
def test_a_vpc_gets_the_ways_that_are_asked_for(
    synthesise: Any, policies: Any, lint: Callable[..., list[str]]
) -> None:
    given = {
        "vpc": "vpc-0123456789abcdef0",
        "route_tables": ["rtb-0123456789abcdef0"],
        "subnets": ["subnet-0123456789abcdef0"],
        "security_groups": ["sg-0123456789abcdef0"],
    }
    made = synthesise("x", {"x": {"endpoints": given}})
    found = {
        policies.plain(each["ServiceName"]): each
        for each in made.resources("endpoints", "AWS::EC2::VPCEndpoint").values()
    }
    begin = "com.amazonaws.<AWS::Region>"
    assert {*found} == {f"{begin}.s3", f"{begin}.lambda"}
    bucket, functions = found[f"{begin}.s3"], found[f"{begin}.lambda"]
    assert {each["VpcId"] for each in found.values()} == {given["vpc"]}
    assert bucket["RouteTableIds"] == given["route_tables"]
    assert "VpcEndpointType" not in bucket  # a gateway
    assert (functions["VpcEndpointType"], functions["PrivateDnsEnabled"]) == ("Interface", True)
    assert functions["SubnetIds"] == given["subnets"]
    assert functions["SecurityGroupIds"] == given["security_groups"]
    assert lint([made.folder / "osqueue-x-endpoints.template.json"]) == []


def test_there_are_no_endpoints_unless_they_are_asked_for(prod: Any) -> None:
    assert "VPCEndpoint" not in json.dumps(prod.templates)
