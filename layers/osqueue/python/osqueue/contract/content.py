"""Contents on their way through the API: payloads and results as bytes, with the name of what serialised them.

They are JSON values in a body, or base64 with a serialiser's name, and are not read on the way.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..errors import Rejected
from ..model import validation
from ..model.codecs import JSON, Codec
from .error_codes import TooLarge
from .schemas import Download, EncodedContent

CODEC = JSON.name
CODEC_CHARS_MAX = 32


class PassThroughCodec(Codec):
    """A codec that leaves everything as it is."""

    def __init__(self) -> None:
        super().__init__(JSON)

    def encode(self, value: Any, field: str) -> bytes:
        """The content's bytes."""
        data: bytes = value.data
        return data

    def decode(self, data: bytes, name: str, type: Any = Any, field: str = "payload") -> EncodedContent:
        """The bytes with the name of their serialiser."""
        return EncodedContent(data, name)


def content_of(
    value: Raw | UnsetType,
    data: bytes | UnsetType,
    codec: str,
    field: str,
    most: int,
    upload: bytes | UnsetType = UNSET,
) -> EncodedContent | None:
    """What a request brings, as ``field``, ``data`` or ``upload``; None: nothing. Raises Rejected, TooLarge."""
    given = [name for name, each in ((field, value), ("data", data), ("upload", upload)) if each is not UNSET]
    if not given:
        return None
    name = given[-1]
    if len(given) > 1:
        raise Rejected(f"{name}: give either {given[0]} or {name}, not both.", field=name)
    found: bytes = bytes(value) if name == field else data if upload is UNSET else upload  # type: ignore[arg-type, assignment]
    if upload is UNSET and len(found) > most:
        raise TooLarge(
            f"{name}: {len(found):,} bytes; in a request the API takes {most:,}. A job's payload or result may be"
            " uploaded (POST …/uploads); or connect to the store itself.",
            field=name,
        )
    if name == field:
        return EncodedContent(found, CODEC)
    validation.text(codec, "codec", CODEC_CHARS_MAX, 1)
    if codec == CODEC and not is_json(found):
        raise Rejected(f"{name}: it is not JSON. Name in codec what serialised it.", field=name)
    return EncodedContent(found, codec)


def is_json(data: bytes) -> bool:
    """Can it stand in a JSON body as it is?"""
    try:
        data.decode()
        msgspec.json.decode(data, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def fields_of(content: EncodedContent, field: str) -> dict[str, Any]:
    """How an answer carries a content. Raises Rejected for what claims to be JSON and is not."""
    if content.codec != CODEC:
        return {"data": content.data, "codec": content.codec}
    if not is_json(content.data):
        raise Rejected(
            f"{field}: it does not decode as {CODEC}: it was damaged, or written by another serialiser of that name.",
            field=field,
        )
    return {field: Raw(content.data)}


def result_fields(content: EncodedContent | Download | None) -> dict[str, Any]:
    """A result in an answer; None is JSON's null."""
    if isinstance(content, Download):
        return {"download": content}
    return {"result": Raw(b"null")} if content is None else fields_of(content, "result")


def included_fields(contents: dict[str, EncodedContent | None]) -> dict[str, Any]:
    """Several contents in one answer; None is JSON's null. What claims to be JSON and is not is left out."""
    found: dict[str, Any] = {}
    for name, content in contents.items():
        if content is not None and content.codec != CODEC:
            found.setdefault("encoded", {})[name] = content
            continue
        try:
            found[name] = Raw(b"null") if content is None else fields_of(content, name)[name]
        except Rejected as error:
            found.setdefault("left_out", {})[name] = error.message
    return found


def weight(data: int, codec: str) -> int:
    """How many bytes a content takes in an answer, about."""
    return data if codec == CODEC else (data + 2) // 3 * 4
