"""Where S3 is reached and how it is asked there, whichever client asks: hosts, time-outs, conditions, keys."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from msgspec import Struct

from ..errors import Rejected
from .base import FILE_NAME_BYTES_MAX, KEY_BYTES_MAX
from .faults import TIMEOUTS, Timeouts


class S3Options(Struct, frozen=True):
    """What a server wants that is not quite S3, or a bucket that is not quite the usual one."""

    addressing: str | None = None  # "virtual" or "path": the bucket in the host's name, or in the path
    ca: str | None = None  # a file of certificates: the authorities that are trusted, and no others
    timeouts: Timeouts = TIMEOUTS
    kms: str | None = None  # the key that every write is encrypted under; None: as the bucket is set
    bare_etags: bool = False  # conditions without the quotes of ETags


PLAIN = S3Options()
DEFAULT_REGION = "us-east-1"  # of clients that know no other


def default_endpoint() -> str | None:
    """Where the environment says that S3 is; None: at AWS."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def endpoint_of(region: str | None) -> str | None:
    """Where AWS has S3 for regions whose hosts end otherwise; None: where every client looks."""
    if region is not None and region.startswith("cn-"):
        return f"https://s3.{region}.amazonaws.com.cn"
    return None


def host_of(bucket: str, endpoint: str) -> str:
    """The endpoint with the bucket in its host's name. Raises Rejected where the host has no name."""
    scheme, _, host = endpoint.partition("://")
    if re.match(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(?![^:/])|\[", host):
        raise Rejected(
            "addressing=virtual puts the bucket before the name of the endpoint's host, and this is an IP address: "
            "give the name, or addressing=path",
            field="addressing",
        )
    return f"{scheme}://{bucket}.{host}"


def bucket_url(bucket: str, endpoint: str | None, region: str | None, addressing: str | None) -> str:
    """Return the URL of a general purpose bucket."""
    base = (endpoint or endpoint_of(region) or f"https://s3.{region or DEFAULT_REGION}.amazonaws.com").rstrip(
        "/"
    )
    return host_of(bucket, base) if addressing == "virtual" else f"{base}/{bucket}"


def encryption(key: str) -> dict[str, str]:
    """What boto3 is told of the key that an object is encrypted under."""
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key}


def name_bytes_max(endpoint: str | None) -> int:
    """The longest part of a key between slashes. Other servers may keep objects as files, as MinIO does."""
    host = urlsplit(endpoint).hostname or "" if endpoint else ""
    at_aws = not endpoint or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
    return KEY_BYTES_MAX if at_aws else FILE_NAME_BYTES_MAX


def is_directory(bucket: str) -> bool:
    """Is it a directory bucket, of S3 Express One Zone? Their names alone end so."""
    return bucket.endswith("--x-s3")


def condition(version: str, bare: bool) -> str:
    """How a version stands in a condition. Some servers compare what is sent with an ETag that has no quotes."""
    return version[1:-1] if bare and version.startswith('"') else version
