"""S3 through obstore, with boto3 for what obstore cannot do there.

The version is the ETag, which for most buckets is a hash of the content. Two bodies that are equal therefore
have equal versions: whoever relies on versions that never repeat starts the body with something that never
repeats, as the head does with its commit id.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlencode

from ..errors import NotSupported, Rejected
from .base import AnnouncedPut, DeleteIfMatch, Failed, Get, List, PresignedRequest, StoreReply, StoreRequest
from .faults import StoreFault
from .objects import Call, ObjectStore, Steps, in_either_form
from .s3_faults import PAGE_KEYS_MAX, S3Fault
from .s3_place import (
    PLAIN,
    S3Options,
    bucket_url,
    condition,
    default_endpoint,
    endpoint_of,
    host_of,
    is_directory,
    name_bytes_max,
)
from .stray_keys import listing_query, not_listed

if TYPE_CHECKING:
    from .s3_boto import BotoStore

SIGNED_MINUTES = 15
# Where obstore finds credentials by itself without a network round trip. boto3 knows the other places.
_CREDENTIALS_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",  # of EKS. A token that is no file, as on EMR Serverless, it ignores
)


class S3Store(ObjectStore):
    """Objects in a bucket, below a prefix. Credentials come from the environment, a role or a profile."""

    scheme = "s3"
    extra = "s3"
    fault = S3Fault
    # Without credentials obstore asks the machine's metadata for a role, and boto3's provider has nothing to give.
    unidentified = re.compile(
        r"169\.254\.169\.254|Missing (?:AccessKeyId|SecretAccessKey)|Received None from session\.get_credentials"
    )
    delete_keys_max: ClassVar[int] = PAGE_KEYS_MAX
    removal: ClassVar[str] = "aws s3api delete-object --bucket {bucket} --key {key}"

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        options: S3Options = PLAIN,
    ) -> None:
        super().__init__(bucket, prefix, endpoint or default_endpoint(), options.timeouts)
        self.region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self.ordered = not is_directory(bucket)
        if not self.ordered and (self.endpoint or not self.region):
            raise Rejected(
                "a directory bucket is reached at AWS, in the region that region=… or AWS_REGION names; "
                "leave endpoint=… away, and AWS_ENDPOINT_URL",
                field="region" if self.region is None else "endpoint",
            )
        self.options = options
        self.authorities = options.ca
        if options.addressing == "virtual" and self.endpoint is not None:
            host_of(bucket, self.endpoint)
        self.name_bytes_max = name_bytes_max(self.endpoint)
        self._boto_store: BotoStore | None = None

    def presigned(self, request: Get | AnnouncedPut, seconds: int) -> PresignedRequest | None:
        """By boto3: obstore signs neither a range nor a length. None without boto3."""
        return None if find_spec("boto3") is None else self._boto().presigned(request, seconds)

    def close(self) -> None:
        super().close()
        boto, self._boto_store = self._boto_store, None  # its session keeps the credentials that it found
        if boto is not None:
            boto.close()

    def client(self, listing: str | None = None, **manners: Any) -> Any:
        """Open obstore's client. ``listing`` is the URL of a listing, for the client that signs it."""
        from datetime import timedelta

        import obstore.store

        own = self.options
        options: dict[str, Any] = {"virtual_hosted_style_request": own.addressing == "virtual"}
        if (endpoint := self.endpoint or endpoint_of(self.region)) is not None:
            options["endpoint"] = host_of(self.bucket, endpoint) if own.addressing == "virtual" else endpoint
        if listing is not None:
            options |= {"virtual_hosted_style_request": True, "endpoint": listing}
        if self.region is not None:
            options["region"] = self.region
        if not self.ordered:
            options["s3_express"] = True  # sessions, and a host for each bucket
        if own.kms is not None:
            options |= {"server_side_encryption": "aws:kms", "sse_kms_key_id": own.kms}
        if own.ca is not None:  # and no others, as boto3 has it
            bundle = Path(own.ca).read_bytes()
            manners["client_options"] |= {"root_certificate": bundle, "disable_system_certificates": True}
        if not any(map(os.environ.get, _CREDENTIALS_IN_ENVIRONMENT)) and find_spec("boto3") is not None:
            from obstore.auth.boto3 import Boto3CredentialProvider

            # What boto3 gives is good for ten minutes more at least, and obstore asks again after five.
            options["credential_provider"] = Boto3CredentialProvider(ttl=timedelta(minutes=10))
        return obstore.store.S3Store(self.bucket, **manners, **options)

    def etag(self, version: str) -> str:
        return condition(version, self.options.bare_etags)

    def deletion(self, request: DeleteIfMatch) -> Generator[Call, Any, StoreReply | None]:
        reply: StoreReply = yield in_either_form(lambda: self._through_boto(request))
        return self._failed(reply.error) if isinstance(reply, Failed) else reply

    def list_strays(self, request: List, stray: str) -> Steps:
        """Carry out a listing by signed URLs, or through boto3 in a directory bucket, whose sessions sign none."""
        if self.ordered:
            return (yield from super().list_strays(request, stray))
        if find_spec("boto3") is None:
            needed = NotSupported(
                "a directory bucket needs boto3 for that. Remedy: pip install 'osqueue[boto3]'."
            )
            return Failed(not_listed(self.prefix + request.prefix, stray, needed, self.removal, self.bucket))
        reply: StoreReply = yield in_either_form(lambda: self._through_boto(request))
        return self._failed(reply.error) if isinstance(reply, Failed) else reply

    def listing_url(self, prefix: str, after: str, token: str) -> Generator[Call, Any, str]:
        """Sign the URL by a client made for this one request, whose server's address has the query: see GcsStore."""
        from datetime import timedelta

        query = {**listing_query(prefix, after, token), "encoding-type": "url"}
        base = bucket_url(self.bucket, self.endpoint, self.region, self.options.addressing)
        client = self.client(f"{base}?{urlencode(query, quote_via=quote)}#", **self.manners())
        url = yield self.call("sign", "GET", "", timedelta(minutes=SIGNED_MINUTES), client=client)
        return str(url).partition("#")[0]

    def perform_forked(self, request: StoreRequest) -> StoreReply:
        return self._through_boto(request)

    def _through_boto(self, request: StoreRequest) -> StoreReply:
        if find_spec("boto3") is None:
            return Failed(
                NotSupported(
                    "conditional deletion on S3, and S3 in a forked process, need boto3. "
                    "Remedy: pip install 'osqueue[boto3]'."
                )
            )
        return self._boto().perform(request)

    def _boto(self) -> BotoStore:
        if self._boto_store is None:
            import boto3

            from .s3_boto import BotoStore

            session = boto3.session.Session()
            self._boto_store = BotoStore(
                session, self.bucket, self.prefix, self.endpoint, self.region, self.options
            )
        return self._boto_store

    def _fault(self, error: Exception) -> StoreFault:
        if "incorrectly configured region" in str(error):  # a redirect without an aim
            return S3Fault(301, "PermanentRedirect")
        return super()._fault(error)
