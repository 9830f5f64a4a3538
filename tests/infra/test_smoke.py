"""``make smoke``: against the local stack, which runs the same functions, and where something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra import smoke
from osqueue import Queue
from osqueue.devstack import Stack
from osqueue_cdk import Misconfigured

STEPS = ["enqueue", "claim", "heartbeat", "complete", "result", "reap"]


def store_of(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


def test_a_job_goes_through_its_life_over_the_api(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = Queue.connect(store_of(tmp_path), smoke.QUEUE)
    queue.enqueue("of somebody else")
    with Stack(store_of(tmp_path), patience_s=60.0, schedule_seconds=0) as stack:
        smoke.main(["--address", stack.url])
        assert capsys.readouterr().out.splitlines() == [stack.url, *(f"  {each}: ok" for each in STEPS)]
    stats = queue.stats()
    assert (stats["queued"], stats["processing"]) == (1, 0)
    assert [job.state for job in queue.history()] == ["completed"]  # reaped: it is in the archive


def test_where_nobody_answers_the_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "TIMEOUT_S", 0.5)
    with pytest.raises(SystemExit, match=r"^error: .*127\.0\.0\.1:9.*\(after connect\)$"):
        smoke.main(["--address", "http://127.0.0.1:9"])


def test_a_job_that_is_not_handed_out_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smoke, "WAIT_S", 0.1)
    Queue.connect(store_of(tmp_path), smoke.QUEUE).pause()
    with pytest.raises(
        SystemExit, match=r"^error: claim: job .* was not handed out .* paused\? \(after enqueue\)"
    ):
        smoke.main(["--address", store_of(tmp_path)])
    assert "claim: ok" not in capsys.readouterr().out


class Account:
    """CloudFormation as a client of boto3 reaches it, with answers that botocore has checked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = boto3.client(
            "cloudformation", region_name="eu-west-1", aws_access_key_id="any", aws_secret_access_key="any"
        )
        self.stub = Stubber(self.client)
        self.stub.activate()
        monkeypatch.setattr(boto3, "client", lambda service, **options: self.client)

    def tells(self, stack: str, outputs: dict[str, str]) -> None:
        listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
        found: dict[str, Any] = {"StackName": stack, "StackStatus": "UPDATE_COMPLETE", "Outputs": listed}
        answer = {"Stacks": [{**found, "CreationTime": "2026-01-01T00:00:00Z"}]}
        self.stub.add_response("describe_stacks", answer, {"StackName": stack})


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    return Account(monkeypatch)


def test_the_address_is_what_the_stack_says(account: Account) -> None:
    account.tells("osqueue-dev-api", {"Endpoint": "https://jobs.example.com"})
    assert smoke.address_of("dev") == "https://jobs.example.com?region=eu-west-1"


def test_with_an_issuer_the_call_brings_a_token(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    jwt = {"issuer": "https://id.example/pool", "audience": ["jobs"]}
    monkeypatch.setattr(smoke, "environments", lambda: {"x": {"jwt": jwt}})
    account.tells("osqueue-x-api", {"Endpoint": "https://abc.example"})
    assert smoke.address_of("x") == "https://abc.example?region=eu-west-1&auth=bearer"


def test_what_is_not_deployed_is_told_with_the_remedy(account: Account) -> None:
    account.stub.add_client_error("describe_stacks", "ValidationError", "Stack with id … does not exist")
    with pytest.raises(Misconfigured, match=r"^stack osqueue-dev-api is not found: .*make deploy ENV=dev$"):
        smoke.address_of("dev")


def test_an_environment_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"^error: env: there is no environment 'production'"):
        smoke.main(["--env", "production"])
