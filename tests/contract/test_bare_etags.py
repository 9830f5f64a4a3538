"""A server that compares a condition, letter by letter, with an ETag that has no quotes: ``etag=bare``."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from osqueue import Queue
from osqueue.errors import OsqueueError
from osqueue.stores.address import open_store
from osqueue.stores.base import (
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    Unchanged,
)
from osqueue.stores.s3_boto import BotoStore
from osqueue.stores.s3_place import S3Options, condition
from tests.support.replies import version_of
from tests.support.s3_relay import Relay, relaying


@pytest.fixture
def literal_endpoint(s3_endpoint: str) -> Iterator[str]:
    """In front of the S3 server: with bare ETags in a condition it works, with quoted ones nothing ever matches."""

    class Literal(Relay):
        behind = s3_endpoint

        def handle_any(self) -> None:
            headers = dict(self.headers.items())
            for name in ("If-Match", "If-None-Match"):
                if (etag := self.headers.get(name)) not in (None, "*"):
                    del headers[next(each for each in headers if each.lower() == name.lower())]
                    headers[name] = '"of no object"' if etag.startswith('"') else f'"{etag}"'
            self.relay(self.command, self.path, headers, self.body())

    with relaying(Literal) as endpoint:
        yield endpoint


@pytest.fixture(params=["obstore", "boto3"])
def store(request: pytest.FixtureRequest, literal_endpoint: str, s3_bucket: str) -> Store:
    if request.param == "boto3":
        return BotoStore(
            boto3.Session(), s3_bucket, "jobs", literal_endpoint, None, S3Options(bare_etags=True)
        )
    return open_store(f"s3://{s3_bucket}/jobs?endpoint={literal_endpoint}&etag=bare")


def test_conditions_hold_and_are_refused_as_everywhere(store: Store) -> None:
    first = version_of(store.perform(PutIfAbsent("head", b"one")))
    assert store.perform(Get("head", unless=first)) == Unchanged()
    second = version_of(store.perform(PutIfMatch("head", b"two", first)))
    assert store.perform(PutIfMatch("head", b"three", first)) == Refused()
    assert store.perform(DeleteIfMatch("head", first)) == Refused()
    found = store.perform(Get("head", unless=first))
    assert isinstance(found, Found)
    assert (found.body, found.version) == (b"two", second)
    assert store.perform(DeleteIfMatch("head", second)) == Deleted()


def test_a_queue_works_there_with_the_option_and_only_with_it(literal_endpoint: str, s3_bucket: str) -> None:
    address = f"s3://{s3_bucket}/jobs?endpoint={literal_endpoint}"
    writers: list[Queue[int]] = [Queue.connect(f"{address}&etag=bare", "mail") for _ in range(2)]
    for number, q in enumerate(writers * 2):
        q.enqueue(number)
    assert [lease.payload for lease in writers[0].claim(9)] == [0, 1, 2, 3]
    with pytest.raises(OsqueueError):
        Queue[int].connect(f"{address}&etag=quoted", "mail", timeout=2).enqueue(4)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("version", "sent"), [('"ab"', "ab"), ("ab", "ab"), ('W/"ab"', 'W/"ab"')], ids=["quoted", "bare", "weak"]
)
def test_only_the_quotes_around_an_etag_are_left_away(version: str, sent: str, bare: bool) -> None:
    assert condition(version, bare) == (sent if bare else version)
