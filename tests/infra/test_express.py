"""A deployment whose heads lie in a directory bucket: what that is, who may use it, and what stays in the bucket."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import aws_iam as iam

from osqueue.contract.functions import FUNCTIONS, STORE
from osqueue.stores.address import open_store
from osqueue.stores.split import SplitStore
from osqueue_cdk import Osqueue
from osqueue_cdk.access import ACCESS, KEPT

KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
VPC = {"vpc": "vpc-0123456789abcdef0", "route_tables": ["rtb-0123456789abcdef0"]}
DIRECTORY = "osqueue-x-<AWS::AccountId>--use1-az4--x-s3"
ARN = f"arn:<AWS::Partition>:s3express:<AWS::Region>:<AWS::AccountId>:bucket/{DIRECTORY}"
BUCKET = "osqueue-x-<AWS::AccountId>-<AWS::Region>-an"


@pytest.fixture(scope="module")
def express(synthesise: Any) -> Any:
    return synthesise(
        "x", {"x": {"express_zone": "use1-az4", "kms_key": KEY, "endpoints": VPC, "pipeline": {}}}
    )


def test_a_directory_bucket_is_made_beside_the_bucket(
    express: Any, policies: Any, lint: Callable[..., list[str]]
) -> None:
    made = next(
        each
        for each in express.templates["storage"]["Resources"].values()
        if each["Type"] == "AWS::S3Express::DirectoryBucket"
    )
    (rule,) = made["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert policies.plain(made["Properties"]["BucketName"]) == DIRECTORY
    assert made["Properties"]["LocationName"] == "use1-az4"
    assert rule["ServerSideEncryptionByDefault"] == {"KMSMasterKeyID": KEY, "SSEAlgorithm": "aws:kms"}
    assert made["DeletionPolicy"] == "Retain"
    assert policies.plain(express.only("storage", "AWS::S3::Bucket")["BucketName"]) == BUCKET
    assert lint(sorted(express.folder.glob("*.template.json"))) == []


def test_functions_have_both_in_their_address(express: Any, policies: Any) -> None:
    address = f"s3://{DIRECTORY}?archive=s3://{BUCKET}"
    for each in express.resources("functions", "AWS::Lambda::Function").values():
        assert policies.plain(each["Environment"]["Variables"][STORE]) == address
    (output,) = express.templates["storage"]["Outputs"].values()
    assert policies.plain(output["Value"]) == address


@pytest.mark.parametrize("function", [each.name for each in FUNCTIONS])
def test_a_role_may_use_the_directory_bucket_and_of_the_bucket_what_it_keeps(
    function: str, express: Any, policies: Any
) -> None:
    (policy,) = [
        each
        for name, each in express.resources("functions", "AWS::IAM::Policy").items()
        if name.startswith(f"{function.capitalize()}Role")
    ]
    said = {each["Sid"]: each for each in policy["PolicyDocument"]["Statement"]}
    assert policies.plain(said["Session"]["Resource"]) == ARN
    assert said["Session"]["Action"] == "s3express:CreateSession"
    for sid, keys in (
        ("Read", ACCESS[function].read),
        ("Write", ACCESS[function].write),
        ("Delete", ACCESS[function].delete),
    ):
        resources = said.get(sid, {}).get("Resource", [])
        found = {policies.plain(each) for each in (resources if isinstance(resources, list) else [resources])}
        assert found == {f"arn:aws:s3:::bucket/{key}" for key in keys if key in KEPT}


def test_the_pipeline_reads_the_archive_where_it_is(express: Any, policies: Any) -> None:
    assert "s3express" not in json.dumps(express.templates["pipeline"])


def test_a_vpc_reaches_both_buckets(express: Any, policies: Any) -> None:
    found = express.resources("endpoints", "AWS::EC2::VPCEndpoint").values()
    assert {policies.plain(each["ServiceName"]).rpartition(".")[2] for each in found} == {"s3", "s3express"}


def granted(in_one_stack: Any, role: str, **more: Any) -> list[dict[str, Any]]:
    def fill(stack: Any, assets: Any) -> None:
        caller = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        queue = Osqueue.from_name(stack, "Jobs", "x", **more).queue("emails")
        getattr(queue, f"grant_{role}")(caller, via="bucket")

    (policy,) = in_one_stack(fill).resources("AWS::IAM::Policy").values()
    return [*policy["PolicyDocument"]["Statement"]]


def test_who_is_granted_a_queue_in_the_bucket_gets_the_directory_bucket(
    in_one_stack: Any, policies: Any
) -> None:
    found = {each["Action"]: each for each in granted(in_one_stack, "work", express_zone="use1-az4")}
    assert policies.plain(found["s3express:CreateSession"]["Resource"]) == ARN
    assert policies.plain(found["s3:GetObject"]["Resource"]).endswith("archive/queue=emails/*")
    assert "s3:PutObject" not in found
    assert "s3express:CreateSession" not in {each["Action"] for each in granted(in_one_stack, "work")}


def test_who_may_only_read_gets_sessions_that_only_read(in_one_stack: Any) -> None:
    found = {each["Action"]: each for each in granted(in_one_stack, "read", express_zone="use1-az4")}
    only = {"StringEquals": {"s3express:SessionMode": "ReadOnly"}}
    assert found["s3express:CreateSession"]["Condition"] == only
    assert "s3:PutObject" not in found


def test_another_stack_reads_the_address_where_the_deployment_says_it(express: Any, policies: Any) -> None:
    """So who leaves the zone out is refused at the bucket, and works on no other store in silence."""
    (parameter,) = express.resources("storage", "AWS::SSM::Parameter").values()
    assert parameter["Name"] == "/osqueue-x/store"
    assert policies.plain(parameter["Value"]) == f"s3://{DIRECTORY}?archive=s3://{BUCKET}"


def test_the_library_opens_the_address(express: Any, policies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    (output,) = express.templates["storage"]["Outputs"].values()
    address = re.sub("<AWS::(AccountId|Region)>", "123456789012", policies.plain(output["Value"]))
    store = open_store(address).inner
    assert isinstance(store, SplitStore)
    assert not store.first.ordered
    assert store.second.ordered
