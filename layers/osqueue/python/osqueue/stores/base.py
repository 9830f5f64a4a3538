"""The store port: seven small operations on named bytes, as data and as methods.

Everything durable goes through this port. A store keeps *objects*: a key, a body, and a **version
token** that changes whenever the bytes do. Equal bytes may have equal tokens, as on S3, so an object
whose tokens must never repeat begins with something that never does.

A request is a value (``Get``, ``PutIfMatch``, …) and so is its reply, because the commit protocol is a
generator that yields requests and receives replies: a blocking driver, an async driver and the simulator
perform the same requests. ``Store.perform`` maps a request to the method of the same name.

What a reply means:

* ``Refused`` is a *definite* answer: a conditional write lost its race and changed nothing.
* ``Failed`` is an *ambiguous* answer: a time-out, a dropped connection, a 5xx. A read brought nothing;
  a write may or may not have happened, or may still happen. With ``too_soon`` it is definite: see there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from msgspec import Struct

from ..errors import OsqueueError

KEY_BYTES_MAX = 1024  # the longest key S3 takes, in UTF-8 bytes
FILE_NAME_BYTES_MAX = 255  # what file systems take in one component of a path
# Folders that may lie in a store of their own (``split``). An address tells of them, so they are said here and not in
# ``objects``, which lays out everything else.
ARCHIVE = "archive/"  # finished jobs
BACKUPS = "backup/"  # copies of heads, and lists of purged jobs
LIST_KEYS_MAX = 1000  # the most keys one List may answer, where a store goes on behind any key


class Get(Struct, frozen=True):
    """Read an object, or ``length`` bytes of it from ``start``."""

    key: str
    unless: str | None = None  # a version: answer Unchanged when it is still the current one
    start: int | None = None  # first byte; None reads the whole object
    length: int | None = None  # bytes; None reads to the end
    flushed: bool = False  # answer only once a power cut would leave what is told


class Put(Struct, frozen=True):
    """Write an object whatever is there now. ``durable=False`` lets a store skip flushing to disk."""

    key: str
    body: bytes
    durable: bool = True


class PutIfAbsent(Struct, frozen=True):
    """Create an object; Refused when the key exists."""

    key: str
    body: bytes
    hot: bool = False  # it is replaced again and again: a store may keep it where that is quick


class PutIfMatch(Struct, frozen=True):
    """Replace an object; Refused unless its current version is ``version`` (or when it is missing)."""

    key: str
    body: bytes
    version: str
    wait_seconds: float | None = None  # for others, in a store that locks; None: as long as the store likes
    hot: bool = False  # as for a PutIfAbsent
    yields: bool = False  # Refused as well while another caller has the turn, where a store offers ``turns``


class List(Struct, frozen=True):
    """The keys that start with ``prefix`` and sort after ``after`` (exclusive), in byte order."""

    prefix: str
    after: str = ""
    limit: int | None = None  # None: as many as the store gives at once, which may be all there are

    def page(self, keys_max: int) -> int:
        """How many keys to answer, where one request gives so many."""
        return keys_max if self.limit is None else min(self.limit, keys_max)


class Delete(Struct, frozen=True):
    """Remove objects; a missing one is no error."""

    keys: tuple[str, ...]
    wait_seconds: float | None = None  # as for a PutIfMatch, for all keys together


class DeleteIfMatch(Struct, frozen=True):
    """Remove an object; Refused unless its current version is ``version``."""

    key: str
    version: str


class TakeTurn(Struct, frozen=True):
    """Wait until it is this caller's turn to replace an object; only for stores that offer ``turns``.

    Answered by a Turn, by Answered where the holder of the turn has carried ``note`` out meanwhile, and by Refused
    where nobody passed the turn on in ``wait_seconds``. A note is read by somebody, perhaps later, or by nobody.
    """

    key: str
    note: bytes  # for whoever has the turn: what this caller would do with it
    wait_seconds: float


class Found(Struct, frozen=True):
    """The answer to a Get of an existing object."""

    body: bytes
    version: str
    modified_ms: int  # when the store says it was written, ms since the Unix epoch, UTC
    apart: bool = (
        False  # and says so by another clock than the one of heads: see ``split``; no adapter sets it
    )


class Missing(Struct, frozen=True):
    """There is no object under the key (an answer to Get)."""


class Unchanged(Struct, frozen=True):
    """The object still has the version named by ``Get.unless``."""


class Written(Struct, frozen=True):
    """The write happened and this is the object's new version."""

    version: str


