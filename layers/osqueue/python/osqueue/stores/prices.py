"""What clouds ask for requests and storage: list prices in US dollars, as published in 2026.

S3's are those of us-east-1, Google's of standard storage in one region, as us-central1. Those of S3 Express One Zone
are of April 2025, and not read again since. Azure's depend on region, tier and redundancy, and are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from .address import archive_of
from .base import Store
from .counting import CountingStore
from .s3_place import is_directory
from .split import SplitStore
from .wrapped import WrappedStore

MILLION = 1_000_000


class StorePrices(Struct, frozen=True):
    """Dollars a million requests, and a gigabyte a month."""

    name: str
    put: float  # also LIST
    get: float
    gigabyte_month: float
    gigabyte_written: float = 0.0
    gigabyte_read: float = 0.0

    def requests(self, counts: Mapping[str, float]) -> float:
        """Dollars for requests by kind, as a ``CountingStore`` counts them. Deletions are free."""
        dear = counts.get("put", 0) + counts.get("list", 0)
        return (dear * self.put + counts.get("get", 0) * self.get) / MILLION


STANDARD = StorePrices("S3 Standard", put=5.0, get=0.4, gigabyte_month=0.023)
EXPRESS = StorePrices(
    "S3 Express One Zone",
    put=1.13,
    get=0.03,
    gigabyte_month=0.11,
    gigabyte_written=0.0032,
    gigabyte_read=0.0006,
)
GOOGLE = StorePrices("Google Cloud Storage, one region", put=5.0, get=0.4, gigabyte_month=0.02)

_UNKNOWN = "az:"  # it asks for money


def prices_at(address: str) -> StorePrices | None:
    """What requests at an address cost, but those to its archive; None: nothing, or nobody here knows.

    See ``is_free``.
    """
    scheme, _, place = address.partition("://")
    if scheme.lower() == "gs":
        return GOOGLE
    if scheme.lower() != "s3":
        return None
    return EXPRESS if is_directory(re.split("[/?]", place)[0]) else STANDARD


def is_free(address: str) -> bool:
    """Whether nobody asks for money by the request there."""
    return prices_at(address) is None and not address.lower().startswith(_UNKNOWN)


def bill_of(store: CountingStore, address: str) -> Callable[[], float] | None:
    """Tells the dollars that all requests so far have cost, those to an archive of its own by the prices there.

    None: they cost nothing, or nobody here knows what.
    """
    archive, apart = archive_of(address), _archive_in(store)
    own = prices_at(address)
    if archive is None or apart is None:
        return None if own is None else lambda: own.requests(store.requests)
    there = prices_at(archive)
    if (own is None and there is None) or any(
        prices_at(each) is None and not is_free(each) for each in (address, archive)
    ):
        return None

    def dollars() -> float:
        asked = apart.requests
        rest = {kind: max(0, count - asked[kind]) for kind, count in store.requests.items()}
        return (own.requests(rest) if own else 0.0) + (there.requests(asked) if there else 0.0)

    return dollars


def _archive_in(store: Store) -> CountingStore | None:
    """The archive's store in one that was opened by its address."""
    while isinstance(store, WrappedStore):
        store = store.inner
    apart = store.second if isinstance(store, SplitStore) else None
    return apart if isinstance(apart, CountingStore) else None
