"""The operation of those who have a payload or a result that is too large for a request."""

from __future__ import annotations

import re

from ..commit.effects import QueueFlow, Submit
from ..contract.functions import CONTENT_BYTES_MAX
from ..contract.schemas import NewUpload, Upload
from ..core.encoding import staged_name
from ..errors import Rejected
from ..model import validation
from ..objects.layout import root_of
from ..objects.staging import UPLOADS, UPLOADS_SHARD
from ..stores.base import AnnouncedPut
from .request import RequestContext

_DIGEST = re.compile(r"[0-9a-f]{64}")


def upload(request: RequestContext) -> QueueFlow[Upload]:
    """A place for a content that a request will name."""
    body: NewUpload = request.read()
    validation.whole_number(body.bytes, "bytes", 1, CONTENT_BYTES_MAX)
    if not _DIGEST.fullmatch(body.sha256):
        raise Rejected(
            "sha256: it is not the SHA-256 of the bytes as 64 hexadecimal digits in lower case.",
            field="sha256",
        )
    flows = request.warm.flows
    yield from flows.known_queue()
    yield Submit(UPLOADS_SHARD, ())  # the head as it is now: what is born with it lives for a day
    seen = yield from flows.state_seen(UPLOADS_SHARD)
    name = staged_name(UPLOADS, seen.seq, flows.machine.bits(64), body.bytes)
    announced = AnnouncedPut(root_of(flows.queue, UPLOADS_SHARD) + name, body.bytes, body.sha256)
    signed, until = yield from flows.transfers.signed(announced)
    text = name.removeprefix(f"{UPLOADS}/")
    return Upload(upload=text, url=signed.url, headers=signed.headers, expires_at=until)
