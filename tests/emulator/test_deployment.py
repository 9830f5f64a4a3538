"""The whole deployment in an emulator: `make emulator`. Its gateway does nothing, so functions are invoked directly.

What it shows and what it does not is in CONTRIBUTING.md.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import boto3
import pytest
import urllib3

from osqueue import Queue
from osqueue.commit.writer import HEAD
from osqueue.objects.layout import root_of
from tests.support.patience import PATIENCE
from tests.support.places import ROOT
from tests.support.s3_server import FOREIGN_ENVIRONMENT

pytestmark = pytest.mark.emulator

PYTHON = ROOT / ".venv-emulator/bin/python"
ACCOUNT, REGION = "000000000000", "us-east-1"
STACKS = ("storage", "bus", "functions", "api", "schedule", "operations")
NEEDED = (
    "cdk",
    "functions",
    "infra",
    "layers",
    "cdk.json",
    "environments.local.json",
    "package.json",
    "package-lock.json",
    "pyproject.toml",
    "uv.lock",
)
LINKED = (".venv", ".venv-tools", "node_modules")
FORMAT_AT = 20  # in a head, behind its commit and its magic word

# What a next release changes: from the first commit on its heads have the next format.
READS = ("core/encoding.py", "FORMATS_READ = (1,)", "FORMATS_READ = (1, 2)")
WRITES = ("core/draft.py", "            self.format,\n", "            2,\n")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """LocalStack, whose functions are processes; its address."""
    folder = tmp_path_factory.mktemp("emulator")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.MonkeyPatch.context() as patch, (folder / "log").open("w") as log:
        for name in FOREIGN_ENVIRONMENT:
            patch.delenv(name, raising=False)
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": REGION,
        }.items():
            patch.setenv(name, value)
        told = {
            "GATEWAY_LISTEN": endpoint.removeprefix("http://"),
            "FILESYSTEM_ROOT": str(folder),
            "LOCALSTACK_VOLUME_DIR": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "FUNCTION_PYTHON": str(ROOT / ".venv/bin/python"),
            "DISABLE_EVENTS": "1",  # it tells nobody that it is used,
            "SKIP_SSL_CERT_DOWNLOAD": "1",  # and fetches nothing
            "DNS_ADDRESS": "0",
        }
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        command = [str(PYTHON), str(Path(__file__).with_name("with_processes.py"))]
        process = subprocess.Popen(command, env={**own, **told}, stdout=log, stderr=log)
        try:
            urllib3.PoolManager().request(
                "GET",
                f"{endpoint}/_localstack/health",
                retries=urllib3.Retry(40, backoff_factor=0.2, backoff_max=2),
            )
            yield endpoint
        finally:
            process.terminate()
            process.wait()


def cdk(checkout: Path, *arguments: str) -> str:
    """Run the CDK's command line in a checkout, as `make` does; answers what it printed."""
    command = [str(ROOT / "node_modules/.bin/cdk"), *arguments, "-c", "env=dev"]
    ended = subprocess.run(
        command, cwd=checkout, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4_000:]
    return ended.stdout


def deploy(checkout: Path) -> None:
    cdk(checkout, "deploy", "--all", "--require-approval", "never")


def smoke(endpoint: str) -> None:
    """`make smoke`, by direct invocation."""
    address = f"lambda://osqueue-dev?endpoint={endpoint}&region={REGION}"
    command = ["make", "smoke", f"ADDRESS={address}", "ARGS="]  # ours are for pytest
    ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def checkout(place: Path, *changes: Sequence[str]) -> Path:
    """A copy of what a deployment is made from, with these changes of the library: another release."""
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, place / name)
    for name in LINKED:
        (place / name).symlink_to(ROOT / name)
    for name, old, new in changes:
        path = place / "layers/osqueue/python/osqueue" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1
        path.write_text(text.replace(old, new), encoding="utf-8")
    return place


def format_of_head(queue: str) -> int:
    bucket = f"osqueue-dev-{ACCOUNT}-{REGION}-an"
    body = boto3.client("s3").get_object(Bucket=bucket, Key=root_of(queue, 0) + HEAD)["Body"].read()
    return int.from_bytes(body[FORMAT_AT : FORMAT_AT + 2], "big")


@pytest.fixture(scope="module")
def deployed(emulator: str) -> str:
    """Where a deployment of this code is."""
    cdk(ROOT, "bootstrap", f"aws://{ACCOUNT}/{REGION}")
    deploy(ROOT)
    return emulator


def test_every_stack_is_made_and_a_job_runs_through_the_functions(deployed: str) -> None:
    stacks = boto3.client("cloudformation").describe_stacks()["Stacks"]
    made = {each["StackName"]: each["StackStatus"] for each in stacks if each["StackName"] != "CDKToolkit"}
    assert made == {f"osqueue-dev-{duty}": "CREATE_COMPLETE" for duty in STACKS}
    smoke(deployed)


def test_a_deployment_of_the_same_code_changes_nothing(deployed: str) -> None:
    assert "Number of stacks with differences: 0" in cdk(ROOT, "diff", "--fail")


def test_an_upgrade_and_a_rollback_keep_the_jobs(deployed: str, tmp_path: Path) -> None:
    q = Queue.connect(f"lambda://osqueue-dev?endpoint={deployed}&region={REGION}", "mail")
    q.enqueue("before")
    deploy(checkout(tmp_path / "next", READS, WRITES))
    smoke(deployed)
    q.enqueue("after")
    assert format_of_head("mail") == 2
    deploy(checkout(tmp_path / "between", READS))
    smoke(deployed)
    leases = q.claim(2, wait=PATIENCE)
    assert [each.payload for each in leases] == ["before", "after"]
    for each in leases:
        each.complete(each.payload)
    assert format_of_head("mail") == 2
