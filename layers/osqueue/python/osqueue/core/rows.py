"""Stored rows: what they are made of, references to bytes beside the head, and the row of a batch."""

from msgspec import Struct


class StoredRow(Struct, frozen=True, array_like=True, gc=False):
    """Base of everything that is stored many times. Frozen data has no cycles to look for."""


class BodyRef(StoredRow, frozen=True):
    """Bytes kept outside the head: part of an immutable object."""

    name: str  # the object's key below the shard's prefix
    start: int  # first byte
    length: int  # bytes
    crc: int  # CRC-32 of them


StoredContent = bytes | BodyRef


class Round(StoredRow, frozen=True):
    """Which groups had their turn. See ``fairness``."""

    served: tuple[bytes, ...] = ()  # their digests, in the order of their turns
    halvings: int = 0  # of the others chance lets so few be due; 0: all are


NO_ROUND = Round()  # this very one stays away from an encoded head


class LentRun(StoredRow, frozen=True):
    """Slots of a limiter, one after the other. Times are microseconds of the head's time."""

    at_us: int  # the first one's moment
    interval_us: int  # between two; 0: all have the same moment
    count: int
    life_us: int  # from its moment on one may be used for so long


class Lent(StoredRow, frozen=True):
    """What a limiter lent to a shard, and what is left of it. See ``lending``."""

    limiter: str  # its name
    epoch: int  # of the limiter
    runs: tuple[LentRun, ...]
    lent: int = 0  # slots of the last block
    used: int = 0  # since then
    owed: int = 0  # for units that started, and for which there was none


class BatchRow(StoredRow, frozen=True):
    """Jobs whose common end is waited for. See ``batches``."""

    name: str = ""
    created_ms: int = 0
    total: int = 0  # jobs that ever were of it
    left: int = 0  # of them that wait or run, wherever they lie
    failed: int = 0  # dead letters, also those that were forgotten
    cancelled: int = 0
    sealed: bool = False  # no jobs come from outside any more
    on_complete: bytes = b""  # the job that comes when none is left, encoded
    on_success: bytes = b""  # that which comes when all are completed
    ended_ms: int = 0  # when none was left; 0: not yet


class Ticket(StoredRow, frozen=True):
    """A right to claim for a consumer. See ``consumers``."""

    id: int  # of the commit that granted it and a number: never that of another one
    fired_ms: int  # when its consumer was invoked for it last, or claimed under it
    until_ms: int  # when it is void
    tries: int = 0  # how often it was fired before that, in vain
    holder: int = 0  # who claims under it, by 64 random bits; 0: nobody has come yet
