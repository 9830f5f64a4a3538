"""Payloads and results that are too large for a call or its answer: they pass beside it, where the API says."""

from __future__ import annotations

import hashlib
from itertools import count
from typing import Any
from zlib import crc32

from ..commit.effects import Sleep
from ..commit.retry import CALL
from ..contract.schemas import Download, NewUpload, Upload
from ..errors import Damaged, OsqueueError, Unavailable
from .call import ApiClient, RemoteFlow
from .transports.base import ApiAnswer, Transfer

THERE_ALREADY = 412  # a PUT whose answer was lost, the second time
PASSING = (
    400,
    404,
    408,
    409,
    429,
)  # damaged on its way; not there yet, or not any more; another try is under way


class LargeContents(ApiClient):
    """What the flows of all callers do with contents of that size."""

    def uploaded(self, data: bytes) -> RemoteFlow[dict[str, Any]]:
        """How a request carries a content that it cannot hold: it is uploaded first. Raises what keeps it from that."""
        body = NewUpload(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        place: Upload = yield from self.ask("upload", body=body)
        yield from self._carried(Transfer("PUT", place.url, place.headers, data))
        return {"upload": place.upload}

    def fetched(self, told: Download) -> RemoteFlow[bytes]:
        """A content that an answer says where to get. Raises Unavailable, Timeout, Damaged."""
        data = yield from self._carried(Transfer("GET", told.url, told.headers, bytes_max=told.bytes))
        if len(data) != told.bytes or crc32(data) != told.crc32:
            raise Damaged("what was downloaded is not what was written there: it fails its checksum.")
        return data

    def fetched_result(self, told: Download) -> RemoteFlow[Any]:
        """A result that an answer says where to get. Raises Rejected, too."""
        return self.codec.decode((yield from self.fetched(told)), told.codec, field="result")

    def _carried(self, transfer: Transfer) -> RemoteFlow[bytes]:
        """Make a transfer, again where that may help, for as long as a call is tried."""
        until = self.machine.monotonic() + self.timeout
        for tried in count(1):
            reply = yield transfer
            error: OsqueueError
            if not isinstance(reply, ApiAnswer):
                error = reply.error
            elif reply.status < 300 or reply.status == THERE_ALREADY:
                return reply.body
            else:
                passes = reply.status >= 500 or reply.status in PASSING
                text = f"a large content was refused on its way past the API ({reply.status})."
                error = Unavailable(text, permanent=not passes)
            wait = CALL.pause_after(tried, self.machine)
            if error.permanent or self.machine.monotonic() + wait >= until:
                raise error
            yield Sleep(wait)
        raise AssertionError("unreachable")
