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
KEY = "arn:aws:kms:eu-west-1:123456789012:key/ab12-cd34"


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
