"""What operations answer, and how a page is made to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from .. import limits
from ..contract.functions import BODY_BYTES_MAX

# A gateway's answer grows by a third, as base64; that of a direct invocation by half, when the runtime encodes it
# again with a space behind every comma.
ANSWER_BYTES_MAX = BODY_BYTES_MAX * 2 // 3 - 16 * limits.KB


class StatusAnswer(Struct, frozen=True):
    """What an operation answers, where it is more than a body and 200."""

    status: int
    body: Any = None


def fitting(limit: int, page: Callable[[int], Any]) -> bytes:
    """A page of at most ``limit`` items that fits into an answer, encoded. Asks for fewer items until it does."""
    while True:
        body = msgspec.json.encode(page(limit))
        if len(body) <= ANSWER_BYTES_MAX or limit <= 1:
            return body
        limit = max(1, min(limit - 1, limit * ANSWER_BYTES_MAX // len(body)))
