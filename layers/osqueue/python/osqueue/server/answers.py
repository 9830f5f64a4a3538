"""What operations answer, and how a page is made to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from .. import limits
from ..commit.effects import QueueFlow
from ..contract.content import included_fields
from ..contract.functions import BODY_BYTES_MAX
from ..model.included import PAYLOAD, RESULT

# A gateway's answer grows by a third, as base64; that of a direct invocation by half, when the runtime encodes it
# again with a space behind every comma.
ANSWER_BYTES_MAX = BODY_BYTES_MAX * 2 // 3 - 16 * limits.KB
# Of the contents beside jobs: as base64 they grow by a third, and the jobs themselves need some room.
INCLUDED_BYTES_MAX = ANSWER_BYTES_MAX * 3 // 4 - 64 * limits.KB

A = TypeVar("A", bound=Struct)


class StatusAnswer(Struct, frozen=True):
    """What an operation answers, where it is more than a body and 200."""

    status: int
    body: Any = None


def answer_with(kind: type[A], found: Struct) -> A:
    """A job with the contents that were asked for, as it travels."""
    fields = {name: value for name, value in asdict(found).items() if value is not UNSET}
    contents = {name: fields.pop(name) for name in (PAYLOAD, RESULT) if name in fields}
    more = included_fields(contents)
    left_out = {**fields.pop("left_out", {}), **more.pop("left_out", {})}
    return kind(**fields, **more, left_out=left_out or UNSET)


def fitting(limit: int, page: Callable[[int], QueueFlow[Any]]) -> QueueFlow[bytes]:
    """A page of at most ``limit`` items that fits into an answer, encoded. Asks for fewer items until it does."""
    while not _fits(body := msgspec.json.encode((yield from page(limit))), limit):
        limit = _fewer(limit, body)
    return body


def fitted(limit: int, page: Callable[[int], Any]) -> bytes:
    """The same of items that are at hand."""
    while not _fits(body := msgspec.json.encode(page(limit)), limit):
        limit = _fewer(limit, body)
    return body


def _fits(body: bytes, limit: int) -> bool:
    return len(body) <= ANSWER_BYTES_MAX or limit <= 1


def _fewer(limit: int, body: bytes) -> int:
    return max(1, min(limit - 1, limit * ANSWER_BYTES_MAX // len(body)))
