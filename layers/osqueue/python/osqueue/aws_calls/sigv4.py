"""AWS Signature Version 4 of a request whose body is at hand and that has no query, which is all that is sent here.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from msgspec import Struct

ALGORITHM = "AWS4-HMAC-SHA256"


class AwsCredentials(Struct, frozen=True):
    """Who signs. They are never shown."""

    key_id: str
    secret: str
    token: str = ""  # of a session; "": they have none

    def __repr__(self) -> str:
        return "AwsCredentials(…)"


class SigningScope(Struct, frozen=True):
    """What a signature is good for."""

    service: str
    region: str


def signed_headers(
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    credentials: AwsCredentials,
    scope: SigningScope,
    at_ms: int,
) -> dict[str, str]:
    """The headers of a request with its signature; ``host`` is among those given, ``path`` as it is sent."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    moment, day = f"{at:%Y%m%dT%H%M%SZ}", f"{at:%Y%m%d}"
    told = {**{name.lower(): value.strip() for name, value in headers.items()}, "x-amz-date": moment}
    if credentials.token:
        told["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(told))
    request = "\n".join(
        (
            method,
            quote(path, safe="/~"),  # once more than on its way: all services but S3 want that
            "",
            *(f"{name}:{told[name]}" for name in sorted(told)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    place = f"{day}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join((ALGORITHM, moment, place, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{credentials.secret}".encode()
    for part in place.split("/"):
        key = _mac(key, part)
    told["authorization"] = (
        f"{ALGORITHM} Credential={credentials.key_id}/{place}, SignedHeaders={names},"
        f" Signature={_mac(key, text).hex()}"
    )
    return told


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
