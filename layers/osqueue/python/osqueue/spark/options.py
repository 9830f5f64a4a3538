"""The options of the data source: checked once, on the driver, each error with the option's name and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct

from .. import limits
from ..bulk.writer import batch_id_of
from ..errors import NotSupported, Rejected, shown
from ..masking import printable
from ..model.validation import queue_name
from ..objects.snapshot import LIVE
from ..stores.address import anywhere, is_remote, open_store
from ..stores.counting import CountingStore

PLACE = ("address", "queue")
READ = (*PLACE, "state", "payload")
TAIL = (*PLACE, "since", "parts_per_batch")
WRITE = (*PLACE, "batch_id", "serializer")
SINK = (*PLACE, "serializer")
SPARKS_OWN = ("checkpointlocation", "queryname")  # of a stream, which Spark hands on
SERIALIZER_CHARS_MAX = 32


class QueueLocation(Struct, frozen=True):
    """Where a queue is."""

    address: str
    queue: str

    def __repr__(self) -> str:
        return f"QueueLocation({printable(self.address)}, {self.queue})"

    def open(self) -> CountingStore:
        """The store, opened in the process that asks."""
        return open_store(self.address)


class ReadOptions(Struct, frozen=True):
    """What ``spark.read`` takes."""

    place: QueueLocation
    states: tuple[str, ...]  # of the jobs that are wanted
    payload: bool  # read payloads?


class TailOptions(Struct, frozen=True):
    """What ``spark.readStream`` takes."""

    place: QueueLocation
    since_ms: int | None  # begin with the archive's hour of this moment; None: with its first
    parts_per_batch: int | None  # parts of the archive in one micro-batch; None: all there are


class WriteOptions(Struct, frozen=True):
    """What ``df.write`` takes."""

    place: QueueLocation
    batch_id: str | None
    serializer: str | None  # of the payloads; None: JSON, and binary ones are refused


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Those of a batch read. Raises Rejected."""
    _check_names(given, READ, "read")
    states = tuple(each.strip() for each in given.get("state", ",".join(LIVE)).split(","))
    for state in states:
        if state not in LIVE:
            raise Rejected(
                f"state: {shown(state)} is none of {', '.join(LIVE)}. Name one or more, separated by commas. Jobs that"
                " are over are in the archive: spark.readStream, or the table 'jobs'.",
                field="state",
            )
    payload = given.get("payload", "true").lower()
    if payload not in ("true", "false"):
        raise Rejected(f"payload: {shown(payload)} is neither true nor false.", field="payload")
    return ReadOptions(_place(given), states, payload == "true")


def tail_options(given: Mapping[str, str]) -> TailOptions:
    """Those of a stream. Raises Rejected."""
    _check_names(given, TAIL, "readStream")
    return TailOptions(_place(given), _moment_ms(given.get("since")), _count(given.get("parts_per_batch")))


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Those of a write. Raises Rejected."""
    _check_names(given, WRITE, "write")
    batch_id = given.get("batch_id")
    return WriteOptions(
        _place(given), None if batch_id is None else batch_id_of(batch_id), _serializer(given)
    )


def sink_options(given: Mapping[str, str]) -> WriteOptions:
    """Those of a stream's sink. Raises Rejected."""
    if "batch_id" in given:
        raise Rejected(
            "batch_id: a stream has one for each micro-batch, of its checkpoint and the batch's number. Leave it out.",
            field="batch_id",
        )
    own = {name: value for name, value in given.items() if name.lower() not in SPARKS_OWN}
    _check_names(own, SINK, "writeStream")
    return WriteOptions(_place(own), None, _serializer(own))


def _serializer(given: Mapping[str, str]) -> str | None:
    serializer = given.get("serializer")
    if serializer is not None and not 1 <= len(serializer) <= SERIALIZER_CHARS_MAX:
        raise Rejected(
            f"serializer: {shown(serializer)} is no serialiser's name of 1 to {SERIALIZER_CHARS_MAX} characters.",
            field="serializer",
        )
    return serializer


def _check_names(given: Mapping[str, str], known: tuple[str, ...], use: str) -> None:
    for name in given:
        if name == "path":
            raise Rejected(
                "path: this source has none. Call load() and save() without it, and give option('address', …).",
                field="path",
            )
        if name not in known:
            raise Rejected(f"{name}: {use} has no such option; it takes {', '.join(known)}.", field=name)


def _place(given: Mapping[str, str]) -> QueueLocation:
    for name, example in (("address", "s3://bucket/prefix"), ("queue", "emails")):
        if not given.get(name):
            raise Rejected(f"{name}: it is missing. Add option({name!r}, {example!r}).", field=name)
    return QueueLocation(_reachable(given["address"]), queue_name(given["queue"]))


def _reachable(address: str) -> str:
    """An address that means the same thing to every worker. Raises Rejected."""
    if is_remote(address):
        raise NotSupported(
            "address: this needs the store itself, and an API keeps its objects to itself. Give the store's own"
            " address, such as s3://bucket/prefix.",
            field="address",
        )
    store = open_store(address)  # says what is wrong with it; nothing is sent
    store.close()
    if not store.shared:
        raise Rejected(
            "address: memory:// is in one process, and Spark's workers are others. Use file:///folder or"
            " s3://bucket/prefix.",
            field="address",
        )
    return anywhere(address)


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not int(text):
        raise Rejected(
            f"parts_per_batch: {shown(text)} is not a whole number from 1. Leave it out for no limit.",
            field="parts_per_batch",
        )
    return int(text)


def _moment_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Rejected(
            f"since: {shown(text)} is no moment. Write one like 2026-11-21T10:00:00+00:00.", field="since"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    found = round(moment.timestamp() * 1000)
    if not 0 <= found <= limits.AT_MS_MAX:
        raise Rejected(f"since: {shown(text)} is before 1970.", field="since")
    return found
