"""What a handler imports stays small: looked at by which modules are loaded, not by a stop-watch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from osqueue import Queue
from tests.support.patience import PATIENCE

# Whoever only enqueues, claims and completes must not pay for these: SDKs, terminals, Spark, the event loop, threads,
# and what only an API needs.
HEAVY = {
    "asyncio",
    "boto3",
    "botocore",
    "click",
    "concurrent.futures",
    "http.client",
    "multiprocessing",
    "obstore",
    "osqueue.server",
    "osqueue.client.call",
    "pyspark",
    "rich",
    "urllib.request",
}

HANDLER = """
import importlib, json, sys
for name in {names!r}:
    importlib.import_module(name)
{then}
print(json.dumps(sorted(sys.modules)))
"""


def modules_loaded_by(*names: str, then: str = "") -> set[str]:
    """Every module in a fresh interpreter after importing ``names``."""
    code = HANDLER.format(names=names, then=then)
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return set(json.loads(answer.stdout))


BARE = modules_loaded_by()


def heavy(loaded: set[str]) -> set[str]:
    return HEAVY & (loaded - BARE)


@pytest.mark.parametrize(
    "name",
    [
        "osqueue",
        "osqueue.core",
        "osqueue.commit",
        "osqueue.stores.base",
        "osqueue.stores.file",
        "osqueue.stores.s3",
    ],
)
def test_a_handlers_import_loads_nothing_heavy(name: str) -> None:
    assert heavy(modules_loaded_by(name)) == set()


def test_a_handler_that_opens_a_local_queue_loads_nothing_heavy(tmp_path: object) -> None:
    then = f"from osqueue import Queue; Queue.connect('file://{tmp_path}', 'emails')"
    assert heavy(modules_loaded_by("osqueue", then=then)) == set()


def test_a_handler_that_opens_an_s3_queue_loads_its_one_client_and_no_other() -> None:
    then = (
        "from osqueue import Queue;"
        "Queue.connect('s3://bucket/prefix?region=eu-west-1&endpoint=http://127.0.0.1:9', 'emails')"
    )
    assert heavy(modules_loaded_by("osqueue", then=then)) <= {"obstore"}


def test_opening_an_s3_address_loads_no_client() -> None:
    then = "from osqueue.stores.address import open_store; open_store('s3://jobs')"
    assert not {"obstore", "boto3", "botocore"} & modules_loaded_by("osqueue", then=then)


def test_connecting_to_an_api_loads_no_client() -> None:
    then = (
        "from osqueue import Queue; Queue.connect('https://127.0.0.1:1', 'mail');"
        "Queue.connect('lambda://x', 'mail')"
    )
    assert not {"urllib3", "boto3", "botocore", "asyncio"} & modules_loaded_by("osqueue", then=then)


def test_a_consumer_that_no_deployment_knows_loads_nothing_that_counts() -> None:
    """Nor what is said to callers of an API, which names of metrics are a part of."""
    make = "import os; os.environ['OSQUEUE_STORE'] = 'memory://'; {service}"
    make += "from osqueue.aws import consumer; consumer(lambda job: None).queue('emails')"
    service = "os.environ['OSQUEUE_SERVICE'] = 'osqueue-prod'; "
    counting = {"osqueue.metering.lines", "osqueue.contract.metrics"}
    assert counting <= modules_loaded_by("osqueue", then=make.format(service=service))
    loaded = modules_loaded_by("osqueue", then=make.format(service=""))
    assert [name for name in loaded if name.startswith(("osqueue.metering", "osqueue.contract"))] == []


def test_an_embedded_queue_loads_nothing_of_the_remote_one() -> None:
    then = "from osqueue import Queue; q = Queue.connect('memory://', 'mail'); q.enqueue(1); q.claim()"
    loaded = modules_loaded_by("osqueue", then=then)
    assert [name for name in loaded if name.startswith(("osqueue.client", "osqueue.server"))] == []


def loaded_by_command(*words: str) -> set[str]:
    """What ``osqueue`` loads to answer."""
    silent = f"with contextlib.redirect_stdout(io.StringIO()): app({list(words)!r}, standalone_mode=False)"
    then = f"import contextlib, io\nfrom osqueue.cli.app import app\n{silent}"
    return modules_loaded_by("osqueue.cli.app", then=then)


def test_the_help_loads_nothing_of_a_queue() -> None:
    loaded = loaded_by_command("--help")
    rooms = {name.split(".")[1] for name in loaded if name.startswith("osqueue.")}
    assert rooms == {"cli", "errors", "model"}  # and of the model what makes text printable
    assert {name for name in loaded if name.startswith("osqueue.model.")} == {"osqueue.model.printable"}
    assert heavy(loaded) == {"click"}
    assert "msgspec" not in loaded


def test_the_statistics_of_a_folder_load_no_client_and_no_network(tmp_path: object) -> None:
    Queue.connect(f"file://{tmp_path}", "emails").enqueue(1)
    loaded = loaded_by_command("queue", "stats", f"file://{tmp_path}", "emails")
    assert heavy(loaded) == {"click"}
    unused = {"osqueue.client", "osqueue.contract", "osqueue.devstack", "osqueue.maintenance", "socket"}
    assert unused & loaded == set()
