"""What the errors of an object store behind HTTP mean, whichever client reports them and whoever keeps the store.

A client's exception becomes a ``StoreFault``; from here on nobody knows the client. The text of an exception
never reaches a caller as it is: it may quote the request, and with it credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from msgspec import Struct

from ..errors import OsqueueError, Timeout, Unavailable
from .certificates import CA_VARIABLE

CONNECT_TIMEOUT_S = 3.0
FIRST_BYTE_TIMEOUT_S = 3.0  # on a kept connection
CONNECT_MARGIN_S = 0.1  # by which that is longer than the time-out of a connection, which it includes
REQUEST_TIMEOUT_S = 20.0  # one request, body and answer; 8 MB segments need some of it on slow lines

_DETAIL_CHARS_MAX = 160


class Timeouts(NamedTuple):
    """How long a client waits, in seconds."""

    connect_s: float = CONNECT_TIMEOUT_S
    request_s: float = REQUEST_TIMEOUT_S

    @property
    def first_byte_s(self) -> float | None:
        """The time for the first byte on a kept connection, in seconds. None: the whole time of the request."""
        limit_s = max(FIRST_BYTE_TIMEOUT_S, self.connect_s + CONNECT_MARGIN_S)
        return limit_s if limit_s < self.request_s else None

    @property
    def reply_s_max(self) -> float:
        """The longest wait for a reply, a repeat included, in seconds."""
        return (self.first_byte_s or self.connect_s) + self.request_s


TIMEOUTS = Timeouts()


class FaultWords(Struct, frozen=True):
    """How a kind of store is called, and what to do when it answers with an error."""

    service: str  # "S3"
    holder: str  # what it calls the thing that the address names: "bucket"
    no_credentials: str
    by_code: Mapping[str, str]  # the store's own word for an error: the remedy
    by_status: Mapping[int, str]  # of HTTP, where there is no such word
    permanent_codes: frozenset[str]  # until somebody changes something, it will go on answering these
    permanent_status: frozenset[int] = frozenset({301, 401, 403, 501})
    trust: str = CA_VARIABLE  # how an authority of certificates is named


class StoreFault(Struct, frozen=True):
    """A request that did not end well."""

    status: int | None = None  # of the HTTP answer; None when none arrived
    code: str = ""  # the store's word for it, such as NoSuchBucket
    timed_out: Timeouts | None = None  # which were too short for an answer
    certificate: str = ""  # what is wrong with the server's, and what to do
    unidentified: bool = False  # the client found no credentials to sign with
    detail: str = ""  # what the client says, for faults that no answer explains

    words: ClassVar[FaultWords]
    no_holder: ClassVar[str]  # the code that says that there is no such bucket

    @property
    def refused(self) -> bool:
        """A conditional request lost its race."""
        return self.status == 412

    @property
    def too_soon(self) -> bool:
        """It had no effect, since the object was written a moment ago; where a store says so."""
        return False

    @property
    def absent(self) -> bool:
        """There is no such object (in an existing bucket)."""
        return self.status == 404 and self.code != self.no_holder

    def explained(self, name: str) -> OsqueueError:
        """The error for a fault that is no answer of the port: what happened and what to do."""
        words = self.words
        where = f"{words.service} {words.holder} {name!r}"
        if self.unidentified:
            return Unavailable(f"{where}: {words.no_credentials}.", permanent=True)
        if self.certificate:
            return Unavailable(f"{where}: {self.certificate}", permanent=True)
        if self.timed_out is not None:
            connect_s, request_s = self.timed_out
            return Timeout(
                f"{where}: no answer in time (connect {connect_s:g} s, request {request_s:g} s). "
                "Remedy: try again; check the network and the endpoint if it lasts."
            )
        if self.status is None:
            return Unavailable(f"{where}: {self.detail}. Remedy: check endpoint, network and credentials.")
        remedy = words.by_code.get(self.code) or words.by_status.get(self.status, "try again later")
        said = f"{self.status} {self.code}".rstrip()
        permanent = self.code in words.permanent_codes or self.status in words.permanent_status
        return Unavailable(
            f"{where}: {words.service} answered {said}. Remedy: {remedy}.", permanent=permanent
        )


def presentable(text: str) -> str:
    """Return the first line of a client's message and what caused it, without bodies and without URLs.

    A URL may hold a signature, and its length would push the cause beyond what is shown.
    """
    from ..masking import without_secrets  # here, because most requests succeed

    line = text.strip().partition("\n")[0].partition("<")[0]
    line = re.sub(r"\s\S*://\S+( in \S+)?", "", line)
    line = re.sub(r"\?\S+", "?…", without_secrets(line))[:_DETAIL_CHARS_MAX].rstrip(" .:") or "no answer"
    cause = without_secrets(_cause_of(text))
    return f"{line}: {cause}" if cause and cause not in line else line


def _cause_of(text: str) -> str:
    """Return what obstore reports as the innermost cause of a request without a reply; "" if it names none."""
    named = [each for each in re.findall(r'\b(?:message|error): "([^"\n]+)"', text) if "://" not in each]
    if named:
        return str(named[-1])[:_DETAIL_CHARS_MAX]
    if re.search(r"\b(?:IncompleteMessage|IncompleteBody|UnexpectedEof)\b", text):
        return "the connection ended before the reply was complete"
    return ""
