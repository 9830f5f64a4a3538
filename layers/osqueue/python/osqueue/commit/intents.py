"""Reading announced requests: which of them this release understands, and how many fit one commit."""

from __future__ import annotations

from .. import limits
from ..core.ops import Request
from ..core.wire import IntentName, decode_intent, intent_body
from ..errors import Damaged, NewerFormat


def read_intent(name: IntentName, data: bytes) -> Request | None:
    """An intent's body; None when this release cannot read it, or it is not what its key says."""
    try:
        request = decode_intent(data, name.key)
    except (Damaged, NewerFormat):
        return None
    same = (request.env, request.n, request.nonce, request.born, request.epoch)
    return request if same == (name.env, name.n, name.nonce, name.born, name.epoch) else None


def within_bytes(requests: list[Request]) -> list[Request]:
    """The oldest requests that together stay within one commit's budget; the first always, however large."""
    kept: list[Request] = []
    size = 0
    for request in sorted(requests, key=lambda each: (each.born, each.env, each.n)):
        size += len(intent_body(request))
        if kept and size > limits.INTENT_BYTES_PER_COMMIT_MAX:
            break
        kept.append(request)
    return kept
