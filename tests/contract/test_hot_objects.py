"""A body that looks like what a store writes for objects that are replaced again and again: it is kept as any other."""

from __future__ import annotations

import pytest

from osqueue.stores.base import Found, Get, Put, PutIfMatch, Refused, Store, Written
from osqueue.stores.file_slots import MAGIC, PLAIN, SLOT_BYTES_MIN, SlotLayout, new_file
from osqueue.testing.store_contract.opening import create, found

LOOKALIKES = (MAGIC, MAGIC[:-1], PLAIN, PLAIN + MAGIC, new_file(SlotLayout(7, SLOT_BYTES_MIN), b"old", 1))


@pytest.mark.parametrize("body", LOOKALIKES, ids=["slots", "nearly", "plain", "both", "all of it"])
def test_no_body_is_taken_for_the_stores_own(store: Store, body: bytes) -> None:
    version = create(store, "a", body)
    assert found(store, "a") == Found(body, version, found(store, "a").modified_ms)
    for start, length in ((0, 4), (3, 5), (8, None), (len(body) - 1, 9), (len(body), None)):
        part = store.perform(Get("a", start=start, length=length))
        assert isinstance(part, Found)
        assert part.body == body[start : len(body) if length is None else start + length]
    assert store.perform(PutIfMatch("a", body + b"!", "other")) == Refused()
    for write in (PutIfMatch("a", body + b"!", version), Put("a", body + b"?")):
        assert isinstance(store.perform(write), Written)
        assert found(store, "a").body == write.body
