"""Payloads and results on their way: JSON as it is, what other serialisers wrote as base64 with their name."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict

from ..contract.error_codes import TooLarge
from ..contract.functions import CONTENT_BYTES_MAX
from ..errors import OsqueueError, Rejected
from ..model.codecs import JSON, Codec
from ..model.included import PAYLOAD, RESULT

D = TypeVar("D", bound=Struct)


def encoded(codec: Codec, value: Any, field: str, most: int = CONTENT_BYTES_MAX) -> bytes:
    """A payload or a result as bytes. Raises Rejected, TooLarge."""
    data = codec.encode(value, field)
    if len(data) > most:
        raise TooLarge(
            f"{field}: {len(data):,} bytes; over an API the most is {most:,}. Connect to the bucket itself"
            " (s3://bucket/prefix), or store it elsewhere and pass a reference.",
            field=field,
        )
    if codec.name == JSON.name and codec.serializer is not JSON and not _is_json(data):
        raise Rejected(
            f"{field}: your serializer is named {JSON.name!r} and does not write JSON. Give it another name.",
            field=field,
        )
    return data


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def fields(codec: Codec, data: bytes, field: str) -> dict[str, Any]:
    """How a request carries a content: under ``field``, or as ``data``."""
    return {field: Raw(data)} if codec.name == JSON.name else {"data": data}


def content(value: Raw | UnsetType, data: bytes | UnsetType, codec: str | None) -> tuple[bytes, str] | None:
    """What an answer carries, with the name of its serialiser; None: nothing."""
    if value is not UNSET:
        return bytes(value), JSON.name
    return None if data is UNSET else (data, codec or JSON.name)


def details(kind: type[D], codec: Codec, answer: Struct) -> D:
    """A job with what was asked for beside it, as callers get it. What cannot be decoded here is left out."""
    fields = asdict(answer)
    encoded = fields.pop("encoded") or {}
    left_out = dict(fields.pop("left_out") or {})
    for name in (PAYLOAD, RESULT):
        value, other = fields.pop(name, UNSET), encoded.get(name)
        found = content(value, UNSET, None) if other is None else (other.data, other.codec)
        if found is None:
            continue
        data, serializer = found
        try:
            type = codec.payload_type if name == PAYLOAD else Any
            fields[name] = codec.decode(data, serializer, type, name)
        except OsqueueError as error:
            left_out[name] = error.message
    return kind(**fields, left_out=left_out or UNSET)


def decoded(codec: Codec, value: Raw | UnsetType, data: bytes | UnsetType, name: str | None) -> Any:
    """A result that an answer carries; None where there is none. Raises Rejected."""
    found = content(value, data, name)
    return None if found is None else codec.decode(*found, field="result")
