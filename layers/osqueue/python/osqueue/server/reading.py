"""Reading requests strictly: what is unknown, of a wrong type or out of range is refused by name."""

from __future__ import annotations

import math
import re
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, get_args
from urllib.parse import parse_qsl, unquote

import msgspec

from .. import limits
from ..contract.content import CODEC, CODEC_CHARS_MAX
from ..contract.error_codes import Malformed
from ..contract.route import Query, Route
from ..contract.schemas import NewJob
from ..errors import NotSupported, Rejected, shown
from ..model import validation
from ..model.fields import described_fields
from ..model.job_options import FUTURE_OPTIONS
from ..model.validation import job_name

T = TypeVar("T")
Pairs = Sequence[tuple[str, str]]

FIELDS_MAX = 1_000  # parameters in one query
NOT_YET = (*FUTURE_OPTIONS, "interval", "max_in_flight", "concurrency")
_AT = re.compile(r" - at (?:`key` in )?`\$(.*)`$")
_NAMED = re.compile(r"field `(.*?)`", re.DOTALL)


# ── Bodies ───────────────────────────────────────────────────────────────────
def body_of(data: bytes, type: type[T]) -> T:
    """A request's body. Raises Malformed (400) for what cannot be read at all, Rejected (422) naming the field."""
    if not data:
        raise Malformed("the request has no body. Send a JSON object.")
    try:
        data.decode()
        return msgspec.json.decode(data, type=type)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), type, data) from None
    except UnicodeDecodeError:
        raise Malformed("the body is not UTF-8.") from None
    except RecursionError:
        raise Malformed("the body is nested too deeply.") from None
    except msgspec.DecodeError as error:
        raise Malformed(f"the body is not JSON: {error}.") from None


def item_of(data: msgspec.Raw, type: type[T]) -> T:
    """One item of a request's list. Raises Rejected naming the field; it fails alone."""
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), type, data) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"it cannot be read: {error}.") from None


def _invalid(message: str, type: Any, data: bytes | msgspec.Raw) -> Rejected:
    """What msgspec says of a field of ``type``, in our words."""
    place = _AT.search(message)
    what = message[: place.start()] if place else message
    field = place[1].lstrip(".") if place else ""
    named = _NAMED.search(what)
    if named:
        name = named[1]
        full = f"{field}.{name}" if field else name
        if "unknown" not in what:
            return Rejected(f"{full}: it is missing.", field=full)
        if name in NOT_YET:
            return NotSupported(f"{full}: not supported in this release.", field=full)
        text = shown(full)[1:-1]
        return Rejected(f"{text}: no such field.{_known(type, field)}", field=text)
    fields = described_fields(type) if hasattr(type, "__struct_fields__") else {}
    described = fields.get(field.partition("[")[0])
    if described is not None and ", got " not in what:  # of the right type, and out of bounds
        try:
            described.read(msgspec.json.decode(data)[described.name])
        except Rejected as error:
            return error
        except (msgspec.DecodeError, RecursionError):
            pass  # a number beyond all numbers, or a payload as deep as can be read
    if not field:
        return Malformed(f"the body is not of the form this request has: {what.lower().replace('`', '')}.")
    return Rejected(f"{field}: {what[:1].lower()}{what[1:].replace('`', '')}.", field=field)


def _known(type: Any, place: str) -> str:
    """Which fields there are instead, in a body or at a place below it."""
    from msgspec.inspect import is_struct_type  # here, because few requests need it
    from msgspec.structs import fields as fields_in

    for name in filter(None, place.split(".")):
        types = {each.name: each.type for each in fields_in(type)}.get(name)
        type = next((each for each in get_args(types) if is_struct_type(each)), types)
        if not is_struct_type(type):
            return ""
    known = ", ".join(each.encode_name for each in fields_in(type))
    hint = " A job's own data has no fields here: put your data under `payload`." if type is NewJob else ""
    return f" Known: {known}.{hint}"


def check_items(items: Sequence[msgspec.Raw], field: str, codec: str = CODEC) -> None:
    """Raises Rejected when there are too many, or when all of them name a serialiser that cannot be."""
    validation.text(codec, "codec", CODEC_CHARS_MAX, 1)
    if len(items) > limits.ITEMS_PER_REQUEST_MAX:
        raise Rejected(
            f"{field}: {len(items):,} in one request; the most is {limits.ITEMS_PER_REQUEST_MAX:,}. Send them in"
            " several.",
            field=field,
        )


# ── Paths ────────────────────────────────────────────────────────────────────
def segment(text: str) -> str:
    """A part of a path, percent-decoded. Raises Malformed."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Malformed("the path is not UTF-8.") from None


def id_of(text: str) -> str:
    """The id in a path: as it is, or ``~`` and the base64url of its UTF-8."""
    if not text.startswith("~"):
        return job_name(text)
    try:
        padded = text[1:] + "=" * (-len(text[1:]) % 4)
        return job_name(urlsafe_b64decode(padded.encode("ascii")).decode())
    except (NotBase64, UnicodeError):
        raise Rejected(
            "id: what follows '~' is not base64url of UTF-8. Ids of A-Z, a-z, 0-9, '.', '_' and '-' need none.",
            field="id",
        ) from None


# ── Queries ──────────────────────────────────────────────────────────────────
def pairs_of(text: str) -> Pairs:
    """A raw query string, taken apart. Raises Malformed."""
    try:
        return tuple(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX))
    except ValueError:  # UnicodeDecodeError is one
        raise Malformed("the query is not UTF-8, or has too many parameters.") from None


def query_of(route: Route, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A route's parameters by name; those not given are absent. Raises Rejected."""
    known = {each.name: each for each in route.query}
    found: dict[str, Any] = {}
    for name, text in pairs:
        query = known.get(name)
        if query is None:
            hint = f"Known: {', '.join(known)}." if known else "This request takes none."
            text = shown(name)[1:-1]
            raise Rejected(f"{text}: no such parameter. {hint}", field=text)
        value = _parameter(query, text)
        if query.many:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Rejected(f"{name}: it is given twice.", field=name)
        else:
            found[name] = value
    return found


def _parameter(query: Query, text: str) -> Any:
    try:
        if query.type is int and text.isascii() and len(text) <= 20:
            return int(text)
        if query.type is float and text.isascii() and math.isfinite(number := float(text)):
            return number
        if query.type is bool:
            return {"true": True, "false": False}[text]
        if query.type is str:
            return text
    except (ValueError, KeyError):
        pass  # said below
    kinds = {int: "a whole number", float: "a number", bool: "true or false"}
    raise Rejected(f"{query.name}: {shown(text)} is not {kinds[query.type]}.", field=query.name)
