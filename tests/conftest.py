"""Fixtures that more than one folder of tests needs: machines, shards, an S3 server for the session, an API."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

import pytest
from awslambdaric import bootstrap
from awslambdaric.lambda_runtime_log_utils import LogFormat
from hypothesis import settings

from osqueue.aws_calls import _shared
from tests.support import api_server as server
from tests.support import azure_server, express_server, gcs_server, s3_server, valkey_server
from tests.support.light_s3 import LightS3
from tests.support.machines import VirtualMachine
from tests.support.shard import Shard

_buckets = itertools.count(1)

# How long an example takes says how busy the machine is.
settings.register_profile("osqueue", deadline=None)
settings.load_profile("osqueue")

# As in a terminal: tests may run under nohup, which has every process that they start ignore this signal.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """What lies in memory now stays to the end, so no later collection of garbage has to walk it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_waker() -> Iterator[None]:
    """What invokes consumers is made once for a process, with the endpoint of that moment: here for one test alone."""
    _shared.cache_clear()
    yield
    _shared.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_the_shell() -> Iterator[None]:
    """Whoever works with a queue of their own has its address here, or a bus for its events. Loopback has no proxy."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("OSQUEUE_")]:
            patch.delenv(name)
        patch.setenv("no_proxy", "*")
        patch.setenv("NO_PROXY", "*")
        # Started in the background of a script, a process ignores Ctrl-C, and so would all that tests start.
        before = signal.getsignal(signal.SIGINT)
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _library_logs_as_before() -> Iterator[None]:
    """A Lambda function says what the library logs in its process: here there are other tests in it."""
    loggers = logging.getLogger(), logging.getLogger("osqueue")
    before = [each.level for each in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture
def runtime_log() -> Iterator[None]:
    """What is logged is printed as Lambda's runtime prints it, with the log format JSON and the level DEBUG."""
    root, converter = logging.getLogger(), logging.Formatter.converter
    before, level = root.handlers[:], root.level
    bootstrap._setup_logging(LogFormat.JSON, "DEBUG", bootstrap.StandardLogSink())
    yield
    root.setLevel(level)
    for handler in root.handlers[:]:
        if handler not in before:
            root.removeHandler(handler)
    logging.Formatter.converter = converter


@pytest.fixture(scope="session")
def aws_environment() -> Iterator[None]:
    """Dummy credentials, and nothing of the machine's own: no test may ever reach AWS."""
    files = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    with _environment({**s3_server.ENVIRONMENT, **files}, s3_server.FOREIGN_ENVIRONMENT):
        yield


@pytest.fixture(scope="session")
def s3_endpoint(aws_environment: None) -> Iterator[str]:
    """The URL of an S3 server that keeps its promises about conditional writes."""
    with s3_server.s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> str:
    """The name of an empty bucket of this test's own."""
    name = f"test-bucket-{os.getpid()}-{next(_buckets)}"
    s3_server.create_bucket(s3_endpoint, name)
    return name


@pytest.fixture(scope="session")
def light_s3(aws_environment: None) -> Iterator[gcs_server.GcsServer]:
    """Serve S3 from this process, for much less than ``s3_endpoint`` costs. It keeps the rules of the store port."""
    with gcs_server.gcs_server(LightS3) as server:
        yield server


@pytest.fixture
def light_bucket(light_s3: gcs_server.GcsServer) -> str:
    """The name of an empty bucket of this test's own."""
    name = f"test-bucket-{next(_buckets)}"
    light_s3.buckets[name] = {}
    return name


@pytest.fixture(scope="session")
def express_environment(
    s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What leads clients to the directory buckets of this machine."""
    with express_server.express_server(s3_endpoint, tmp_path_factory.mktemp("express")) as environment:
        yield environment


@pytest.fixture
def directory_bucket(
    s3_endpoint: str, express_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """The name of an empty directory bucket of this test's own, which is found by its name alone."""
    for name, text in express_environment.items():
        monkeypatch.setenv(name, text)
    name = f"test-{os.getpid()}-{next(_buckets)}{express_server.SUFFIX}"
    s3_server.create_bucket(s3_endpoint, name)
    return name


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[valkey_server.ValkeyServer]:
    """A Valkey or Redis server for the session, where the system has one."""
    if valkey_server.BINARY is None:
        pytest.skip(valkey_server.HOW_TO_INSTALL)
    with valkey_server.valkey_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[gcs_server.GcsServer]:
    """A stand-in for Google Cloud Storage, and credentials that are nobody's."""
    with (
        _environment(gcs_server.ENVIRONMENT, gcs_server.FOREIGN_ENVIRONMENT),
        gcs_server.gcs_server() as server,
    ):
        yield server


@pytest.fixture
def gcs_bucket(gcs: gcs_server.GcsServer) -> str:
    """The name of an empty bucket of this test's own."""
    name = f"test-bucket-{next(_buckets)}"
    gcs.buckets[name] = {}
    return name


@pytest.fixture(scope="session")
def azure_endpoint() -> Iterator[str]:
    """An emulator of Azure for the session, where it is installed, with the credentials of every emulator."""
    if azure_server.NODE is None or not azure_server.SCRIPT.is_file():
        pytest.skip(azure_server.HOW_TO_INSTALL)
    with (
        _environment(azure_server.ENVIRONMENT, azure_server.FOREIGN_ENVIRONMENT),
        azure_server.azure_server() as endpoint,
    ):
        azure_server.create_container(endpoint, azure_server.CONTAINER)
        yield endpoint


@pytest.fixture
def azure_place(azure_endpoint: str) -> str:
    """A container, and a prefix of this test's own."""
    return f"{azure_server.CONTAINER}/test/{next(_buckets)}"


@contextmanager
def _environment(own: Mapping[str, str], foreign: Iterable[str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in foreign:
            patch.delenv(name, raising=False)
        for name, value in own.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def api_server() -> ModuleType:
    """``api_server(store)`` serves an API on loopback; ``PREFIX`` is what its functions' names begin with."""
    return server


@pytest.fixture
def machine() -> VirtualMachine:
    """A machine whose time stands still."""
    return VirtualMachine()


@pytest.fixture
def shard() -> Shard:
    """An empty shard at noon."""
    return Shard()


@pytest.fixture(scope="session")
def new_shard() -> Callable[..., Shard]:
    """For tests that need several shards, or one for every example."""
    return Shard


@pytest.fixture(scope="session")
def new_machine() -> Callable[..., VirtualMachine]:
    """For tests that need several machines, or one for every example."""
    return VirtualMachine
