"""Azure Blob Storage through obstore. The version is the ETag, which no write ever gets again.

An object is deleted under a condition by a URL and one request of our own, for obstore's deletion takes no condition.
obstore signs the URL, unless there is a shared access signature, which opens any.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from ..clock import MACHINE
from ..errors import NotSupported
from .base import DeleteIfMatch, Failed, StoreReply
from .faults import FaultWords, StoreFault
from .objects import Call, ObjectStore, in_either_form
from .signed_requests import send

BATCH_KEYS_MAX = 256  # what Azure deletes in one request
PAGE_KEYS = 1000  # of a listing by a signed URL
SIGNED_MINUTES = 15
_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
_SIGNATURE_VERSION = "2023-11-03"  # of the service, whose signatures have these lines
_SIGNATURES = ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN")

_CREDENTIALS = (
    "check AZURE_STORAGE_ACCOUNT_NAME, the credentials in the environment (AZURE_STORAGE_ACCOUNT_KEY, "
    "AZURE_STORAGE_SAS_KEY, "
    "AZURE_CLIENT_ID with AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or an identity) and the machine's clock"
)
_NO_CREDENTIALS = (
    "no Azure credentials found: set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY, a shared access "
    "signature (AZURE_STORAGE_SAS_KEY) or those of an identity that may use the container"
)
_RIGHTS = (
    "give the identity the role Storage Blob Data Contributor on the storage account, a signature the rights "
    "to read, add, write, delete and list"
)
_KEPT = "remove leases, legal holds and policies of immutability from what lies below the prefix"
_BUSY = "fewer requests a second, or another storage account"
_REMEDIES = {
    "ContainerNotFound": "create the container or correct the address",
    "ContainerBeingDeleted": "wait until the container is gone, and create it again",
    "AccountIsDisabled": "enable the storage account",
    "AuthenticationFailed": _CREDENTIALS,
    "InvalidAuthenticationInfo": _CREDENTIALS,
    "NoAuthenticationInformation": _CREDENTIALS,
    "AuthorizationFailure": f"{_RIGHTS}, and let this network through the account's firewall",
    "AuthorizationPermissionMismatch": _RIGHTS,
    "InsufficientAccountPermissions": _RIGHTS,
    "UnauthorizedBlobOverwrite": _RIGHTS,
    "LeaseIdMissing": _KEPT,
    "BlobImmutableDueToPolicy": _KEPT,
    "BlobImmutableDueToLegalHold": _KEPT,
    "SnapshotsPresent": "delete the snapshots of what lies below the prefix",
    "InvalidBlobType": "keep nothing but block blobs below the prefix",
    "BlobArchived": "keep what lies below the prefix out of the archive tier",
    "ServerBusy": _BUSY,
    "OperationTimedOut": _BUSY,
}


class AzureFault(StoreFault, frozen=True):
    """A request to Azure that did not end well."""

    words: ClassVar[FaultWords] = FaultWords(
        service="Azure",
        holder="container",
        no_credentials=_NO_CREDENTIALS,
        by_code=_REMEDIES,
        by_status={
            401: _CREDENTIALS,
            403: _RIGHTS,
            404: _REMEDIES["ContainerNotFound"],
            409: _KEPT,
            412: _KEPT,
            429: _BUSY,
            503: _BUSY,
        },
        permanent_codes=frozenset(_REMEDIES) - {"ServerBusy", "OperationTimedOut", "ContainerBeingDeleted"},
    )
    no_holder: ClassVar[str] = "ContainerNotFound"

    @property
    def refused(self) -> bool:
        """A conditional request lost its race. Leases and policies answer with 412 and 409, too."""
        return (self.status, self.code) in (
            (412, "ConditionNotMet"),
            (412, "TargetConditionNotMet"),
            (412, ""),
            (409, "BlobAlreadyExists"),
        )


class AzureStore(ObjectStore):
    """Objects in a container, below a prefix. Account and credentials are those that obstore finds."""

    scheme = "az"
    extra = "azure"
    fault = AzureFault
    # Without credentials obstore asks the machine's metadata for an identity, in a GET with these words.
    unidentified = re.compile(
        r"(?s)Account must be specified|token request: Error performing GET \S*[?&]resource=.*error sending request"
        r"(?!.*TimedOut)"
    )
    delete_keys_max: ClassVar[int] = BATCH_KEYS_MAX
    removal: ClassVar[str] = "az storage blob delete --container-name {bucket} --name {key}"
    listing_headers: ClassVar[dict[str, str]] = {
        "x-ms-version": "2026-02-06"
    }  # the first that knows startFrom

    def __init__(self, container: str, prefix: str = "", endpoint: str | None = None) -> None:
        environment = os.environ
        endpoint = endpoint or environment.get("AZURE_STORAGE_ENDPOINT") or environment.get("AZURE_ENDPOINT")
        super().__init__(container, prefix, endpoint)
        self.account = environment.get("AZURE_STORAGE_ACCOUNT_NAME")

    @property
    def place(self) -> object:
        return (self.scheme, self.account, self.endpoint, self.bucket, self.prefix)

    def client(self, **manners: Any) -> Any:
        import obstore.store

        options: dict[str, Any] = {} if self.endpoint is None else {"endpoint": self.endpoint}
        return obstore.store.AzureStore(self.bucket, **manners, **options)

    def deletion(self, request: DeleteIfMatch) -> Generator[Call, Any, StoreReply | None]:
        from datetime import timedelta

        path = self.prefix + request.key
        try:
            url = yield self.call("sign", "DELETE", path, timedelta(minutes=SIGNED_MINUTES))
        except Exception as error:
            if "SASforSASNotSupported" not in str(error):
                raise
            url = self._opened(path, {})
        else:
            if "%" in urlsplit(url).path:
                return Failed(_unsigned())
        condition = {"If-Match": request.version}
        yield in_either_form(lambda: send("DELETE", url, condition, self.timeouts.request_s))
        return None

    def listing_url(self, prefix: str, after: str, token: str) -> Generator[Call, Any, str]:
        yield from ()
        query = {"restype": "container", "comp": "list", "prefix": prefix, "maxresults": str(PAGE_KEYS)}
        if token:
            query["marker"] = token
        elif after:  # a server that does not know it begins with the prefix
            query["startFrom"] = after
        if self.account and (key := _first_of(_KEYS)):
            return f"{self._base}?{urlencode(query | _signature(self.account, self.bucket, key))}"
        if _first_of(_SIGNATURES) is None:
            raise NotSupported(
                "an identity signs no listing. Remedy: set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY,"
                " or a shared access signature in AZURE_STORAGE_SAS_KEY."
            )
        return self._opened("", query)

    @property
    def _base(self) -> str:
        """The URL of the container."""
        return f"{self.endpoint or f'https://{self.account}.blob.core.windows.net'}/{self.bucket}"

    def _opened(self, path: str, query: Mapping[str, str]) -> str:
        """The URL of an object with the shared access signature, which obstore has taken for its credential."""
        signature = _first_of(_SIGNATURES)
        if signature is None or not (self.endpoint or self.account):
            raise NotSupported(
                "conditional deletion on Azure with a shared access signature needs it in AZURE_STORAGE_SAS_KEY, and"
                " AZURE_STORAGE_ACCOUNT_NAME or an endpoint. Remedy: set them, or use an account key or an identity."
            )
        # obstore takes it decoded or not. A + is one, and no blank.
        parameters = parse_qsl(unquote(signature).lstrip("?").replace("+", "%2B"))
        return f"{self._base}{path and '/' + quote(path)}?{urlencode([*query.items(), *parameters])}"


def _first_of(variables: Iterable[str]) -> str | None:
    return next((os.environ[name] for name in variables if os.environ.get(name)), None)


def _signature(account: str, container: str, key: str) -> dict[str, str]:
    """Return the parameters that let a URL list a container: a service's shared access signature by an account key."""
    import base64
    import hashlib
    import hmac
    from datetime import UTC, datetime

    until = datetime.fromtimestamp(MACHINE.now_ms() / 1000 + 60 * SIGNED_MINUTES, UTC)
    given = {"sp": "l", "se": f"{until:%Y-%m-%dT%H:%M:%SZ}", "sv": _SIGNATURE_VERSION, "sr": "c"}
    place = f"/blob/{account}/{container}"
    # Behind the times and the place: an identifier, addresses and a protocol. At the end: a snapshot, a scope of
    # encryption and five headers of the response. None of them is restricted.
    lines = (given["sp"], "", given["se"], place, "", "", "", given["sv"], given["sr"], *[""] * 7)
    digest = hmac.digest(base64.b64decode(key), "\n".join(lines).encode(), hashlib.sha256)
    return given | {"sig": base64.b64encode(digest).decode()}


def _unsigned() -> NotSupported:
    return NotSupported(
        "conditional deletion on Azure needs keys, and a prefix in the address, of ASCII without spaces, %, # and"
        " braces: obstore signs no others. Remedy: another prefix.",
        field="address",
    )
