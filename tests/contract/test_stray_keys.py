"""Keys of other programs that obstore cannot name: listings go past them, and requests for them fail for good."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import Request, urlopen

import boto3
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from osqueue import Queue
from osqueue.clock import MACHINE
from osqueue.commit.driver import BlockingDriver
from osqueue.maintenance import removal, strays
from osqueue.objects import archive, layout
from osqueue.objects.staging import UPLOADS, UPLOADS_SHARD
from osqueue.stores import azure, s3
from osqueue.stores.azure import AzureStore
from osqueue.stores.base import Delete, Get, List, Listed, Put, Store
from osqueue.stores.gcs import GcsStore
from osqueue.stores.objects import ObjectStore
from osqueue.stores.s3 import S3Store
from osqueue.stores.s3_place import PLAIN, S3Options
from osqueue.stores.stray_keys import listing_query
from tests.support import azure_server, gcs_server
from tests.support.patience import PATIENCE
from tests.support.replies import error_of

STRAYS = ("a/%2E%2E/.", "a/..", "a/./b", "a//x", "a/z//")
KEYS = ("a/%2E%2E/.", "a/'", "a/..", "a/./b", "a//x", "a/a", "a/b", "a/z//")  # as listings sort them
SIGNER = rsa.generate_private_key(65537, 2048)


def gcs_with(service: gcs_server.GcsServer, bucket: str) -> tuple[ObjectStore, Callable[[str], None]]:
    def put(key: str) -> None:
        service.buckets[bucket][f"p/{key}"] = gcs_server.GcsObject(b"", 1, 1.0)

    return GcsStore(bucket, "p", service.endpoint), put


def azure_with(endpoint: str, place: str) -> tuple[ObjectStore, Callable[[str], None]]:
    container, _, prefix = place.partition("/")

    def put(key: str) -> None:
        url = f"{endpoint}/{container}/{quote(f'{prefix}/{key}').replace('/.', '/%2E')}"
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Length": "0"}
        target = f"{url}?{azure_server.shared_access_signature()}"
        with urlopen(Request(target, method="PUT", headers=headers, data=b""), timeout=PATIENCE):  # noqa: S310
            pass

    return AzureStore(container, prefix, endpoint), put


def s3_with(endpoint: str | None, bucket: str) -> tuple[ObjectStore, Callable[[str], None]]:
    direct = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")

    def put(key: str) -> None:
        direct.put_object(Bucket=bucket, Key=f"p/{key}", Body=b"")

    return S3Store(bucket, "p", endpoint), put


@pytest.fixture
def signing_key(gcs: gcs_server.GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    key = SIGNER.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    account = {"private_key": key.decode(), "private_key_id": "1", "client_email": "jobs@example.com"}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))


@pytest.fixture(params=["s3", "s3-express", "gs", "az", "az by a signature"])
def opened(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, Callable[[str], None]]]:
    def value(name: str) -> Any:
        return request.getfixturevalue(name)

    if request.param.startswith("s3"):
        in_folders = request.param == "s3-express"
        endpoint = None if in_folders else value("s3_endpoint")
        store, put = s3_with(endpoint, value("directory_bucket" if in_folders else "s3_bucket"))
        if not in_folders:
            monkeypatch.setattr(s3, "find_spec", lambda name: None)  # signed URLs need no boto3
    elif request.param == "gs":
        value("signing_key")
        store, put = gcs_with(value("gcs"), value("gcs_bucket"))
    else:
        store, put = azure_with(value("azure_endpoint"), value("azure_place"))
    if request.param == "az by a signature":
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
        monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", azure_server.shared_access_signature())
    with closing(store):
        yield store, put


def test_listings_go_past_keys_that_no_client_names(opened: tuple[Store, Callable[[str], None]]) -> None:
    store, put = opened
    for key in (*KEYS, "b/x"):
        put(key)
    assert store.perform(List("a/")) == Listed(KEYS, more=False)
    assert asyncio.run(store.perform_async(List("a/"))) == Listed(KEYS, more=False)
    for at, key in enumerate(KEYS):
        rest = KEYS[at + 1 :]
        assert store.perform(List("a/", after=key, limit=2)) == Listed(rest[:2], more=len(rest) > 2)
    assert store.perform(List("a/.")) == Listed(("a/..", "a/./b"), more=False)


def test_listings_by_signed_urls_go_on_from_page_to_page(
    opened: tuple[Store, Callable[[str], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, put = opened
    for key in KEYS:
        put(key)
    monkeypatch.setattr(azure, "PAGE_KEYS", 3)
    monkeypatch.setattr(gcs_server, "PAGE_KEYS", 3)
    monkeypatch.setattr(s3, "listing_query", lambda *given: {**listing_query(*given), "max-keys": "3"})
    assert store.perform(List("a/")) == Listed(KEYS, more=False)
    assert store.perform(List("a/", limit=7)) == Listed(KEYS[:7], more=True)
    assert store.perform(List("a/", after="a//x", limit=3)) == Listed(KEYS[5:], more=False)


def test_a_queue_works_among_such_keys_and_the_doctor_names_them(
    opened: tuple[Store, Callable[[str], None]],
) -> None:
    store, put = opened
    q: Queue[int] = Queue(store, "mail")
    q.enqueue(1)
    driver = BlockingDriver(store, MACHINE)
    folder = archive.folder_of("mail")
    for place in (layout.REGISTER, folder, f"{layout.root_of('mail', 0)}intents/"):
        put(f"{place}/x")
    assert driver.run(layout.registered()) == ["mail"]
    assert list(q.history()) == []
    q.enqueue(2)
    assert q.reap().archived == 0
    (at_register,) = driver.run(strays.examine_register())
    (in_archive,) = driver.run(strays.examine("mail"))
    assert f"{layout.REGISTER}/x" in at_register.found
    assert f"{folder}/x" in in_archive.found


@pytest.mark.parametrize("opened", ["s3", "gs", "az"], indirect=True)
def test_purges_and_removals_leave_such_keys(
    opened: tuple[Store, Callable[[str], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, put = opened
    q: Queue[int] = Queue(store, "mail")
    job = q.enqueue(1)
    driver = BlockingDriver(store, MACHINE)
    uploads = f"{layout.root_of('mail', UPLOADS_SHARD)}{UPLOADS}"
    for key in ("/x", "//x"):
        put(uploads + key)
    q.purge(job.job_id)
    assert store.perform(List(uploads)) == Listed((f"{uploads}//x",), more=False)
    monkeypatch.setattr(s3, "find_spec", find_spec)  # conditional deletion needs boto3
    found = driver.run(removal.look("mail"))
    assert driver.run(removal.remove(found, MACHINE, with_archive=True)) > 0
    assert not driver.run(removal.look("mail")).exists(with_archive=True)


def test_requests_for_such_keys_fail_for_good_and_name_the_command(
    opened: tuple[Store, Callable[[str], None]],
) -> None:
    store, _ = opened
    for key in (*STRAYS, "a/\x1f", "a/\x7f"):
        for request in (Get(key), Put(key, b""), Delete(("a/b", key))):
            error = error_of(store.perform(request))
            assert error.permanent
            assert repr(key)[1:-1] in error.message
    error = error_of(store.perform(Get("a//x")))
    assert re.search(
        r"gcloud storage rm gs://\S+/a//x$|az storage blob delete .* --name \S+/a//x$"
        r"|aws s3api delete-object --bucket \S+ --key p/a//x$",
        error.message,
    )


def test_the_signature_of_a_listing_covers_its_query(
    gcs: gcs_server.GcsServer, gcs_bucket: str, signing_key: None
) -> None:
    store, put = gcs_with(gcs, gcs_bucket)
    put("a//é +")
    with closing(store):
        assert store.perform(List("a/", after="a/ '")) == Listed(("a//é +",), more=False)
    url = urlsplit(gcs.asked[-1].removeprefix("GET "))
    assert url.path == f"/{gcs_bucket}"
    query = dict(parse_qsl(url.query))
    signature = bytes.fromhex(query.pop("X-Goog-Signature"))
    assert (query["list-type"], query["prefix"], query["start-after"]) == ("2", "p/a/", "p/a/ '")
    canonical = "&".join(f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query))
    text = f"GET\n{url.path}\n{canonical}\nhost:{store.listing_headers['Host']}\n\nhost\nUNSIGNED-PAYLOAD"
    scope = query["X-Goog-Credential"].partition("/")[2]
    digest = hashlib.sha256(text.encode()).hexdigest()
    signed = f"GOOG4-RSA-SHA256\n{query['X-Goog-Date']}\n{scope}\n{digest}"
    SIGNER.public_key().verify(signature, signed.encode(), padding.PKCS1v15(), hashes.SHA256())


@pytest.mark.parametrize(
    ("endpoint", "options", "server"),
    [
        (None, PLAIN, "https://s3.eu-west-1.amazonaws.com/jobs"),
        (None, S3Options(addressing="virtual"), "https://jobs.s3.eu-west-1.amazonaws.com/"),
        ("http://host:9000/", PLAIN, "http://host:9000/jobs"),
        ("http://host:9000", S3Options(addressing="virtual"), "http://jobs.host:9000/"),
    ],
)
def test_s3_signs_the_query_of_a_listing_for_the_server_of_its_bucket(
    aws_environment: None, endpoint: str | None, options: S3Options, server: str
) -> None:
    store = S3Store("jobs", "p", endpoint, "eu-west-1", options)
    with closing(store):
        url = urlsplit(next(store.listing_url("p/a/", "p/a/ 'é+", "")).blocking().partition("#")[0])
    assert f"{url.scheme}://{url.netloc}{url.path}" == server
    query = dict(parse_qsl(url.query))
    signature = query.pop("X-Amz-Signature")
    assert (query["prefix"], query["start-after"]) == ("p/a/", "p/a/ 'é+")
    canonical = "&".join(f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query))
    text = f"GET\n{url.path}\n{canonical}\nhost:{url.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
    scope = query["X-Amz-Credential"].partition("/")[2]
    key = b"AWS4testing"
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    digest = hashlib.sha256(text.encode()).hexdigest()
    signed = f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{digest}"
    assert hmac.digest(key, signed.encode(), hashlib.sha256).hex() == signature


def test_without_a_signature_the_error_of_a_listing_names_the_key_and_the_remedies(
    gcs: gcs_server.GcsServer,
    gcs_bucket: str,
    directory_bucket: str,
    azure_endpoint: str,
    azure_place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "find_spec", lambda name: None)
    for (store, put), remedies in (
        (s3_with(None, directory_bucket), ["osqueue[boto3]", f"{directory_bucket} --key p/a//x"]),
        (gcs_with(gcs, gcs_bucket), ["Token Creator", f"gs://{gcs_bucket}/p/a//x"]),
        (azure_with(azure_endpoint, azure_place), ["AZURE_STORAGE_ACCOUNT_KEY", "az storage blob delete"]),
    ):
        for key in ("a//x", f"{layout.REGISTER}/x"):
            put(key)
        monkeypatch.setattr(azure, "_KEYS", ())  # obstore has read it
        error = error_of(store.perform(List("a/")))
        (found,) = BlockingDriver(store, MACHINE).run(strays.examine_register())
        store.close()
        assert error.permanent
        for text in ("a//x", *remedies):
            assert text in error.message
        assert found.level == "trouble"
        assert f"{layout.REGISTER}/x" in found.found
