"""The templates, deployed into moto: what one stack makes another finds by its name.

moto's CloudFormation makes buckets, roles, layers and functions. It knows no bucket policy, schedule, HTTP API or
alarm, and a bus trips it, so that is all this shows. What the bucket's policy and the roles let pass is in
test_stacks.py and test_roles.py.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import boto3
import pytest

from osqueue.contract import functions as table
from osqueue.contract.functions import FUNCTIONS, deployed_name

ACCOUNT, REGION = "123456789012", "us-east-1"
EMPTY_ZIP = b"PK\x05\x06" + bytes(18)
DEPLOYED = ("storage", "functions")  # as `cdk deploy --all` orders them


@pytest.fixture
def aws(aws_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """moto, inside this process."""
    # To list what CloudFormation can make, moto loads its REST APIs, and with them a validator that we do not need.
    for name in ("", ".validation", ".validation.exceptions"):
        module = ModuleType(f"openapi_spec_validator{name}")
        vars(module).update(validate_spec=None, validate=None, OpenAPIValidationError=ValueError)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    from moto import mock_aws

    with mock_aws(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tried to parse AWS::")
        yield


def deploy(made: Any) -> dict[str, str]:
    """Create the stacks in their order; answers how each ended."""
    boto3.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    assets = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
    boto3.client("s3").create_bucket(Bucket=assets)
    formation = boto3.client("cloudformation")
    ended = {}
    for duty in DEPLOYED:
        name = f"{made.config.prefix}-{duty}"
        files = json.loads((made.folder / f"{name}.assets.json").read_text(encoding="utf-8"))["files"]
        for each in files.values():
            for place in each["destinations"].values():
                boto3.client("s3").put_object(Bucket=assets, Key=place["objectKey"], Body=EMPTY_ZIP)
        for each in made.resources(duty, "AWS::SSM::Parameter").values():
            each.pop("Tags")  # a map, as CloudFormation has it; moto takes it for a list
        body = json.dumps(made.templates[duty])
        formation.create_stack(StackName=name, TemplateBody=body, Capabilities=["CAPABILITY_IAM"])
        ended[duty] = formation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
    return ended


def test_the_stacks_find_each_other(aws: None, synthesise: Any) -> None:
    assert deploy(synthesise("x", {"x": {"events": False}})) == dict.fromkeys(DEPLOYED, "CREATE_COMPLETE")
    bucket = f"osqueue-x-{ACCOUNT}-{REGION}-an"
    assert bucket in {each["Name"] for each in boto3.client("s3").list_buckets()["Buckets"]}
    for function in FUNCTIONS:
        found = boto3.client("lambda").get_function_configuration(
            FunctionName=deployed_name("osqueue-x", function.name)
        )
        assert found["Environment"]["Variables"][table.STORE] == f"s3://{bucket}"
    roles = boto3.client("iam")
    seen = 0
    for role in roles.list_roles()["Roles"]:
        for name in roles.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]:
            document = roles.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
            (listing,) = [each for each in document["Statement"] if each["Sid"] == "List"]
            assert listing["Resource"] == f"arn:aws:s3:::{bucket}"
            # IAM's grammar: a managed policy is checked where an inline one of a stack is not.
            roles.create_policy(PolicyName=f"check-{seen}", PolicyDocument=json.dumps(document))
            seen += 1
    assert seen == len(FUNCTIONS)


def test_the_emulator_would_refuse_a_policy_that_is_none(aws: None) -> None:
    wrong = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3", "Resource": "bucket"}],
    }
    with pytest.raises(Exception, match="MalformedPolicyDocument"):
        boto3.client("iam").create_policy(PolicyName="wrong", PolicyDocument=json.dumps(wrong))
