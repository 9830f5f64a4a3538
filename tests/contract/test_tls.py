"""Servers with certificates of an authority of one's own, virtual hosts and keys of KMS: options of addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest

from osqueue import Queue
from osqueue.errors import OsqueueError, Unavailable
from osqueue.stores.address import open_store
from osqueue.stores.base import AnnouncedPut, Get, List, Listed, Put, PutIfAbsent, Store, Written
from osqueue.stores.s3 import S3Store
from osqueue.stores.s3_boto import BotoStore
from tests.support.certificates import HOST, LASTS, OVER, Authority, served
from tests.support.replies import error_of
from tests.support.told_server import ToldServer, told_server
from tests.support.valkey_server import ValkeyServer, valkey_server

CLIENTS = pytest.mark.parametrize("client", ["obstore", "boto3"])
KEY = "arn:aws:kms:us-east-1:123456789012:key/abcd-1234"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def stub(aws_environment: None) -> Iterator[ToldServer]:
    with told_server() as told:
        told.respond = takes
        yield told


def takes(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    """Every write succeeds."""
    handler.send_response(200)
    handler.send_header("ETag", '"0123"')
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def opened(client: str, address: str) -> Store:
    """The store at an address, or boto3's with the same options."""
    store = open_store(address).inner
    assert isinstance(store, S3Store)
    if client == "obstore":
        return store
    return BotoStore(boto3.Session(), store.bucket, store.prefix, store.endpoint, store.region, store.options)


def refusal(store: Store) -> OsqueueError:
    error = error_of(store.perform(Put("a", b"x")))
    assert isinstance(error, Unavailable)
    assert error.permanent
    assert "certificate" in error.message
    assert "?ca=" in error.message
    return error


@CLIENTS
def test_an_authority_is_trusted_where_the_address_names_it(
    aws_environment: None, authority: Authority, tmp_path: Path, client: str
) -> None:
    other = Authority(tmp_path, "other")
    with told_server(served(authority.signed())) as told:
        told.respond = takes
        address = f"s3://some-bucket?endpoint={told.endpoint}"
        assert isinstance(opened(client, f"{address}&ca={authority.bundle}").perform(Put("a", b"x")), Written)
        for not_named in (address, f"{address}&ca={other.bundle}"):
            error = refusal(opened(client, not_named))
            assert "authority that is not trusted here" in error.message
        assert len(told.arrived) == 1


def test_a_listing_by_signed_urls_trusts_the_authority_of_the_address(
    aws_environment: None, authority: Authority
) -> None:
    with told_server(served(authority.signed())) as server:
        server.answers(
            200,
            body="<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a//x</Key><Size>0</Size>"
            "<LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>",
        )
        store = open_store(f"s3://some-bucket?endpoint={server.endpoint}&ca={authority.bundle}")
        assert store.perform(List("a/")) == Listed(("a//x",), more=False)
        assert len(server.arrived) == 2


@CLIENTS
def test_the_authorities_of_an_s3_address_are_the_only_ones(
    aws_environment: None,
    monkeypatch: pytest.MonkeyPatch,
    authority: Authority,
    tmp_path: Path,
    client: str,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))  # what the system trusts
    with told_server(served(authority.signed())) as told:
        bundle = Authority(tmp_path, "other").bundle
        refusal(opened(client, f"s3://some-bucket?endpoint={told.endpoint}&ca={bundle}"))
        assert told.arrived == []


@CLIENTS
@pytest.mark.parametrize(
    ("host", "until", "said"),
    [("s3.example.org", LASTS, "is for another host"), ("10.0.0.1", LASTS, "host"), (HOST, OVER, "expired")],
)
def test_a_wrong_certificate_says_what_is_wrong_with_it(
    aws_environment: None, authority: Authority, client: str, host: str, until: object, said: str
) -> None:
    with told_server(served(authority.signed(host, until))) as told:  # type: ignore[arg-type]
        store = opened(client, f"s3://some-bucket?endpoint={told.endpoint}&ca={authority.bundle}")
        assert said in refusal(store).message
        assert told.arrived == []


@CLIENTS
def test_a_virtual_host_has_the_bucket_in_its_name(stub: ToldServer, client: str) -> None:
    # A name that leads to this machine under every resolver: the bucket 127 of the host 0.0.1.
    port = urlsplit(stub.endpoint).port
    address = f"s3://127/jobs?endpoint=http://0.0.1:{port}&addressing=virtual"
    assert isinstance(opened(client, address).perform(PutIfAbsent("a", b"x")), Written)
    assert stub.arrived == ["PUT /jobs/a"]
    assert stub.headers[0]["host"] == f"127.0.0.1:{port}"


@CLIENTS
def test_every_write_names_the_key_it_is_encrypted_under(stub: ToldServer, client: str) -> None:
    store = opened(client, f"s3://some-bucket?endpoint={stub.endpoint}&kms={KEY}")
    for request in (Put("a", b"x"), PutIfAbsent("a", b"x")):
        assert isinstance(store.perform(request), Written)
    for headers in stub.headers:
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == KEY
    assert len(stub.headers) == 2


@CLIENTS
def test_what_is_presigned_has_the_host_and_the_key(aws_environment: None, client: str) -> None:
    address = f"s3://jobs?endpoint=https://s3.example.org&addressing=virtual&kms={KEY}"
    store = opened(client, address)
    put = store.presigned(AnnouncedPut("a", 1, "ab" * 32), 60)
    get = store.presigned(Get("a", start=0, length=1), 60)
    assert put is not None
    assert get is not None
    assert {urlsplit(each.url).netloc for each in (put, get)} == {"jobs.s3.example.org"}
    assert put.headers["x-amz-server-side-encryption-aws-kms-key-id"] == KEY
    assert "x-amz-server-side-encryption-aws-kms-key-id" in put.url


def test_a_valkey_server_shows_a_certificate_too(
    valkey: ValkeyServer, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    for host in (HOST, "valkey.example.org"):
        with tls_valkey(tmp_path / host, authority, host) as port:
            address = f"valkeys://{HOST}:{port}/0/jobs?ca="
            refused = (f"{address}{other.bundle}", address.partition("?")[0])
            if host == HOST:
                with Queue[int].connect(f"{address}{authority.bundle}", "mail") as q:
                    q.enqueue(1)
                    assert [lease.payload for lease in q.claim()] == [1]
                for each in refused:
                    assert "authority that is not trusted here" in refusal(open_store(each)).message
            else:
                assert "for another host" in refusal(open_store(f"{address}{authority.bundle}")).message


@contextmanager
def tls_valkey(folder: Path, authority: Authority, host: str) -> Iterator[int]:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
    certificate, key = authority.signed(host)
    tls = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-auth-clients", "no")
    with valkey_server(folder, "--tls-port", str(port), *tls, "--tls-ca-cert-file", str(authority.bundle)):
        yield port
