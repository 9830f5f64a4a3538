"""Google Cloud Storage through obstore, which speaks its XML API.

A version is the object's generation, a number that never comes back, and its ETag: writes are told the one, reads the
other, since reads know no condition on generations. An ETag is a hash of the content, so what was written again with
equal bytes reads as unchanged, with a version that no write is allowed any more. A store therefore remembers which
versions were refused, and reads unconditionally where it is asked for news of one.

An object is written once a second, says Google, and answers 429 to whoever is much quicker. Such a write had no effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit

from .. import forks
from ..errors import NotSupported
from .base import (
    FILE_NAME_BYTES_MAX,
    KEY_BYTES_MAX,
    DeleteIfMatch,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
)
from .faults import FaultWords, StoreFault
from .objects import Call, ObjectStore, Steps
from .stray_keys import listing_query

DELETE_KEYS_MAX = 10  # obstore sends a request for each key, as many at a time
REFUSED_MAX = 1000  # versions that are remembered; what is asked for again is asked for at once
SIGNED_MINUTES = 15
NO_GENERATION = "1"  # of no object: what stands for a version of another store
SWAP_GAP_S = 1.0
_DEFAULT_HOST = "storage.googleapis.com"
_GOOGLE = ".googleapis.com"  # ends the names of its servers, also of those inside a private network

_CREDENTIALS = (
    "check the credentials (GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_SERVICE_ACCOUNT, or the service account of the "
    "machine) and the machine's clock"
)
_NO_CREDENTIALS = (
    "no Google credentials found: set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account, "
    "or run on a machine that has one"
)
_RIGHTS = "give the service account the role Storage Object User on the bucket"
_UNSIGNED = (
    "these credentials sign no URL. Remedy: set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account, or "
    "give the machine's service account the role Service Account Token Creator on itself."
)
_BUSY = "fewer writes a second; a queue that is replaced more often than once a second wants several shards"
_REMEDIES = {
    "NoSuchBucket": "create the bucket or correct the address",
    "InvalidBucketName": "correct the bucket's name in the address",
    "AccessDenied": _RIGHTS,
    "AuthenticationRequired": _CREDENTIALS,
    "InvalidSecurity": _CREDENTIALS,
    "UserProjectMissing": "use a bucket without requester pays",
    "SlowDown": _BUSY,
}


class GcsFault(StoreFault, frozen=True):
    """A request to Google Cloud Storage that did not end well."""

    words: ClassVar[FaultWords] = FaultWords(
        service="GCS",
        holder="bucket",
        no_credentials=_NO_CREDENTIALS,
        by_code=_REMEDIES,
        by_status={
            401: _CREDENTIALS,
            403: _RIGHTS,
            404: _REMEDIES["NoSuchBucket"],
            429: _BUSY,
            503: _BUSY,
        },
        permanent_codes=frozenset(_REMEDIES) - {"SlowDown"},
    )
    no_holder: ClassVar[str] = "NoSuchBucket"

    @property
    def too_soon(self) -> bool:
        return self.status == 429


class GcsStore(ObjectStore):
    """Objects in a bucket, below a prefix. Credentials are those that obstore finds."""

    scheme = "gs"
    extra = "gcs"
    fault = GcsFault
    # Without credentials obstore asks the machine's metadata for a token.
    unidentified = re.compile(r"(?s)/computeMetadata/.*error sending request(?!.*TimedOut)")
    delete_keys_max: ClassVar[int] = DELETE_KEYS_MAX
    removal: ClassVar[str] = "gcloud storage rm gs://{place}"
    listing_headers: ClassVar[dict[str, str]] = {"Host": _DEFAULT_HOST}  # the one that obstore signs

    def __init__(self, bucket: str, prefix: str = "", endpoint: str | None = None) -> None:
        super().__init__(bucket, prefix, endpoint or os.environ.get("GOOGLE_BASE_URL"))
        host = (urlsplit(self.endpoint).hostname or "") if self.endpoint else _DEFAULT_HOST
        self.swap_gap_s = SWAP_GAP_S if host.endswith(_GOOGLE) else 0.0
        # Other servers may keep objects as files.
        self.name_bytes_max = KEY_BYTES_MAX if host == _DEFAULT_HOST else FILE_NAME_BYTES_MAX
        self._refused: dict[str, None] = {}  # versions, the oldest first
        self._lock = forks.lock()

    def client(self, **manners: Any) -> Any:
        import obstore.store

        options: dict[str, Any] = {} if self.endpoint is None else {"base_url": self.endpoint}
        return obstore.store.GCSStore(self.bucket, **manners, **options)

    def version(self, meta: Any) -> str:
        return f"{meta['version']}:{meta['e_tag']}"

    def etag(self, version: str) -> str:
        return "" if version in self._refused else version.partition(":")[2]

    def match(self, version: str) -> dict[str, str]:
        return {"version": _generation(version)}

    def _steps(self, request: StoreRequest) -> Steps:
        reply = yield from super()._steps(request)
        if isinstance(reply, Refused) and isinstance(request, PutIfMatch | DeleteIfMatch):
            with self._lock:
                self._refused[request.version] = None
                if len(self._refused) > REFUSED_MAX:
                    del self._refused[next(iter(self._refused))]
        return reply

    def deletion(self, request: DeleteIfMatch) -> Generator[Call, Any, StoreReply | None]:
        """By a client made for this one request, whose every request has the condition.

        obstore's deletion takes none, and gives nobody the token that a request of our own would need.
        """
        condition = {"x-goog-if-generation-match": _generation(request.version)}
        client = self.client(**self.manners(default_headers=condition))
        yield self.call("delete", self.prefix + request.key, client=client)
        return None

    def listing_url(self, prefix: str, after: str, token: str) -> Generator[Call, Any, str]:
        """Sign the URL by a client made for this one request.

        obstore signs a query that its server's address has. It appends the bucket to that address, where the sign #
        keeps it out of the request.
        """
        from datetime import timedelta

        import obstore.store

        base = f"{(self.endpoint or f'https://{_DEFAULT_HOST}').rstrip('/')}/{quote(self.bucket)}"
        query = urlencode(listing_query(prefix, after, token), quote_via=quote)
        client = obstore.store.GCSStore(self.bucket, base_url=f"{base}?{query}#", **self.manners())
        try:
            url = yield self.call("sign", "GET", "", timedelta(minutes=SIGNED_MINUTES), client=client)
        except Exception as error:
            fault = self._fault(error)
            if fault.unidentified or fault.status in (401, 403):
                raise NotSupported(_UNSIGNED) from None
            raise
        return str(url).partition("#")[0]


def _generation(version: str) -> str:
    generation = version.partition(":")[0]
    return generation if generation.isdigit() else NO_GENERATION
