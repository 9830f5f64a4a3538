"""News of an address: one small object that names the heads at which a rest has ended.

A process that waits at many heads of one store cannot look at each of them every second: on S3, 40 heads are 36 GETs a
second. So a commit that ends the *rest* of a head, a time without commits, writes a notice of it to the object
``news``. A process that waits looks at ``news`` once in each ``poll``, and at heads at rest in turn
(``operations.news_board``).

Who writes, and when
    A commit on a head whose latest commit is REST_MS old or older, or the first commit of a head: one write for each
    rest, whichever process commits. Only where a process wants news: the first such process creates the object. Not
    on a folder or Valkey, which notify, and not where an object takes one write a second (Google).
What it costs
    A write beside the PUT of the head, at the same time: no round trip more. The object is read beside the head, if a
    call reads a head at rest. Where another process has written the object since it was read, the write is refused, and
    reading it and writing again take two round trips more. The first commit of a process that did not read the object
    before takes one more.
What is read
    The object lists the latest notices, the newest last. A write keeps the notices before it, by a conditional PUT on
    the version that was read. A reader that finds the latest notice it knows looks at the heads that later notices
    name. A reader that does not find it looks at all of its heads, for some seconds. So no write hides another one, not
    even the write of a writer that was refused several times in a row, which replaces all notices.
What may be lost
    The notice of a writer that dies or is cut off between the two PUTs, that may not read and write ``news``, or whose
    clock is wrong by seconds. So may one that a late repeat of an older PUT replaces. The head is then found by the
    look in turn: ``operations.news_board`` states within which time.

A notice holds a digest of the head's place: no name of a queue, and nothing of a job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from ..clock import Machine
from ..stores.base import (
    Failed,
    Found,
    Get,
    Missing,
    Put,
    PutIfMatch,
    Refused,
    Store,
    StoreReply,
    Unchanged,
    Written,
)

NEWS = "news"
REST_MS = 10_000  # without a commit, after which a commit writes a notice
NOTICES_KEPT = 32
FRESH_SECONDS = 3.0  # for which the version that was read is worth a conditional write
DRAWN_BITS = 32  # of a notice, which never repeats
PLACE_DIGITS = 12  # of a notice: hexadecimal digits of the digest of a place

Notices = tuple[str, ...]


class _Stored(Struct, frozen=True):
    notices: Notices = ()
    format: int = 1


def place_in_news(root: str) -> str:
    """Return how notices name the head below a prefix."""
    return hashlib.sha256(root.encode()).hexdigest()[:PLACE_DIGITS]


def place_of(notice: str) -> str:
    """Return which head a notice names."""
    return notice[-PLACE_DIGITS:]


def encoded(notices: Notices) -> bytes:
    """Return the body of the object."""
    return msgspec.json.encode(_Stored(notices))


def decoded(body: bytes) -> Notices:
    """Return the notices of a body; none if it is not a body of this format."""
    try:
        return msgspec.json.decode(body, type=_Stored).notices
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()


class KnownNews(Struct, frozen=True):
    """The object as this process last saw it."""

    version: str | None  # None: there is no such object
    notices: Notices
    at: float  # monotonic seconds, before the request was sent


NewsRequest = Get | Put | PutIfMatch


class News:
    """What one process knows of the object of a store. Threads share it: each change is one assignment."""

    def __init__(self) -> None:
        self.known: KnownNews | None = None

    def look(self) -> Get:
        """Return the request that reads the object."""
        known = self.known
        return Get(NEWS, unless=known.version if known is not None else None)

    def see(self, looks: Sequence[Get], replies: Sequence[StoreReply], began: float) -> None:
        """Take in the replies to looks that were sent at ``began``, in monotonic seconds."""
        for look, reply in zip(looks, replies, strict=True):
            known = self.known
            if isinstance(reply, Found):
                self.known = KnownNews(reply.version, decoded(reply.body), began)
            elif isinstance(reply, Missing):
                self.known = KnownNews(None, (), began)
            elif isinstance(reply, Unchanged) and known is not None and known.version == look.unless:
                self.known = KnownNews(known.version, known.notices, began)

    def report(self, root: str, machine: Machine) -> tuple[NewsRequest] | tuple[()]:
        """Return the request that reports the end of a head's rest; none if no process wants to know.

        The object is read first if it is not known whether there is one: ``report_again`` writes then.
        """
        known = self.known
        if known is None:
            return (self.look(),)
        if known.version is None:
            return (self.look(),) if machine.monotonic() - known.at >= FRESH_SECONDS else ()
        return (
            PutIfMatch(
                NEWS, encoded((*known.notices[1 - NOTICES_KEPT :], _notice(root, machine))), known.version
            ),
        )

    def report_again(
        self,
        request: NewsRequest,
        reply: StoreReply,
        began: float,
        root: str,
        machine: Machine,
        *,
        last: bool,
    ) -> tuple[NewsRequest] | tuple[()]:
        """Take in the reply to a report that was sent at ``began``. Return the request that is left to send.

        The ``last`` request replaces all notices, which no other writer's request makes fail.
        """
        if isinstance(request, Get):
            wanted = self.known is not None and self.known.version is not None
            self.see((request,), (reply,), began)
            if isinstance(reply, Found | Unchanged):
                return self.report(root, machine)
            failed = wanted and _may_succeed_again(reply)
        elif isinstance(reply, Written):
            self.known = KnownNews(reply.version, decoded(request.body), began)
            return ()
        else:
            failed = isinstance(request, PutIfMatch) and _may_succeed_again(reply)
            if failed and not last:
                return (self.look(),)
        return (Put(NEWS, encoded((_notice(root, machine),)), durable=False),) if failed else ()


def _notice(root: str, machine: Machine) -> str:
    return f"{machine.bits(DRAWN_BITS):0{DRAWN_BITS // 4}x}{place_in_news(root)}"


def _may_succeed_again(reply: StoreReply) -> bool:
    """Return whether another request may succeed: the store has not forbidden it, and there is time."""
    return isinstance(reply, Refused) or (
        isinstance(reply, Failed) and not reply.late and not reply.error.permanent
    )


_NEWS: WeakValueDictionary[object, News] = WeakValueDictionary()  # by store


def news_of(store: Store) -> News | None:
    """Return what this process knows of a store's news. None: a look there is cheap, or a write is scarce."""
    if store.look_pace.free or store.swap_gap_s:
        return None
    return _NEWS.setdefault(store.place, News())
