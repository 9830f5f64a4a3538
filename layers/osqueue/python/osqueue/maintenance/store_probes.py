"""Does the store keep the promises the queue is built on? Tried on objects under ``doctor/``, removed afterwards.

Each probe is one sentence of the store port's contract: it makes the request, and reads the store's state as well,
because a store may answer "refused" and write all the same, or ignore the condition and answer "written".
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .. import limits
from ..clock import Machine
from ..commit.effects import All, Flow, Sleep
from ..errors import Rejected
from ..objects.layout import unavailable
from ..stores.base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Remark,
    StoreReply,
    Unchanged,
    Written,
)

OK, WARNING, TROUBLE = "ok", "warning", "trouble"
LEVELS = (OK, WARNING, TROUBLE)

FOLDER = "doctor/"
REPLACEMENTS = 4  # one right after another; files get the inode number of the one before last
BUSY_S = 1.2  # Google takes one write of an object a second
ORDERED = f"{FOLDER}order"  # what keys begin with that are listed; servers on file systems put a slash first
RIVALS = 8  # writers that create one object at the same time: one may win
MACHINE_APART_MS_MAX = 5 * limits.SECOND_MS  # S3 reports whole seconds, and a request takes its time

UNSAFE = "Do not keep queues here: acknowledged jobs would be lost. Use Amazon S3, or a server with conditional writes."
UNORDERED = (
    "Do not keep queues here: announced jobs would be passed over. Use a store that lists by the bytes."
)
ELSEWHERE = "Do what it says, or keep queues elsewhere."
RIGHTS = (
    "Allow reading and writing there: in a bucket s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket on the"
    " prefix, in a folder by its owner and mode."
)


class Finding(Struct, frozen=True):
    """What one check found."""

    level: str  # ok, warning or trouble
    check: str
    found: str
    remedy: str = ""  # what to do, where something is to be done
    queue: str | None = None
    shard: int | None = None
    figures: dict[str, float] = {}  # what was measured, each with its unit in its name


class StoreProbes:
    """The probes of one store, in one go: each uses what the one before left."""

    def __init__(self, machine: Machine, store_ms: int | None) -> None:
        self.machine = machine
        self.apart_ms: int | None = None  # by how much this machine is ahead of the store
        if store_ms is not None:
            self.apart_ms = machine.now_ms() - store_ms
        self.name = f"{machine.bits(64):016x}"
        self.key = FOLDER + self.name
        names = [ORDERED + between + self.name for between in ("-", "-/", ".", "/", "A", "a", "é")]
        self.ordered = tuple(sorted(names, key=str.encode))
        self.written = True  # there may be something to remove
        self.findings: list[Finding] = []

    def run(self) -> Flow[list[Finding]]:
        """Probe the store; ``apart_ms`` is known afterwards, if it gave any answer."""
        first = yield from self._create()
        if first is not None:
            second = yield from self._replace(first)
            last = (yield from self._hurry(first, second)) if second is not None else first
            yield from self._read(last)
            yield from self._race()
            if second is not None:
                yield from self._spare(first)
            yield from self._remove()
        if self.written:
            yield from self._clean()
        return self.findings

    # ── One sentence each ────────────────────────────────────────────────────
    def _create(self) -> Flow[str | None]:
        """put_if_absent creates, and refuses an existing key. Answers the version of the object."""
        reply = yield PutIfAbsent(self.key, b"first")
        if not isinstance(reply, Written):
            refused = isinstance(reply, Failed) and isinstance(reply.error, Rejected)
            remedy = ELSEWHERE if refused else RIGHTS
            self._trouble("create", f"an object cannot be created: {_answer(reply)}", remedy)
            self.written = not (isinstance(reply, Failed) and reply.error.permanent)
            return None
        again = yield PutIfAbsent(self.key, b"usurper")
        found = yield Get(self.key)
        if not isinstance(found, Found):
            self._trouble("get", f"what was just written cannot be read: {_answer(found)}", RIGHTS)
            return None
        if self.apart_ms is None:
            self.apart_ms = self.machine.now_ms() - found.modified_ms
        if isinstance(again, Written) or found.body != b"first":
            self._trouble(
                "create-only", "the store ignores If-None-Match: it overwrote an existing object", UNSAFE
            )
        elif isinstance(again, Refused):
            self._ok("create-only", "an existing object is not overwritten")
        else:
            self._trouble("create-only", f"a conditional create brought no answer: {_answer(again)}", RIGHTS)
        return found.version

    def _replace(self, first: str) -> Flow[str | None]:
        """put_if_match replaces the version that is there, and refuses a stale one."""
        reply = yield from self._swap(b"second", first)
        if not isinstance(reply, Written):
            self._trouble("compare-and-swap", f"If-Match of the current version: {_answer(reply)}", UNSAFE)
            return None
        stale = yield PutIfMatch(self.key, b"usurper", first)
        found = yield Get(self.key)
        if isinstance(stale, Written) or (isinstance(found, Found) and found.body != b"second"):
            self._trouble(
                "compare-and-swap", "the store ignores If-Match: it overwrote a newer version", UNSAFE
            )
        elif isinstance(stale, Refused):
            absent = yield PutIfMatch(self.key + "-absent", b"usurper", first)
            text = "a stale version is refused"
            self._check("compare-and-swap", absent, isinstance(absent, Refused), text, UNSAFE)
        else:
            self._trouble("compare-and-swap", f"If-Match of a stale version: {_answer(stale)}", UNSAFE)
        return reply.version

    def _hurry(self, *versions: str) -> Flow[str]:
        """No version comes back, however soon one write follows another. Answers the last one."""
        seen = list(versions)
        for at in range(REPLACEMENTS):
            reply = yield from self._swap(b"%d" % at, seen[-1])
            if not isinstance(reply, Written):
                self._trouble("versions", f"If-Match of the current version: {_answer(reply)}", UNSAFE)
                return seen[-1]
            seen.append(reply.version)
        if len(set(seen)) < len(seen):
            self._trouble(
                "versions", "a version came back: a stale write can pass for one that knew the newest", UNSAFE
            )
        else:
            self._ok("versions", f"{len(seen)} writes, one right after another, made {len(seen)} versions")
        return seen[-1]

    def _swap(self, body: bytes, version: str) -> Flow[StoreReply]:
        """Replace the object; after a while once more, where the store takes no writes so soon one after another."""
        reply: StoreReply = yield PutIfMatch(self.key, body, version)
        if isinstance(reply, Failed) and not reply.error.permanent:
            yield Sleep(BUSY_S)
            found = yield Get(self.key)
            if isinstance(found, Found) and found.body == body:  # it was taken after all
                return Written(found.version)
            reply = yield PutIfMatch(self.key, body, version)
        return reply

    def _read(self, version: str) -> Flow[None]:
        """Conditional and partial reads, and listings."""
        plain = yield Put(self.key + "-plain", b"0123456789")
        self._check("put", plain, isinstance(plain, Written), "an object is written", RIGHTS)
        part = yield Get(self.key + "-plain", start=3, length=4)
        right = isinstance(part, Found) and part.body == b"3456"
        self._check("range", part, right, "part of an object is read", "Bodies and segments need ranges.")
        unchanged = yield Get(self.key, unless=version)
        if isinstance(unchanged, Unchanged):
            self._ok("conditional get", "an unchanged object is not sent again")
        else:
            self._warn(
                "conditional get", f"the answer was: {_answer(unchanged)}", "Reads will cost more traffic."
            )
        yield from self._list()

    def _list(self) -> Flow[None]:
        """A listing holds what was written at once, in the order of its bytes, page by page."""
        for name in reversed(self.ordered):
            yield Put(name, b"", durable=False)
        listed = yield List(ORDERED)
        own = self._own(listed)
        right = {*own} == {*self.ordered}
        self._check("list", listed, right, "what was written is listed at once", RIGHTS)
        if right:
            page = yield List(ORDERED, limit=2)
            rest = yield List(ORDERED, after=self.ordered[1])
            paged = isinstance(page, Listed) and len(page.keys) == 2 and page.more
            if own == self.ordered and paged and self._own(rest) == self.ordered[2:]:
                self._ok("order", f"{len(own)} keys are listed in the order of their bytes, page by page")
            else:
                self._trouble(
                    "order", "keys are not listed in the order of their bytes, page by page", UNORDERED
                )

    def _own(self, listed: StoreReply) -> tuple[str, ...]:
        """Of a listing, the keys of this probe: others may be at work."""
        return tuple(key for key in listed.keys if self.name in key) if isinstance(listed, Listed) else ()

    def _race(self) -> Flow[None]:
        """Of several writers that create one object at the same time, one wins."""
        puts = tuple(PutIfAbsent(self.key + "-race", bytes([at])) for at in range(RIVALS))
        replies = yield All(puts)
        winners = sum(isinstance(reply, Written) for reply in replies)
        if winners > 1:
            self._trouble(
                "race",
                f"{winners} of {RIVALS} writers created one object: the check is no part of the write",
                UNSAFE,
            )
        elif winners == 1:
            self._ok("race", f"of {RIVALS} writers at once, one created the object")
        else:
            self._warn("race", f"no writer of {RIVALS} at once was told it had won", "Run it again.")

    def _spare(self, stale: str) -> Flow[None]:
        """delete_if_match spares another version than the one it names."""
        reply = yield DeleteIfMatch(self.key, stale)
        found = yield Get(self.key)
        if isinstance(reply, Failed):
            self._warn(
                "conditional delete",
                _answer(reply),
                "Clients' ids of forgotten jobs stay in the store until it works. On S3 it needs boto3, on Azure an"
                " account key or an identity.",
            )
            return
        self._check(
            "conditional delete",
            reply,
            isinstance(reply, Refused) and isinstance(found, Found),
            "another version than the one named is spared",
            "A client's id just taken over could be freed. Use a store with conditional deletes.",
        )

    def _remove(self) -> Flow[None]:
        """Delete removes."""
        reply = yield Delete((self.key,))
        right = isinstance(reply, Deleted) and isinstance((yield Get(self.key)), Missing)
        self._check("delete", reply, right, "an object is removed", RIGHTS)

    def _clean(self) -> Flow[None]:
        rest = tuple(self.key + end for end in ("", "-plain", "-absent", "-race"))
        if not isinstance((yield Delete((*rest, *self.ordered))), Deleted):
            self._warn("clean-up", f"{self.key}* is left in the store", "Remove it by hand.")

    # ── The clock ────────────────────────────────────────────────────────────
    def clock(self) -> Finding:
        """The machine's clock against the store's."""
        apart = self.apart_ms
        if apart is None:
            return Finding(WARNING, "clock", "the store's clock could not be read", "See the checks above.")
        if abs(apart) <= MACHINE_APART_MS_MAX:
            return Finding(OK, "clock", f"this machine and the store agree within {abs(apart) / 1000:.1f} s")
        word = "ahead of" if apart > 0 else "behind"
        return Finding(
            WARNING,
            "clock",
            f"this machine is {abs(apart) / 1000:,.1f} s {word} the store",
            "Set the machine's clock (NTP). Leases go by the store's; times you pass and ages shown are off.",
        )

    # ── Words ────────────────────────────────────────────────────────────────
    def _check(self, check: str, reply: StoreReply, right: bool, good: str, remedy: str) -> None:
        if right:
            self._ok(check, good)
        else:
            self._trouble(check, f"the answer was: {_answer(reply)}", remedy)

    def _ok(self, check: str, found: str) -> None:
        self.findings.append(Finding(OK, f"store: {check}", found))

    def _warn(self, check: str, found: str, remedy: str) -> None:
        self.findings.append(Finding(WARNING, f"store: {check}", found, remedy))

    def _trouble(self, check: str, found: str, remedy: str) -> None:
        self.findings.append(Finding(TROUBLE, f"store: {check}", found, remedy))


def of_settings(remark: Remark) -> Finding:
    """What a store says of the way it is set up."""
    level = TROUBLE if remark.grave else WARNING if remark.remedy else OK
    return Finding(level, f"store: {remark.check}", remark.found, remark.remedy)


def worst(findings: Sequence[Finding]) -> str:
    """The gravest level among them."""
    return max((each.level for each in findings), key=LEVELS.index, default=OK)


def _answer(reply: object) -> str:
    if isinstance(reply, Failed):
        return reply.error.message
    return _ANSWERS.get(type(reply), type(reply).__name__)


_ANSWERS: dict[type, str] = {
    Written: "written",
    Refused: "refused",
    Missing: "not there",
    Found: "the object, not as it should be",
    Listed: "a listing without it",
    Deleted: "deleted",
    Unchanged: "unchanged",
}


def measure(machine: Machine) -> Flow[int]:
    """By how many ms this machine is ahead of the store's clock. Raises Unavailable.

    As ``commit.writer`` measures it: by when the store says it has written a small object.
    """
    key = f"{FOLDER}{machine.bits(64):016x}-clock"
    written = yield Put(key, b"")
    found = yield Get(key)
    now = machine.now_ms()
    yield Delete((key,))
    if not isinstance(found, Found):
        raise unavailable(written if isinstance(written, Failed) else found, "its clock")
    return now - found.modified_ms
