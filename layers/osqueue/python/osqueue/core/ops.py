"""What can be asked of a shard: a request of operations, and their outcomes.

A request is a vector of operations with an identity ``(env, n, nonce)`` that is fixed for good before it is
first sent. The operations are in ``job_ops`` and ``queue_ops``.
"""

from collections.abc import Sequence
from enum import IntEnum
from hashlib import shake_256
from itertools import groupby

import msgspec
from msgspec import Struct

from .job_ops import (
    AbortJobs,
    AttachBulk,
    AttachSpans,
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    EnqueueJobs,
    ExtendLeases,
    FailJobs,
    ReleaseJobs,
    ReplaceJobs,
    RunJobNow,
    SetResultTtl,
)
from .queue_ops import (
    CancelJobs,
    ChangeBatch,
    ChangePacer,
    ChangeSchedule,
    ChangeSettings,
    EraseJobs,
    KeepTicket,
    LengthenPauses,
    MergeSpans,
    MergeTables,
    RaiseGcFloor,
    RecordEvents,
    RedriveJobs,
    ReplaceSpan,
    ReserveSlots,
    ReturnSlot,
    RunTimers,
)
from .state import LeaseRecord


class Code(IntEnum):
    """What became of one item. The numbers are stored: never reuse one."""

    OK = 0
    QUEUED = 1
    SCHEDULED = 2
    LEASE_LOST = 3  # the token is not the newest one, or the job is gone
    CANCEL_REQUESTED = 4  # a heartbeat that worked, on a job somebody wants cancelled
    FAILING = 5  # will be retried
    FAILED = 6  # no attempts left
    CANCELLED = 7
    PROCESSING = 8  # cancel: asked of the worker
    COMPLETED = 9
    NOT_FOUND = 10
    RETRY = 11  # look again: the state has moved since the evidence was gathered
    STALE = 12  # the staged object is older than gc_floor: stage it again
    EMPTY = 14
    PAUSED = 15
    IN_FLIGHT_LIMIT = 16
    GRANTED = 17
    DELAYED_LIMIT = 18  # too many delayed jobs
    DUPLICATE = 19
    UNREADABLE = 20  # the next jobs lie in an object that is damaged, missing or of a newer format
    EXPIRED = 21  # the job's result is not kept any more
    CROWDED = 22  # no room in the head for one more of these
    RUNNING_LIMIT = 23  # as many jobs run as may, of the queue or of every kind that waits
    RESERVED = 24
    TOO_FAR = 25  # the next slot is further ahead than the caller would wait
    RATE_LIMITED = 26  # as many jobs of the queue have started as may for now
    KINDS_PAUSED = 27  # every kind that waits is paused
    KINDS_RATE_LIMITED = 28  # of every kind that waits as many have started as may for now
    GROUPS_CLOSED = 29  # all that wait are of groups that start nothing now
    GROUP_LIMIT = 30  # so many groups owe starts to their rates that no further one starts any
    BATCH_OVER = 31  # nothing may join the batch any more, or there is none
    TICKET_LOST = 33  # a consumer's right to claim is another's, or gone
    NO_SLOTS = 32  # jobs could start, if the queue's limiter had lent its shard a slot


_CODES = {int(code): code for code in Code}


Op = (
    EnqueueJobs
    | AttachSpans
    | AttachBulk
    | ClaimJobs
    | ExtendLeases
    | KeepTicket
    | CompleteJobs
    | FailJobs
    | ReleaseJobs
    | AbortJobs
    | CancelJob
    | ReplaceJobs
    | RunJobNow
    | SetResultTtl
    | MergeTables
    | ChangeSettings
    | LengthenPauses
    | RedriveJobs
    | RunTimers
    | CancelJobs
    | RecordEvents
    | RaiseGcFloor
    | ReplaceSpan
    | MergeSpans
    | EraseJobs
    | ChangePacer
    | ReserveSlots
    | ReturnSlot
    | ChangeSchedule
    | ChangeBatch
)


Identity = tuple[str, int, int]  # env, n, nonce


class Request(Struct, frozen=True, array_like=True):
    """One vector of operations and its identity."""

    env: str  # the writer
    n: int  # its request number
    nonce: int  # 64 random bits, drawn with n
    born: int  # seq of a head seen shortly before
    epoch: int  # of that head
    ops: tuple[Op, ...]

    @property
    def identity(self) -> Identity:
        """Who asks. A clone of the writer asks under the same env and n, never with the same nonce."""
        return (self.env, self.n, self.nonce)


class Outcome(Struct, frozen=True, array_like=True, gc=False):
    """What became of one operation: runs of (code, items), and the leases it was granted.

    A claim that got fewer than it asked for says in its last run why there were no more, and, in place of items, for
    how many milliseconds there will be none; 0: nobody knows.
    The leases travel only to a caller that made the commit itself; another finds them in the head by its nonce.
    """

    runs: tuple[tuple[int, int], ...]
    leases: tuple[LeaseRecord, ...] = ()

    @property
    def codes(self) -> list[Code]:
        """One code per item; not of a claim, whose last run tells a time."""
        return [code for number, count in self.runs for code in (_CODES[number],) * count]

    @property
    def code(self) -> Code:
        """The code of an operation that answers as a whole."""
        return _CODES[self.runs[0][0]]

    @property
    def count(self) -> int:
        """How many, where the operation answers with a number."""
        return self.runs[0][1]


_ALONE = tuple([Outcome(((number, 1),)) for number in range(max(_CODES) + 1)])  # by code


def outcome(codes: Sequence[Code]) -> Outcome:
    """Compress one code per item into runs."""
    if len(codes) == 1:
        return _ALONE[codes[0]]
    if codes and codes.count(codes[0]) == len(codes):
        return Outcome(((int(codes[0]), len(codes)),))
    return Outcome(tuple([(int(code), len(list(run))) for code, run in groupby(codes)]))


def nonce_digest(nonce: int) -> int:
    """Tells nonces apart, and nothing else about them: lease tokens are made of nonces."""
    return int.from_bytes(shake_256(b"mark.%016x" % nonce).digest(8), "big")


def token_of(nonce: int, position: int) -> str:
    """The lease token of the ``position``-th job granted to a request."""
    return f"{nonce:016x}-{position:x}"


_encode_outcomes = msgspec.msgpack.Encoder().encode
_decode_outcomes = msgspec.msgpack.Decoder(tuple[tuple[tuple[int, int], ...], ...]).decode


def outcomes_bytes_max(ops: Sequence[Op]) -> int:
    """The most bytes that the remembered outcomes of these operations can take: a run for every item."""
    return 3 + sum([5 + 4 * op.codes_max() for op in ops])


def encode_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """What a session row remembers of them: the codes, never the leases."""
    return _encode_outcomes([each.runs for each in outcomes])


def decode_outcomes(data: bytes) -> tuple[Outcome, ...]:
    """The inverse of ``encode_outcomes``."""
    return tuple(Outcome(runs) for runs in _decode_outcomes(data))
