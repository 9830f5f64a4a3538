"""What S3's refusals and errors mean, whichever client reports them."""

from __future__ import annotations

from typing import ClassVar

from .certificates import CA_OPTION
from .faults import FaultWords, StoreFault

# S3 reckons key lengths with the prefix, and answers at most this many keys to one List or Delete.
PAGE_KEYS_MAX = 1000

_CREDENTIALS = (
    "check the credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) "
    "or the role, and the machine's clock"
)
_NO_CREDENTIALS = (
    "no AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or a profile with osqueue[boto3]"
)
_REGION = "name the bucket's region: ?region=… or AWS_REGION"
_SERVER = (
    "use a server that knows conditional writes (If-Match, If-None-Match), as `osqueue doctor` tries them"
)
_KEY = (
    "name another key with ?kms=, or look at this one in KMS: its region is the bucket's, and it is enabled"
)
_REMEDIES = {
    "NoSuchBucket": "create the bucket or correct the address",
    "AccessDenied": "allow s3:GetObject, s3:PutObject, s3:DeleteObject on the prefix and s3:ListBucket on "
    "the bucket (without ListBucket a missing object looks forbidden); with ?kms= also "
    "kms:GenerateDataKey and kms:Decrypt on the key",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "RequestTimeTooSkewed": _CREDENTIALS,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "PermanentRedirect": _REGION,
    "NotImplemented": _SERVER,
    "KMS.NotFoundException": _KEY,
    "KMS.DisabledException": _KEY,
    "KMS.KMSInvalidStateException": _KEY,
    "SlowDown": "fewer requests a second; S3 gives a prefix more as its load lasts",
}
_BY_STATUS = {
    301: _REMEDIES["PermanentRedirect"],
    307: _REMEDIES["PermanentRedirect"],
    401: _CREDENTIALS,
    403: _REMEDIES["AccessDenied"],
    404: _REMEDIES["NoSuchBucket"],
    409: "try again: another operation on the bucket was under way",
    429: _REMEDIES["SlowDown"],
    501: _SERVER,
    503: _REMEDIES["SlowDown"],
}


class S3Fault(StoreFault, frozen=True):
    """A request to S3 that did not end well."""

    words: ClassVar[FaultWords] = FaultWords(
        service="S3",
        holder="bucket",
        no_credentials=_NO_CREDENTIALS,
        by_code=_REMEDIES,
        by_status=_BY_STATUS,
        permanent_codes=frozenset(_REMEDIES) - {"SlowDown"},
        trust=CA_OPTION,
    )
    no_holder: ClassVar[str] = "NoSuchBucket"

    @property
    def refused(self) -> bool:
        """A conditional request lost its race: 412 says so, 409 that another one was under way."""
        return self.status in (409, 412) and self.code != self.no_holder
