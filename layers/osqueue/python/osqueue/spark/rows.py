"""Rows of a DataFrame as jobs to enqueue: which columns there may be, and what each value becomes.

What can be told from the schema is refused before anything runs. What only a row can tell is refused by the task that
meets it, with the row's place and the column's name; the whole write then fails and nothing becomes visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from .. import limits
from ..core.job_ops import JobSpec
from ..errors import NotSupported, Rejected
from ..model.codecs import Codec, serializer_of
from ..model.job_options import ITEM_FIELDS, OPTIONS, columns_of

KNOWN = tuple(name for name in ITEM_FIELDS if name not in ("id", "unique", "then", "batch"))
WHOLE = (ByteType, ShortType, IntegerType, LongType, NullType)
NUMBER = (*WHOLE, FloatType, DoubleType, DecimalType)
BINARY, JSON_TEXT, VALUE = "binary", "json", "value"  # what a payload column holds


class OptionForm(Struct, frozen=True):
    """Which columns a write may have for options of one type."""

    taken: tuple[type[DataType], ...]
    words: str  # the same for people


FORMS: dict[type, OptionForm] = {
    str: OptionForm((StringType, NullType), "a string"),
    int: OptionForm(WHOLE, "a whole number"),
    float: OptionForm(NUMBER, "a number of seconds"),
    datetime: OptionForm((TimestampType, *NUMBER), "a timestamp, or a number of seconds since 1970"),
    dict: OptionForm((MapType, NullType), "a map of strings to strings"),
}


class Shape(Struct, frozen=True):
    """What the rows of a write look like."""

    payload: str  # BINARY, JSON_TEXT or VALUE
    codec: str  # the serialiser's name, as it is stored with the jobs
    columns: tuple[str, ...]  # besides the payload
    maps: DataType | None = None  # of a payload with maps in it, which Arrow tells as lists of pairs


def shape_of(schema: StructType, serializer: str | None) -> Shape:
    """Check the columns. Raises Rejected, naming one and the remedy."""
    names = schema.fieldNames()
    if "id" in names:
        raise NotSupported(
            "id: a bulk takes no ids of your own, because each costs a request that makes sure of it. Drop the column,"
            " and give the write a batch_id, so that no run of it counts twice; or call Queue.enqueue_many in"
            " foreachPartition.",
            field="id",
        )
    if "unique" in names:
        raise NotSupported(
            "unique: it says how an id is kept unique, and a bulk takes no ids of your own. Drop the column.",
            field="unique",
        )
    for name in ("then", "batch"):
        if name in names:
            raise NotSupported(
                f"{name}: a bulk takes no follow-ups and no batch. Drop the column, or call Queue.enqueue_many in"
                " foreachPartition.",
                field=name,
            )
    for field in schema:
        if field.name not in KNOWN:
            raise Rejected(
                f"{field.name}: no such column. Known: {', '.join(KNOWN)}. To send it to the workers, put it into the"
                " payload: struct(…) AS payload.",
                field=field.name,
            )
        if field.name == "payload":
            continue
        form = FORMS[OPTIONS[field.name].type]
        if not isinstance(field.dataType, form.taken):
            raise Rejected(
                f"{field.name}: it is {field.dataType.simpleString()}, and has to be {form.words}. Cast it.",
                field=field.name,
            )
    if len(set(names)) < len(names):
        raise Rejected(f"{', '.join(names)}: a column stands there twice.", field="payload")
    if "payload" not in names:
        raise Rejected(
            "payload: there is no such column. Make one: df.select(struct('*').alias('payload')).",
            field="payload",
        )
    kind = schema["payload"].dataType
    columns = tuple(name for name in names if name != "payload")
    if isinstance(kind, BinaryType):
        if serializer is None:
            raise Rejected(
                "serializer: a binary payload is taken as it is, so say what wrote it: option('serializer', 'json'),"
                " 'msgpack', or the name of your own serialiser.",
                field="serializer",
            )
        return Shape(BINARY, serializer, columns)
    _check(kind, "payload")
    codec = serializer_of(serializer or "json").name
    if isinstance(kind, StringType):
        return Shape(JSON_TEXT, codec, columns)
    return Shape(VALUE, codec, columns, kind if _has_map(kind) else None)


class BatchPosition(Struct, frozen=True):
    """Where a batch stands in the frame."""

    partition: int
    row: int  # of the batch's first row in it

    def refused(self, error: Rejected, at: int) -> Rejected:
        """The error of one row of the batch, with its place."""
        place = f"row {self.row + at:,} of partition {self.partition}"
        return Rejected(
            f"{error.message} ({place}; nothing of this write becomes visible)", field=error.field
        )


class RowReader:
    """Turns Arrow batches into jobs."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._payload = _payload_reader(shape)

    def jobs(self, batch: pa.RecordBatch, keys: Sequence[bytes], where: BatchPosition) -> list[JobSpec]:
        """The jobs of a batch. Raises Rejected, naming a row."""
        encode, codec = self._payload, self._shape.codec
        payloads = batch.column("payload")
        if not self._shape.columns:
            at = 0
            try:
                jobs = []
                for at, (key, value) in enumerate(zip(keys, payloads, strict=True)):  # noqa: B007 - told below
                    jobs.append(JobSpec(key, encode(value), codec))
                return jobs
            except Rejected as error:
                raise where.refused(error, at) from error
        columns = {name: _values(batch.column(name)) for name in self._shape.columns}
        jobs = []
        for at, (key, value) in enumerate(zip(keys, payloads, strict=True)):
            row = {name: values[at] for name, values in columns.items() if values[at] is not None}
            try:
                jobs.append(JobSpec(key, encode(value), codec, **columns_of(row)))
            except Rejected as error:
                raise where.refused(error, at) from error
        return jobs


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if each is None else each / 1e6 for each in micros]
    if pa.types.is_map(column.type):
        return [None if each is None else dict(each) for each in column.to_pylist()]
    if pa.types.is_decimal(column.type):
        return [None if each is None else float(each) for each in column.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


# ── Payloads ─────────────────────────────────────────────────────────────────
def _payload_reader(shape: Shape) -> Callable[[pa.Scalar], bytes]:
    if shape.payload == BINARY:
        return _binary(shape.codec)
    codec = Codec(serializer_of(shape.codec))
    if shape.payload == JSON_TEXT:
        return _json_text(codec)
    if shape.maps is None:
        return _fitting(lambda value: codec.encode(value, "payload"))
    plain = _without_maps(shape.maps)
    return _fitting(lambda value: codec.encode(plain(value), "payload"))


def _fitting(encode: Callable[[Any], bytes]) -> Callable[[pa.Scalar], bytes]:
    def read(value: pa.Scalar) -> bytes:
        try:
            data = encode(value.as_py())
        except Rejected:
            raise
        except Exception as error:  # Python has fewer moments than Spark, and no text that is not UTF-8
            raise Rejected(
                f"payload: Python cannot take it ({type(error).__name__}: {error}). Cast what is in it to strings, or"
                " filter such rows out.",
                field="payload",
            ) from error
        if len(data) > limits.PAYLOAD_BYTES_MAX:
            raise Rejected(
                f"payload: {len(data):,} bytes; the most is {limits.PAYLOAD_BYTES_MAX:,}.", field="payload"
            )
        return data

    return read


def _json_text(codec: Codec) -> Callable[[pa.Scalar], bytes]:
    """A string column holds JSON: what is none would fail every worker that claims it."""

    def encode(value: Any) -> bytes:
        data = b"null" if value is None else value.encode()
        try:
            if codec.name == "json":
                msgspec.json.decode(data, type=msgspec.Raw)
                return bytes(data)
            return codec.encode(msgspec.json.decode(data), "payload")
        except msgspec.MsgspecError as error:
            raise Rejected(
                f"payload: it is no JSON ({error}). A string column holds JSON: write to_json(…) AS payload, or"
                " to_json(struct(text)) for plain text.",
                field="payload",
            ) from error

    return _fitting(encode)


def _binary(codec: str) -> Callable[[pa.Scalar], bytes]:
    decode = {
        "json": lambda data: msgspec.json.decode(data, type=msgspec.Raw),
        "msgpack": lambda data: msgspec.msgpack.decode(data, type=msgspec.Raw),
    }.get(codec)

    def encode(value: Any) -> bytes:
        if value is None:
            raise Rejected(
                "payload: it is null, and a binary payload has to be what the serialiser wrote.",
                field="payload",
            )
        data = bytes(value)
        try:
            if decode is not None:
                decode(data)
        except msgspec.MsgspecError as error:
            raise Rejected(f"payload: {codec} did not write it ({error}).", field="payload") from error
        return data

    return _fitting(encode)


def _check(kind: DataType, at: str) -> None:
    """Refuse what has no form of its own in a payload, before Arrow finds one for it. Raises Rejected."""
    match kind:
        case VariantType():
            raise _refused(at, "variant is not taken. Write to_json(payload) AS payload.")
        case YearMonthIntervalType():
            raise _refused(at, f"{kind.simpleString()} is not taken. Cast it to string.")
        case ArrayType():
            _check(kind.elementType, f"{at}[]")
        case MapType(keyType=StructType() | MapType() | ArrayType() | BooleanType() as key):
            remedy = "Make strings of them by transform_keys(…), or write map_entries(…)."
            raise _refused(f"{at}'s keys", f"{key.simpleString()} is not taken. {remedy}")
        case MapType():
            _check(kind.keyType, f"{at}'s keys")
            _check(kind.valueType, f"{at}{{}}")
        case StructType():
            for field in kind:
                if kind.names.count(field.name) > 1:
                    raise _refused(f"{at}.{field.name}", "it stands there twice. Rename one.")
                _check(field.dataType, f"{at}.{field.name}")


def _refused(at: str, why: str) -> Rejected:
    return Rejected(f"{at}: {why}", field="payload")


def _has_map(kind: DataType) -> bool:
    match kind:
        case MapType():
            return True
        case ArrayType():
            return _has_map(kind.elementType)
        case StructType():
            return any(_has_map(field.dataType) for field in kind)
        case _:
            return False


def _without_maps(kind: DataType) -> Callable[[Any], Any]:
    """Arrow tells a map as a list of pairs; what turns it, wherever it stands, into a dictionary."""
    match kind:
        case MapType():
            inner = _without_maps(kind.valueType)
            return lambda value: None if value is None else {key: inner(each) for key, each in value}
        case ArrayType():
            inner = _without_maps(kind.elementType)
            return lambda value: None if value is None else [inner(each) for each in value]
        case StructType():
            below = {field.name: _without_maps(field.dataType) for field in kind}
            return lambda value: (
                None if value is None else {name: turn(value[name]) for name, turn in below.items()}
            )
        case _:
            return lambda value: value