class Listed(Struct, frozen=True):
    """Keys in byte order; ``more`` says that others follow the last one."""

    keys: tuple[str, ...]
    more: bool


class Deleted(Struct, frozen=True):
    """The objects are gone."""


class Refused(Struct, frozen=True):
    """A conditional request's condition did not hold; nothing changed. Or there was no turn for whoever waited."""

    noted: bool = False  # may somebody read the note that was left for the holder of the turn?


class Failed(Struct, frozen=True):
    """No definite answer: the effect of a write is unknown, a read brought nothing."""

    error: OsqueueError
    too_soon: bool = False  # a write had no effect: the object was written less than ``Store.swap_gap_s`` ago
    late: bool = False  # the call had no more time to wait for the reply


class Turn(Struct, frozen=True):
    """It is this caller's turn, until it passes it on; or until it dies, or drops this object.

    A turn is a courtesy, no lock: whoever waits too long does without it, so the object is replaced by PutIfMatch.
    """

    notes: tuple[bytes, ...]  # of callers who wait
    held: object  # what the store knows it by
    noted: bool = True  # may anybody have read this caller's own note?


class PassTurn(Struct, frozen=True):
    """Let the next caller have the turn. ``answers``: for those whose notes were carried out, by their position."""

    turn: Turn
    answers: tuple[tuple[int, bytes], ...] = ()


class Answered(Struct, frozen=True):
    """The note was carried out. An empty answer was too long to be passed: the object tells it."""

    answer: bytes


class Passed(Struct, frozen=True):
    """The turn is somebody else's, or nobody's."""


class AnnouncedPut(Struct, frozen=True):
    """Creating an object of a content that is known by its length and its digest, for somebody else to carry out."""

    key: str
    length: int  # bytes
    sha256: str  # of them, in hexadecimal


class PresignedRequest(Struct, frozen=True):
    """A request of HTTP that whoever has it may send, until it expires: it is allowed by its signature."""

    method: str
    url: str
    headers: dict[str, str] = {}  # they are signed, too, and have to be sent as they are


StoreRequest = Get | Put | PutIfAbsent | PutIfMatch | List | Delete | DeleteIfMatch | TakeTurn | PassTurn
StoreReply = (
    Found | Missing | Unchanged | Written | Listed | Deleted | Refused | Failed | Turn | Answered | Passed
)


class LookPace(Struct, frozen=True):
    """How often to look at an object that others may change, by what a look costs."""

    quick: float  # seconds between two looks while there is news
    slow: float | None = None  # and at most when there is none; None: whatever the caller says
    # Seconds over which processes spread their claims of a job that becomes due; None: ``quick``.
    spread: float | None = None
    free: bool = False  # a look costs no money


class Remark(Struct, frozen=True):
    """What a store says of the way it is set up, as far as that decides what is kept."""

    check: str  # of what, in a word
    found: str
    remedy: str = ""  # what to do, where something is to be done
    grave: bool = False  # acknowledged jobs would be lost, or none be taken


# Called with a new version, or with "" if the store does not know it. Returns False to end the calls.
Told = Callable[[str], bool]
Hinted = Callable[[], bool]  # returns whether the store notifies of each new version now
Listen = Callable[[str, Told], Hinted]


def never_hinted() -> bool:
    """Return False: the store notifies of no version."""
    return False


def room_below(prefix: str, key_bytes_max: int = KEY_BYTES_MAX, name_bytes_max: int = KEY_BYTES_MAX) -> int:
    """How many bytes a key may go on with below a prefix, without another slash; by default, on S3."""
    return min(name_bytes_max, key_bytes_max - len(prefix.encode()))


