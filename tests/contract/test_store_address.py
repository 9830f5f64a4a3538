"""An address of S3 opens a store that works below its prefix."""

from __future__ import annotations

from osqueue.stores.address import open_store
from osqueue.stores.base import List, PutIfAbsent, Written


def test_an_s3_address_works(s3_endpoint: str, s3_bucket: str) -> None:
    store = open_store(f"s3://{s3_bucket}/prefix?endpoint={s3_endpoint}&region=us-east-1")
    assert isinstance(store.put_if_absent(PutIfAbsent("a/key", b"x")), Written)
    below = open_store(f"s3://{s3_bucket}?endpoint={s3_endpoint}")
    assert below.list(List("")).keys == ("prefix/a/key",)
