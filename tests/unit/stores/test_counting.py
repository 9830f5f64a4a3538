"""What takes a store object counts its requests, and refuses an address in its place."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import AsyncPacer, AsyncQueue, Pacer, Queue, Rejected
from osqueue.bulk.writer import BulkWriter
from osqueue.election.blocking import Election


@pytest.mark.parametrize("kind", [Queue, AsyncQueue, Pacer, AsyncPacer, Election, BulkWriter])
@pytest.mark.parametrize("address", ["memory://", "http://127.0.0.1:8000"])
def test_an_address_in_place_of_a_store_is_refused_with_the_remedy(kind: Any, address: str) -> None:
    with pytest.raises(Rejected, match="Call connect") as refused:
        kind(address, "stripe")
    assert refused.value.field == "store"
