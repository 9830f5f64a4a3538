"""What S3's refusals and errors mean, whichever client reports them.

A client's exception becomes a ``S3Fault``; from here on nobody knows the client. The text of an exception
never reaches a caller as it is: it may quote the request, and with it credentials.
"""

from __future__ import annotations

import re

from msgspec import Struct

from ..errors import OsqueueError, Timeout, Unavailable

CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 20.0  # one request, body and answer; 8 MB segments need some of it on slow lines
# S3 reckons key lengths with the prefix, and answers at most this many keys to one List or Delete.
PAGE_KEYS_MAX = 1000

_DETAIL_CHARS_MAX = 160


class S3Fault(Struct, frozen=True):
    """A request that did not end well."""

    status: int | None = None  # of the HTTP answer; None when none arrived
    code: str = ""  # S3's word for it, such as NoSuchBucket
    timed_out: bool = False
    unidentified: bool = False  # the client found no credentials to sign with
    detail: str = ""  # what the client says, for faults that no S3 answer explains

    @property
    def refused(self) -> bool:
        """A conditional request lost its race: 412 says so, 409 that another one was under way."""
        return self.status in (409, 412) and self.code != "NoSuchBucket"

    @property
    def absent(self) -> bool:
        """There is no such object (in an existing bucket)."""
        return self.status == 404 and self.code != "NoSuchBucket"


_CREDENTIALS = (
    "check the credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) "
    "or the role, and the machine's clock"
)
NO_CREDENTIALS = (
    "no AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or a profile with osqueue[boto3]"
)
_REGION = "name the bucket's region: ?region=… or AWS_REGION"
_SERVER = (
    "use a server that knows conditional writes (If-Match, If-None-Match), as `osqueue doctor` tries them"
)
_REMEDIES = {
    "NoSuchBucket": "create the bucket or correct the address",
    "AccessDenied": "allow s3:GetObject, s3:PutObject, s3:DeleteObject on the prefix and s3:ListBucket on "
    "the bucket (without ListBucket a missing object looks forbidden)",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "RequestTimeTooSkewed": _CREDENTIALS,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "PermanentRedirect": _REGION,
    "NotImplemented": _SERVER,
    "SlowDown": "fewer requests a second; S3 gives a prefix more as its load lasts",
}
# Until somebody changes something, S3 will go on answering these.
_PERMANENT_CODES = frozenset(_REMEDIES) - {"SlowDown"}
_PERMANENT_STATUS = frozenset({301, 401, 403, 501})
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


def explained(fault: S3Fault, bucket: str) -> OsqueueError:
    """The error for a fault that is no answer of the port: what happened and what to do."""
    where = f"S3 bucket {bucket!r}"
    if fault.unidentified:
        return Unavailable(f"{where}: {NO_CREDENTIALS}.", permanent=True)
    if fault.timed_out:
        return Timeout(
            f"{where}: no answer in time (connect {CONNECT_TIMEOUT_S:g} s, request {REQUEST_TIMEOUT_S:g} s). "
            "Remedy: try again; check the network and the endpoint if it lasts."
        )
    if fault.status is None:
        return Unavailable(f"{where}: {fault.detail}. Remedy: check endpoint, network and credentials.")
    remedy = _REMEDIES.get(fault.code) or _BY_STATUS.get(fault.status, "try again later")
    said = f"{fault.status} {fault.code}".rstrip()
    permanent = fault.code in _PERMANENT_CODES or fault.status in _PERMANENT_STATUS
    return Unavailable(f"{where}: S3 answered {said}. Remedy: {remedy}.", permanent=permanent)


def presentable(text: str) -> str:
    """The first line of a client's message, without bodies and without the parameters of URLs."""
    line = text.strip().partition("\n")[0].partition("<")[0]
    return re.sub(r"\?\S+", "?…", line)[:_DETAIL_CHARS_MAX].rstrip(" .:") or "no answer"