def full_prefix(prefix: str) -> str:
    """What a store puts before every key: empty, or ending in one slash."""
    prefix = prefix.strip("/")
    return f"{prefix}/" if prefix else ""


class Store(ABC):
    """One place that keeps objects. Methods raise ``Unavailable`` or ``Timeout`` when the answer is unknown."""

    key_bytes_max: int = KEY_BYTES_MAX  # the longest key this store takes
    name_bytes_max: int = KEY_BYTES_MAX  # and the longest part of one, between slashes
    ordered: bool = True  # a List goes on where the last one ended; else each of them reads a folder whole
    remote: bool = True  # requests wait for another machine, so several at once are faster
    # Seconds that one request waits for its reply, by the store's own time-outs; 0: not known, or no network is used.
    reply_s_max: float = 0.0
    shared: bool = True  # other processes can open it, too, and find what this one has written
    turns: bool = False  # those who replace an object may take turns
    swap_gap_s: float = (
        0.0  # seconds between two writes of one object, at the least; sooner is Failed, too soon
    )
    look_pace: LookPace = LookPace(0.1)
    clock_tick_ms: int = 1_000  # resolution of ``modified_ms``, which is rounded down
    flushes: bool = False  # an object may be seen before it is flushed; a Get that asks for it waits for that

    def room_below(self, prefix: str) -> int:
        """The same in this store."""
        return room_below(prefix, self.key_bytes_max, self.name_bytes_max)

    @abstractmethod
    def get(self, request: Get) -> Found | Missing | Unchanged: ...

    @abstractmethod
    def put(self, request: Put) -> Written: ...

    @abstractmethod
    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused: ...

    @abstractmethod
    def put_if_match(self, request: PutIfMatch) -> Written | Refused: ...

    @abstractmethod
    def list(self, request: List) -> Listed: ...

    @abstractmethod
    def delete(self, request: Delete) -> Deleted: ...

    @abstractmethod
    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused: ...

    def take_turn(self, request: TakeTurn) -> Turn | Answered | Refused:
        """Wait for the turn; only where ``turns`` says so."""
        raise NotImplementedError

    def pass_turn(self, request: PassTurn) -> Passed:
        """Pass it on."""
        raise NotImplementedError

    def clock_ms(self) -> int | None:
        """The store's own clock, where it can be read without a request (ms since the epoch), else None."""
        return None

    def presigned(self, request: Get | AnnouncedPut, seconds: int) -> PresignedRequest | None:
        """What lets somebody else read a range of an object, or create one; None: this store cannot give it.

        Asks the store for nothing. Raises Unavailable where there are no credentials to sign with.
        """
        return None

    def listen(self, key: str, told: Told) -> Hinted:
        """Call ``told``, on any thread, soon after a hot object was replaced, where the store has notifications.

        Return a function that returns whether the store calls it now. Calls may be lost, so a listener also looks.
        """
        return never_hinted

    def remarks(self) -> tuple[Remark, ...]:
        """What its server says of its settings; nothing, where there are none that matter."""
        return ()

    @property
    def place(self) -> object:
        """Tells this store from others in the process: equal for two objects that keep the same things."""
        return self

    def close(self) -> None:  # noqa: B027 - most stores hold nothing to release
        """Release connections. The store may be used again; it then opens new ones."""

    def perform(self, request: StoreRequest) -> StoreReply:
        """Carry out one request. Never raises a store error: it answers ``Failed`` instead."""
        try:
            match request:
                case Get():
                    return self.get(request)
                case PutIfMatch():
                    return self.put_if_match(request)
                case Put():
                    return self.put(request)
                case PutIfAbsent():
                    return self.put_if_absent(request)
                case List():
                    return self.list(request)
                case Delete():
                    return self.delete(request)
                case DeleteIfMatch():
                    return self.delete_if_match(request)
                case TakeTurn():
                    return self.take_turn(request)
                case PassTurn():
                    return self.pass_turn(request)
        except OsqueueError as error:
            return Failed(error)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        """The same for a coroutine. A store whose client is natively asynchronous overrides this."""
        import asyncio  # here, because blocking callers never need it

        return await asyncio.to_thread(self.perform, request)
