"""Addresses: what each opens, and what a wrong one answers."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from osqueue.errors import NotSupported, Rejected
from osqueue.stores.address import open_store
from osqueue.stores.azure import AzureStore
from osqueue.stores.base import Delete, Found, Get, List, Missing, Put, PutIfAbsent, Written
from osqueue.stores.faulty import FaultyStore, SlowStore
from osqueue.stores.gcs import GcsStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.objects import ObjectStore
from osqueue.stores.s3 import S3Store

_names = itertools.count()


def fresh_name() -> str:
    return f"test-addresses-{next(_names)}"


def test_a_named_memory_store_is_the_same_one_every_time() -> None:
    name = fresh_name()
    open_store(f"memory://{name}").put(Put("key", b"x"))
    assert isinstance(open_store(f"memory://{name}").get(Get("key")), Found)
    assert open_store(f"memory://{fresh_name()}").get(Get("key")) == Missing()


def test_a_memory_store_without_a_name_is_a_new_one_every_time() -> None:
    open_store("memory://").put(Put("key", b"x"))
    assert open_store("memory://").get(Get("key")) == Missing()


def test_a_file_address_is_absolute_or_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address, place in ((f"file://{tmp_path}/one", "one"), ("file://two/three", "two/three")):
        store = open_store(address)
        assert isinstance(store.put_if_absent(PutIfAbsent("a/key", b"x")), Written)
        assert (tmp_path / place / "a/key").read_bytes() == b"x"


@pytest.mark.parametrize(("query", "flushes"), [("", True), ("?fsync=on", True), ("?fsync=off", False)])
def test_flushing_is_on_unless_turned_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, flushes: bool
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr("os.fsync", flushed.append)
    open_store(f"file://{tmp_path}{query}").put(Put("key", b"x"))
    assert bool(flushed) == flushes


@pytest.mark.parametrize(("connect", "request_s"), [(0.1, 1), (60, 300)])
def test_time_outs_reach_from_the_least_to_the_most(connect: float, request_s: float) -> None:
    inner = open_store(f"s3://jobs?connect_timeout={connect}&request_timeout={request_s}").inner
    assert isinstance(inner, S3Store)
    assert inner.timeouts == (connect, request_s)


@pytest.mark.parametrize("region", ["US-EAST-1", "eu_central", "garage.local", "local"])
def test_an_s3_address_takes_the_region_of_any_server(region: str) -> None:
    assert open_store(f"s3://jobs?endpoint=http://127.0.0.1:9000&region={region}").inner.region == region


def test_an_empty_region_of_an_s3_address_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert open_store("s3://jobs?region=").inner.region == "eu-west-1"


def test_an_s3_address_names_bucket_prefix_endpoint_and_region() -> None:
    inner = open_store("s3://jobs/some/prefix/?endpoint=http://127.0.0.1:9000&region=eu-west-1").inner
    assert isinstance(inner, S3Store)
    assert (inner.bucket, inner.prefix) == ("jobs", "some/prefix/")
    assert (inner.endpoint, inner.region) == ("http://127.0.0.1:9000", "eu-west-1")
    assert inner.key_bytes_max == 1024 - len("some/prefix/")
    assert inner.room_below("a/") == 255


@pytest.mark.parametrize(("scheme", "kind"), [("gs", GcsStore), ("az", AzureStore)])
def test_an_address_in_another_cloud_names_bucket_prefix_and_endpoint(
    scheme: str, kind: type[ObjectStore]
) -> None:
    inner = open_store(f"{scheme.upper()}://jobs/some/prefix/?endpoint=http://127.0.0.1:9000/it").inner
    assert isinstance(inner, kind)
    assert (inner.bucket, inner.prefix, inner.endpoint) == (
        "jobs",
        "some/prefix/",
        "http://127.0.0.1:9000/it",
    )
    assert inner.place != open_store(f"{scheme}://jobs/some/prefix").place
    assert inner.place == open_store(f"{scheme}://jobs/some/prefix?endpoint=http://127.0.0.1:9000/it").place


def test_only_aws_takes_long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that keep objects as files take 255 bytes between slashes, and refuse the rest for good."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for address, room in (
        ("s3://jobs", 1024),
        ("s3://jobs/p?endpoint=https://s3.eu-west-1.amazonaws.com", 1022),
        ("s3://jobs?endpoint=https://amazonaws.com.example.org", 255),
        ("s3://jobs?endpoint=http://127.0.0.1:9000", 255),
    ):
        assert open_store(address).room_below("") == room
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://minio:9000")
    assert open_store("s3://jobs").room_below("") == 255


def test_faults_go_around_the_store_and_the_counter_around_all() -> None:
    store = open_store("memory://?latency_ms=1&error_rate=0.5&lost_reply_rate=0.1&seed=7")
    assert isinstance(store.inner, SlowStore)
    assert isinstance(store.inner.inner, FaultyStore)
    assert isinstance(store.inner.inner.inner, MemoryStore)
    assert isinstance(open_store("memory://?error_rate=0").inner, MemoryStore)


def test_requests_are_counted_by_kind() -> None:
    store = open_store("memory://")
    store.put(Put("a", b"x"))
    store.put_if_absent(PutIfAbsent("a", b"x"))
    for _ in range(3):
        store.perform(Get("a"))
    store.list(List(""))
    store.delete(Delete(("a", "b", "c")))
    assert store.requests == {"get": 3, "put": 2, "list": 1, "delete": 1}


@pytest.mark.parametrize(
    ("address", "field", "remedy"),
    [
        ("jobs", "address", "file:///var/lib/jobs"),
        ("", "address", "memory://"),
        ("/var/lib/jobs", "address", "put file:// in front"),
        ("./jobs", "address", "put file:// in front"),
        ("ftp://jobs", "address", "s3://bucket/prefix"),
        ("127.0.0.1:8787", "address", "http://HOST:PORT"),
        ("jobs.example.com:8787/prod?auth=iam", "address", "http://HOST:PORT"),
        ("[::1]:8787", "address", "http://HOST:PORT"),
        ("file://", "address", "names a folder"),
        ("s3://", "address", "names a bucket"),
        ("gs://", "address", "names a bucket"),
        ("az:///prefix", "address", "names a container"),
        ("gcs://jobs", "address", "write gs://bucket/prefix"),
        ("abfss://jobs@account.dfs.core.windows.net", "address", "write az://container/prefix"),
        ("az://jobs?region=a", "region", "endpoint"),
        ("gs://jobs?etag=bare", "etag", "endpoint"),
        ("memory://?colour=red", "colour", "latency_ms, error_rate, lost_reply_rate, seed"),
        ("memory://?fsync=off", "fsync", "latency_ms"),
        ("file:///tmp/x?fsync=maybe", "fsync", "on or off"),
        ("file:///tmp/x?region=a", "region", "fsync"),
        ("file:///tmp/x?network=yes", "network", "refuse or allow"),
        ("s3://jobs?regoin=eu-west-1", "regoin", "endpoint, region"),
        ("s3://jobs?etag=weak", "etag", "quoted or bare"),
        ("s3://jobs?addressing=host", "addressing", "path or virtual"),
        ("s3://jobs?endpoint=http://10.0.0.1:9000&addressing=virtual", "addressing", "IP address"),
        ("s3://jobs?connect_timeout=0.09", "connect_timeout", "0.1 to 60 seconds"),
        ("s3://jobs?connect_timeout=60.1", "connect_timeout", "0.1 to 60 seconds"),
        ("s3://jobs?request_timeout=0.9", "request_timeout", "1 to 300 seconds"),
        ("s3://jobs?request_timeout=300.1", "request_timeout", "1 to 300 seconds"),
        ("s3://jobs?request_timeout=soon", "request_timeout", "1 to 300 seconds"),
        ("s3://jobs?kms=", "kms", "ARN"),
        ("s3://jobs?ca=/nowhere/bundle.pem", "ca", "PEM"),
        ("s3://jobs?endpoint=http://host&ca=/nowhere/bundle.pem", "ca", "TLS"),
        ("valkey://host?ca=/nowhere/bundle.pem", "ca", "TLS"),
        ("s3://jobs?endpoint=127.0.0.1:9000", "endpoint", "http://"),
        *(
            (f"{scheme}://jobs/{prefix}", "address", "one slash between")
            for scheme in ("s3", "gs", "az")
            for prefix in ("a//b", "a/./b", "a/../b", "..", ".", "a/..")
        ),
        *(
            (f"{place}{end}", "address", "control character at its end: remove it")
            for place in (
                "memory://a",
                "file:///tmp/x",
                "s3://jobs",
                "gs://jobs/a",
                "az://jobs/a",
                "valkey://host",
            )
            for end in ("\n", "\r\n", "\0", "\x7f")
        ),
        ("file:///tmp/a\0b", "address", "control character: remove it"),
        ("s3://jobs/a\tb?region=a", "address", "control character: remove it"),
        ("s3://jobs?region=a\n", "address", "control character at its end: remove it"),
        ("s3://jobs/l\udce4den", "address", "not valid Unicode"),
        ("memory://?archive=s3://jobs/a//b", "archive", "one slash between"),
        ("memory://?archive=file:///tmp/a%00", "archive", "control character at its end: remove it"),
        ("valkey://", "address", "names one server"),
        ("redis://one,two", "address", "names one server"),
        ("valkey://host:0", "address", "from 1 to 65535"),
        ("valkey://host:99999", "address", "from 1 to 65535"),
        ("valkey://host/65536", "address", "is the database"),
        ("valkey://host/0/a:b", "address", "write a slash"),
        ("valkey://host?replicas=some", "replicas", "from 0 to 16"),
        ("valkey://host?replicas=17", "replicas", "from 0 to 16"),
        ("valkey://host?db=1", "db", "replicas"),
        ("memory://?latency_ms=slow", "latency_ms", "number"),
        ("memory://?latency_ms=-1", "latency_ms", "0"),
        ("memory://?latency_ms=60001", "latency_ms", "60000"),
        ("memory://?latency_ms=", "latency_ms", "number"),
        ("memory://?error_rate=1.01", "error_rate", "1"),
        ("memory://?lost_reply_rate=nan", "lost_reply_rate", "number"),
        ("memory://?seed=7.5", "seed", "whole number"),
        ("memory://?seed=7&seed=8", "seed", "once"),
        ("memory://?archive=", "archive", "file:///var/lib/jobs"),
        ("memory://?archive=ftp://jobs", "archive", "unknown scheme; use one of file:///var/lib/jobs"),
        ("memory://?archive=/mnt/archive", "archive", "put file:// in front"),
        ("memory://?archive=https://jobs.example.com", "archive", "give its own address"),
        ("memory://?archive=lambda://osqueue-dev", "archive", "give its own address"),
        ("memory://?archive=s3://", "archive", "names a bucket"),
        ("memory://?archive=s3://a?region=b", "archive", "percent-encoded"),
        ("memory://?archive=s3%3A%2F%2Fa%3Fregoin%3Db", "archive", "no option 'regoin'; it takes endpoint"),
        ("memory://?archive=memory%3A%2F%2F%3Farchive%3Dmemory%3A%2F%2F", "archive", "leave that out"),
        ("memory://?archive=memory://a&archive=memory://b", "archive", "once"),
        ("memory://a?archive=memory://a", "archive", "another bucket, prefix or folder"),
        ("file:///tmp/a?archive=file:///tmp/a", "archive", "another bucket, prefix or folder"),
        ("file:///tmp/a?archive=file:///tmp/x/../a/", "archive", "another bucket, prefix or folder"),
        ("s3://jobs/a?archive=s3://jobs/a/", "archive", "another bucket, prefix or folder"),
    ],
)
def test_a_wrong_address_is_rejected_with_field_and_remedy(address: str, field: str, remedy: str) -> None:
    with pytest.raises(Rejected) as caught:
        open_store(address)
    assert caught.value.field == field
    assert remedy in caught.value.message


@pytest.mark.parametrize(
    "address", ["memory://?latency_ms=60000", "memory://?error_rate=1&lost_reply_rate=1.0"]
)
def test_options_at_their_limits_are_taken(address: str) -> None:
    open_store(address)


@pytest.mark.parametrize(
    "address",
    ["https://abc.example.com", "LAMBDA://osqueue-dev"],
)
def test_an_api_is_no_store(address: str) -> None:
    with pytest.raises(NotSupported, match="s3://bucket/prefix"):
        open_store(address)


@pytest.mark.parametrize(
    ("options", "field"), [("", "region"), ("?region=us-west-2&endpoint=http://127.0.0.1:1", "endpoint")]
)
def test_a_directory_bucket_is_at_aws_in_a_region_that_is_named(
    options: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Rejected, match="directory bucket") as raised:
        open_store(f"s3://jobs--usw2-az1--x-s3/prefix{options}")
    assert raised.value.field == field
    assert not open_store("s3://jobs--usw2-az1--x-s3/prefix?region=us-west-2").ordered


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIAEXAMPLE:hunter2@jobs/prefix",
        "s3://jobs?endpoint=http://AKIAEXAMPLE:hunter2@host:9000",
        "gs://jobs?endpoint=http://AKIAEXAMPLE:hunter2@host:9000",
        "az://hunter2@account.blob.core.windows.net/prefix",
        "az://jobs?endpoint=https://account.blob.core.windows.net?sig=hunter2",
        "s3://jobs?endpoint=hunter2",
        "s3://jobs?secret_access_key=hunter2",
        "s3+AKIAEXAMPLE://hunter2@jobs",
        "redis://:hunter2@",
        "valkey://AKIAEXAMPLE:hunter2@host:port",
        "valkey://host:6379/0/hunter2:AKIAEXAMPLE",
        "AKIAEXAMPLE:hunter2@jobs",
        "memory://?seed=hunter2",
        "memory://?archive=s3://AKIAEXAMPLE:hunter2@jobs/prefix",
        "memory://?archive=hunter2",
        "memory://?archive=https://AKIAEXAMPLE:hunter2@host",
    ],
)
def test_credentials_in_an_address_never_reach_the_message(address: str) -> None:
    with pytest.raises(Rejected) as caught:
        open_store(address)
    error: BaseException | None = caught.value
    assert "hunter2" not in str(error)
    assert "AKIAEXAMPLE" not in str(error)
    assert caught.value.__cause__ is None
