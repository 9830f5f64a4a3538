"""Requests of S3 that somebody else may send, signed by boto3 (AWS Signature Version 4 in the query).

The signature holds what the request is about: the range that is read; or the length and the digest of what is written,
and that it is written once. S3 compares both with what comes, so such an object is what was announced, or is not there.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from .base import AnnouncedPut, Get, PresignedRequest
from .s3_place import PLAIN, S3Options, encryption


def open_signer(session: Any, endpoint: str | None, region: str | None, options: S3Options = PLAIN) -> Any:
    """A client that signs, and is asked for nothing else."""
    from botocore.config import Config

    # Without a style boto3 names a host that knows no region, and S3 answers with a redirect.
    style = options.addressing or ("virtual" if endpoint is None else "path")
    config = Config(signature_version="s3v4", s3={"addressing_style": style})
    return session.client("s3", endpoint_url=endpoint, region_name=region, config=config)


def presigned(
    signer: Any, bucket: str, key: str, request: Get | AnnouncedPut, seconds: int, kms: str | None = None
) -> PresignedRequest:
    """The request as its sender has to send it. ``key`` is the whole key, with the prefix of the store."""
    about: dict[str, Any] = {"Bucket": bucket, "Key": key}
    if isinstance(request, Get):
        start = request.start or 0
        assert request.length is not None, "a range has an end"
        headers = {"range": f"bytes={start}-{start + request.length - 1}"}
        url = signer.generate_presigned_url("get_object", about | {"Range": headers["range"]}, seconds)
        return PresignedRequest("GET", url, headers)
    digest = b64encode(bytes.fromhex(request.sha256)).decode()
    headers = {
        "content-length": str(request.length),
        "if-none-match": "*",
        "x-amz-checksum-sha256": digest,
    }
    announced = {"ContentLength": request.length, "IfNoneMatch": "*", "ChecksumSHA256": digest}
    if kms is not None:
        headers |= {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": kms,
        }
        announced |= encryption(kms)
    return PresignedRequest(
        "PUT", signer.generate_presigned_url("put_object", about | announced, seconds), headers
    )
