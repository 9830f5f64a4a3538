"""Keys of other programs that obstore cannot name: listings go past them, and requests for them fail for good."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import Request, urlopen

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from osqueue import Queue
from osqueue.clock import MACHINE
from osqueue.commit.driver import BlockingDriver
from osqueue.maintenance import strays
from osqueue.objects import archive, layout
from osqueue.stores import azure
from osqueue.stores.azure import AzureStore
from osqueue.stores.base import Delete, Get, List, Listed, Put, Store
from osqueue.stores.gcs import GcsStore
from osqueue.stores.objects import ObjectStore
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


@pytest.fixture
def signing_key(gcs: gcs_server.GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    key = SIGNER.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    account = {"private_key": key.decode(), "private_key_id": "1", "client_email": "jobs@example.com"}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))


@pytest.fixture(params=["gs", "az", "az by a signature"])
def opened(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, Callable[[str], None]]]:
    def value(name: str) -> Any:
        return request.getfixturevalue(name)

    if request.param == "gs":
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
        r"gcloud storage rm gs://\S+/a//x$|az storage blob delete .* --name \S+/a//x$", error.message
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


def test_without_a_signature_the_error_of_a_listing_names_the_key_and_the_remedies(
    gcs: gcs_server.GcsServer,
    gcs_bucket: str,
    azure_endpoint: str,
    azure_place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for (store, put), remedies in (
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
