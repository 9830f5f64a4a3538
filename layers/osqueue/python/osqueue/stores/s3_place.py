"""Where S3 is reached, which keys it takes there and how it reads conditions, whichever client asks."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from .base import FILE_NAME_BYTES_MAX, KEY_BYTES_MAX


def default_endpoint() -> str | None:
    """Where the environment says that S3 is; None: at AWS."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def endpoint_of(region: str | None) -> str | None:
    """Where AWS has S3 for regions whose hosts end otherwise; None: where every client looks."""
    if region is not None and region.startswith("cn-"):
        return f"https://s3.{region}.amazonaws.com.cn"
    return None


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
