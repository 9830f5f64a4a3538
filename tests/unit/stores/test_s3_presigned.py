"""What the requests that S3 stores sign allow."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from osqueue.stores.base import AnnouncedPut, Get, PresignedRequest
from osqueue.stores.file import FileStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.s3 import S3Store

SHA256 = "ab" * 32


@pytest.fixture
def store(aws_environment: None) -> S3Store:
    return S3Store("bucket", "some/prefix", region="eu-west-1")


def _query(found: PresignedRequest | None) -> dict[str, list[str]]:
    assert found is not None
    return parse_qs(urlsplit(found.url).query)


def test_what_is_written_is_written_once_and_has_the_announced_length_and_digest(store: S3Store) -> None:
    found = store.presigned(AnnouncedPut("a/uploads/1", 5, SHA256), 900)
    assert found is not None
    query = _query(found)
    assert set(query["X-Amz-SignedHeaders"][0].split(";")) == {"host", *found.headers}
    assert found.headers["if-none-match"] == "*"
    assert found.headers["content-length"] == "5"
    assert found.headers["x-amz-checksum-sha256"] == "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="
    assert query["X-Amz-Expires"] == ["900"]


def test_what_is_read_is_one_range_and_nothing_beside_it(store: S3Store) -> None:
    found = store.presigned(Get("a/bodies/1", start=10, length=5), 900)
    assert found is not None
    assert found.headers == {"range": "bytes=10-14"}
    assert _query(found)["X-Amz-SignedHeaders"] == ["host;range"]


def test_the_host_is_that_of_the_buckets_region(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    found = store.presigned(Get("a/bodies/1", start=0, length=5), 900)
    assert found is not None
    parts = urlsplit(found.url)
    assert parts.hostname == "bucket.s3.eu-west-1.amazonaws.com"
    assert parts.path == "/some/prefix/a/bodies/1"


def test_other_stores_sign_nothing(tmp_path: object) -> None:
    get = Get("a", start=0, length=1)
    assert MemoryStore().presigned(get, 900) is None
    assert FileStore(str(tmp_path)).presigned(get, 900) is None
