"""Payloads and results that are too large for a call or its answer: they pass beside it, where the API says."""

from __future__ import annotations

import hashlib
from itertools import count
from typing import Any
from zlib import crc32

from msgspec import UNSET

from ..commit.effects import Sleep
from ..commit.retry import CALL
from ..contract.functions import PAYLOAD_BYTES_MAX
from ..contract.schemas import Accepted, Download, NewUpload, Result, Upload
from ..errors import Damaged, OsqueueError, Unavailable
from ..model.codecs import Codec
from .call import ApiClient, RemoteFlow
from .content import decoded, fields
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

    def sent(self, codec: Codec, data: bytes, field: str) -> RemoteFlow[dict[str, Any]]:
        """How a request carries a content; a large one is uploaded first. Raises what keeps it from that."""
        if len(data) <= PAYLOAD_BYTES_MAX:
            return fields(codec, data, field)
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

    def result_in(self, told: Accepted | Result) -> RemoteFlow[Any]:
        """The result that an answer carries, or says where to get; None where there is none. Raises Rejected, too."""
        if told.download is UNSET:
            return decoded(self.codec, told.result, told.data, told.codec)
        data = yield from self.fetched(told.download)
        return self.codec.decode(data, told.download.codec, field="result")

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
