"""Two releases of the code that share a queue.

The newer one keeps more: how many of its commits there were, in the head, and a stamp on every lease that it grants,
as a field added at the end. An older release would read such a head, since it takes no notice of what it does not
know, and write it back without them. So the newer one uses them only where it writes the newer format, which the
older one neither reads nor overwrites. Between the two there is a release that reads it, keeps what it finds, and
uses nothing new: the newer one before it switches, and half of the time after.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import astuple

from osqueue.core import draft, encoding, intents
from osqueue.core.draft import Draft
from osqueue.core.state import LeaseRecord, State

from .ledger import Violation

OLDER, NEWER = (1,), (1, 2)  # the formats that each reads
USED_FROM = 2  # the format from which on the newer release writes what it keeps


class StampedLease(LeaseRecord, frozen=True):
    """A lease, as the newer release keeps it."""

    stamp: str = ""  # the token again


class StampedState(State, frozen=True, omit_defaults=True):
    """A head, as the newer release keeps it."""

    leases: dict[bytes, StampedLease] = msgspec.field(default_factory=dict)  # type: ignore[assignment]
    stamps: int = 0  # commits of the newer release


_older = msgspec.msgpack.Decoder(State).decode
_newer = msgspec.msgpack.Decoder(StampedState).decode
_freeze = Draft.freeze


def _stamped_lease(*fields: Any, **named: Any) -> LeaseRecord:
    lease = LeaseRecord(*fields, **named)
    if encoding.FORMAT < USED_FROM:
        return lease
    every: tuple[Any, ...] = (*astuple(lease), lease.token)
    return StampedLease(*every)


def _stamped_freeze(self: Draft, load: int, listed: bool) -> State:
    state = _freeze(self, load, listed)
    kept = {name: getattr(state, name) for name in State.__struct_fields__}
    stamps = getattr(self.state, "stamps", 0)
    if encoding.FORMAT >= USED_FROM:
        stamps += 1
        kept["format"] = max(state.format, encoding.FORMAT)
    return StampedState(**kept, stamps=stamps)


def _speak(newer: bool, writes: int) -> None:
    """Let the code be of one of the releases, and write this format."""
    reads = NEWER if newer else OLDER
    values: tuple[Any, ...] = (reads, reads, writes, writes, _newer if newer else _older)
    values += (_stamped_lease, _stamped_freeze) if newer else (LeaseRecord, _freeze)
    for (home, name), value in zip(_DIFFER, values, strict=True):
        setattr(home, name, value)


_DIFFER: tuple[tuple[Any, str], ...] = (
    (encoding, "FORMATS_READ"),
    (intents, "FORMATS_READ"),
    (encoding, "FORMAT"),
    (intents, "FORMAT"),
    (encoding, "_decode_state"),
    (draft, "LeaseRecord"),
    (Draft, "freeze"),
)


@contextmanager
def both_read() -> Iterator[None]:
    """The checks of a run read whatever either release writes."""
    before = [getattr(home, name) for home, name in _DIFFER]
    _speak(True, 1)
    try:
        yield
    finally:
        for (home, name), value in zip(_DIFFER, before, strict=True):
            setattr(home, name, value)


class ReleaseInUse:
    """While a client steps, the release it runs: what it can read, and what it writes."""

    def __init__(self, newer: bool, switched: bool) -> None:
        self._newer = newer
        self._writes = 2 if switched else 1

    def __enter__(self) -> None:
        _speak(self._newer, self._writes)

    def __exit__(self, *_: object) -> None:
        _speak(True, 1)


def check(before: State, state: State) -> None:
    """Nothing that the newer release keeps is lost to a commit of the older one."""
    if getattr(state, "stamps", 0) < getattr(before, "stamps", 0):
        raise Violation("what a newer release keeps in the head was erased")
    for key, lease in state.leases.items():
        known = before.leases.get(key)
        if known is None or known.token != lease.token:
            continue
        if getattr(known, "stamp", "") != getattr(lease, "stamp", ""):
            raise Violation("what a newer release keeps with a lease was erased")
