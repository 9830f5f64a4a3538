"""How payloads and results become bytes: JSON by default, MessagePack, or a serialiser of your own.

The name of the serialiser is stored with every job, so a reader knows what it holds. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Any, Protocol

import msgspec

from ..errors import OsqueueError, Rejected, pass_on_interruption, shown
from .validation import message_of, plain_text

_NUMBER_AS_KEY = re.compile(rb'"-?[0-9][^"\\]*":')
_NON_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")  # the start of NaN or infinity in MessagePack
_TEXT = frozenset((str,))
_SCALARS = frozenset((str, int, float, bool, type(None)))
_ARRAYS = frozenset((list, tuple))
_PLAIN_TYPES = _SCALARS | _ARRAYS | {dict}


class Serializer(Protocol):
    """What a serialiser of your own has to offer. ``name`` is stored with each job: keep it short and stable.

    Whatever a method raises becomes Rejected, except the exceptions of signal handlers: a time limit stays one.
    """

    name: str

    def dumps(self, value: Any) -> bytes:
        """Bytes for a value; may raise anything for a value it cannot take."""
        ...

    def loads(self, data: bytes, type: Any) -> Any:
        """The value again, as ``type`` where one is given (``Any`` otherwise)."""
        ...


class Json:
    """JSON by msgspec: also dataclasses, msgspec Structs, datetimes, UUIDs, bytes (as base64), enums."""

    name = "json"
    _encode = msgspec.json.Encoder().encode

    def dumps(self, value: Any) -> bytes:
        """Return UTF-8 JSON, without spaces. Raises ValueError for a value that JSON would change in silence."""
        data = self._encode(value)
        # What may be lost leaves a trace in the text. Only a text with one pays for a close look.
        if b"null" in data:
            _refuse_non_finite(value)
        if _NUMBER_AS_KEY.search(data) is not None and not _has_plain_keys(value):
            _refuse_repeated_keys(data)
        return data

    def loads(self, data: bytes, type: Any) -> Any:
        """Decode, and convert where a type is given."""
        return msgspec.json.decode(data, type=type)


def _refuse_non_finite(value: Any) -> None:
    """Raise ValueError if a value holds NaN or infinity: msgspec writes null instead."""
    if not _may_be_non_finite(value):
        return
    try:
        json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=_unseen), allow_nan=False)
    except (RecursionError, TypeError, msgspec.MsgspecError):  # deeper than Python looks, or of unknown types
        return
    except ValueError as error:
        raise ValueError(
            f"{error}: JSON would make null of it; use None where you mean that, or the serializer 'msgpack'"
        ) from None


def _may_be_non_finite(value: Any) -> bool:
    """Return False if a value holds neither NaN nor infinity. MessagePack keeps them, and msgspec writes it fast."""
    try:
        return _NON_FINITE.search(MESSAGE_PACK.dumps(value)) is not None
    except Exception:  # noqa: BLE001 - a value that JSON takes and MessagePack does not
        return True


def _unseen(_: Any) -> None:
    """Stand for an object that msgspec writes as it is, as msgspec.Raw."""


def _has_plain_keys(value: Any) -> bool:
    """Return True if all keys of the dicts in a value are str. False also for objects that are not looked into."""
    level = [value]
    while not _SCALARS.issuperset(types := set(map(type, level))):
        if not types <= _PLAIN_TYPES:
            return False
        dicts = [each for each in level if type(each) is dict]
        if not _TEXT.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        arrays = [each for each in level if type(each) in _ARRAYS]
        level = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(arrays)]
    return True


def _refuse_repeated_keys(data: bytes) -> None:
    """Raise ValueError if an object has a key twice, as that of ``{1: "a", "1": "b"}``: readers keep one value."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise ValueError(
                    f"two keys of a dict are {key!r} in JSON, and one value would be lost; rename one"
                )
            keys.add(key)

    json.loads(data, object_pairs_hook=check)


class MessagePack:
    """MessagePack by msgspec: the same types, smaller, and bytes stay bytes."""

    name = "msgpack"

    def dumps(self, value: Any) -> bytes:
        """One MessagePack value."""
        return msgspec.msgpack.encode(value)

    def loads(self, data: bytes, type: Any) -> Any:
        """Decode, and convert where a type is given."""
        return msgspec.msgpack.decode(data, type=type)


JSON = Json()
MESSAGE_PACK = MessagePack()
_KNOWN: dict[str, Serializer] = {"json": JSON, "msgpack": MESSAGE_PACK}


def serializer_of(given: str | Serializer, field: str = "serializer") -> Serializer:
    """The serialiser that a caller names, or passes as an object."""
    if isinstance(given, str):
        if given not in _KNOWN:
            raise Rejected(
                f"{field}: {shown(given)} is not known. Use {' or '.join(map(repr, _KNOWN))}, or pass an object with"
                " name, dumps and loads.",
                field=field,
            )
        return _KNOWN[given]
    name = getattr(given, "name", None)
    if not (isinstance(name, str) and 1 <= len(name) <= 32 and name.isprintable()):
        raise Rejected(f"{field}: it needs a name of 1 to 32 printable characters.", field=field)
    return given


class Codec:
    """A queue's serialiser with the types it converts to; reads what other serialisers wrote, by their name."""

    def __init__(
        self, serializer: Serializer, payload_type: Any = Any, result_serializer: Serializer | None = None
    ) -> None:
        self.serializer = serializer
        self.name = plain_text(serializer.name)
        self.payload_type = payload_type
        apart = result_serializer is not None and result_serializer is not serializer
        self.results = Codec(result_serializer) if apart and result_serializer is not None else self
        if apart and self.results.name == self.name:
            raise Rejected(
                f"result_serializer: it is named {self.name!r}, as the serializer is. Give each its own name, so that a"
                " reader knows what it holds.",
                field="result_serializer",
            )

    def encode(self, value: Any, field: str) -> bytes:
        """Serialise; raises Rejected naming the field."""
        try:
            data = self.serializer.dumps(value)
        except Exception as error:  # a serialiser of the caller's own may raise anything
            pass_on_interruption(error)
            raise Rejected(
                f"{field}: {type(value).__name__} cannot be serialised as {self.name} ({message_of(error)}). Pass"
                " plain data, or connect with a serializer of your own.",
                field=field,
            ) from error
        if type(data) is not bytes:
            if not isinstance(data, bytes):
                raise Rejected(f"{field}: serializer {self.name!r} must answer bytes.", field=field)
            data = bytes(data)  # of a type of its own, which no head can hold
        return data

    def decode(self, data: bytes, name: str, type: Any = Any, field: str = "payload") -> Any:
        """Deserialise what the serialiser called ``name`` wrote; raises Rejected when that cannot be done here."""
        serializer = next(
            (each.serializer for each in (self, self.results) if each.name == name), _KNOWN.get(name)
        )
        if serializer is None:
            raise Rejected(
                f"{field}: it was written by serializer {name!r}, which this queue object does not have. Connect"
                " with it.",
                field=field,
            )
        try:
            return serializer.loads(data, type)
        except Exception as error:
            pass_on_interruption(error)
            raise Rejected(
                f"{field}: it does not decode as {name} ({message_of(error)}).", field=field
            ) from error

    def decode_payload(self, payload: bytes | OsqueueError, name: str) -> Any:
        """A claimed job's payload as the queue's type; raises what kept it from being read."""
        if isinstance(payload, OsqueueError):
            raise payload
        return self.decode(payload, name, self.payload_type)
