"""What clouds ask for requests and storage: list prices in US dollars, as published in 2026.

S3's are those of us-east-1, Google's of standard storage in one region, as us-central1. Those of S3 Express One Zone
are of April 2025, and not read again since. Azure's depend on region, tier and redundancy, and are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from .s3_place import is_directory

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
    """What requests at an address cost; None: nothing, or nobody here knows. See ``is_free``."""
    scheme, _, place = address.partition("://")
    if scheme.lower() == "gs":
        return GOOGLE
    if scheme.lower() != "s3":
        return None
    return EXPRESS if is_directory(re.split("[/?]", place)[0]) else STANDARD


def is_free(address: str) -> bool:
    """Whether nobody asks for money by the request there."""
    return prices_at(address) is None and not address.lower().startswith(_UNKNOWN)
