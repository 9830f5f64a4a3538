"""Is everything as it should be? What the store promises, what the clocks say, and every shard of every queue.

The checks write nothing but the probe objects (``store_probes``). Each answers ``Finding``s: ok, a warning (it works,
but somebody should know), or trouble (it does not, or will not for long), with what was found and what to do about it.
Repairs are apart: ``head_restore`` puts a head back, ``fix_clock`` gives it the right time, ``orphan_ids`` repairs ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import asdict

from .. import limits
from ..clock import Machine
from ..commit.effects import All, Flow, Sleep
from ..commit.writer import HEAD
from ..core.audit import imbalances, spans_of
from ..core.encoding import born_of, decode_head, encode_head
from ..core.head_content import contents_in_memory
from ..core.intents import intents_prefix, parse_intent_key, read_intent, request_in_key
from ..core.pauses import lasting
from ..core.restore import SEQ_MARGIN, reset_clock
from ..core.state import State
from ..errors import Conflict, Damaged, NewerFormat, NotFound, OsqueueError, Throttled
from ..objects import archive, inventory, listing, segments
from ..objects.backups import FOLDER as BACKUPS
from ..objects.backups import name_of
from ..objects.inventory import ReachableObjects
from ..objects.layout import REGISTER, root_of, unavailable
from ..stores.base import Delete, Failed, Found, Get, Missing, Put, PutIfMatch, StoreReply, Written
from . import orphan_ids, strays
from .batch_checks import miscounted
from .head_checks import full_parts, late_schedules
from .head_restore import hourly_backups
from .store_probes import OK, TROUBLE, WARNING, Finding

REAPED_MS_MAX = 2 * limits.HOUR_MS  # the longest time between two passes of a reaper that worries nobody
WAITING_MS_MAX = limits.HOUR_MS  # for which a job may wait before it is worth a word
ARCHIVE_HOURS = 3  # whose parts are looked at
PARTS_MAX = 20  # of them, without ``deep``
LISTED_MAX = 10_000  # objects of one folder that are listed, without ``deep``
SHOWN_MAX = 5  # broken objects that are named one by one
LOOKS_MAX = 3  # at a head that moves on while its objects are looked at
SWAPS_MAX = 20
RESTORE = "osqueue doctor ADDRESS {queue} --restore --shard {shard}"
CONTINUE_WITHOUT = (
    "osqueue doctor ADDRESS {queue} --shard {shard} --restore head --yes goes on without it"
    " and says what is lost."
)
REAP = "Run 'osqueue reap' by a schedule, every minute."


class FoundHead(Struct, frozen=True):
    """A shard's head as it was found."""

    shard: int
    state: State | None
    error: OsqueueError | None = None  # why there is no state; None: there is no head


class ShardCheck:
    """The checks of one shard."""

    def __init__(self, queue: str, shard: int, now_ms: int, deep: bool) -> None:
        self.queue = queue
        self.shard = shard
        self.root = root_of(queue, shard)
        self.now_ms = now_ms
        self.deep = deep
        self.findings: list[Finding] = []

    def run(self, look: FoundHead) -> Flow[list[Finding]]:
        """Examine the shard."""
        backups = yield from hourly_backups(self.queue, self.shard)
        if look.state is None:
            yield from self._no_head(look, backups)
            yield from self._backup(backups, None)
            return self.findings
        self._head(look.state)
        self._clock(look.state)
        state, met = yield from self._objects(look.state)
        if not met.broken:
            yield from self._batches(state)
        yield from self._names(state, met)
        yield from self._intents(state)
        yield from self._backup(backups, state)
        self._reaped(state)
        return self.findings

    # ── The head ─────────────────────────────────────────────────────────────
    def _no_head(self, look: FoundHead, backups: Sequence[str]) -> Flow[None]:
        remedy = RESTORE.format(queue=self.queue, shard=self.shard)
        if isinstance(look.error, NewerFormat):
            self.say(TROUBLE, "head", look.error.message, "Upgrade osqueue here.")
        elif isinstance(look.error, Damaged):
            self.say(TROUBLE, "head", look.error.message, remedy)
        elif look.error is not None:
            remedy = "" if isinstance(look.error, Conflict) else "See the checks of the store."
            self.say(TROUBLE, "head", look.error.message, remedy)
        elif backups or (yield from inventory.names(self.root, inventory.STAGED, 1)):
            self.say(
                TROUBLE,
                "head",
                "the head is missing, and the shard was in use",
                f"At once, before anybody enqueues: {remedy}",
            )
        else:
            self.say(OK, "head", "nothing was ever enqueued here")

    def _head(self, state: State) -> None:
        wrong = imbalances(state)
        if wrong:
            self.say(
                TROUBLE,
                "head",
                f"it can be read and contradicts itself: {'; '.join(wrong[:SHOWN_MAX])}",
                "Something but osqueue wrote it, or this is a defect: report it, with a copy of the head.",
            )
        else:
            self.say(OK, "head", f"{len(encode_head(state)):,} bytes, at commit {state.seq:,}, the sums hold")
        for told in (*full_parts(self.queue, state), *late_schedules(state, self.now_ms)):
            self.say(*told)

    def _clock(self, state: State) -> None:
        ahead = state.now_ms - self.now_ms
        if ahead > limits.CLOCK_AHEAD_MS_MAX:
            self.say(
                TROUBLE,
                "clock",
                f"the head is {ahead / 1000:,.0f} s ahead of the store: leases do not end, delayed jobs do not"
                " become due",
                f"osqueue doctor ADDRESS {self.queue} --fix-clock",
            )
        else:
            self.say(OK, "clock", "the head is not ahead of the store")

    # ── What it names ────────────────────────────────────────────────────────
    def _objects(self, state: State) -> Flow[tuple[State, ReachableObjects]]:
        """Follow the pointers. An object that is gone because the head has moved on is no trouble: look again."""
        met = yield from inventory.walk(self.root, state, self.deep)
        for _ in range(LOOKS_MAX):
            now = (yield from look_at(self.queue, self.shard)).state if met.broken else None
            if now is None or now.commit == state.commit:
                break
            state = now
            met = yield from inventory.walk(self.root, state, self.deep)
        for what in list(met.broken.values())[:SHOWN_MAX]:
            self.say(
                TROUBLE,
                "objects",
                what,
                "Restore the object from the versions of the bucket. If it has none: "
                + CONTINUE_WITHOUT.format(queue=self.queue, shard=self.shard),
            )
        more = len(met.broken) - SHOWN_MAX
        if more > 0:
            self.say(TROUBLE, "objects", f"{more:,} more that are missing or damaged")
        if not met.broken:
            how = "read to the end" if self.deep else "there and whole"
            self.say(OK, "objects", f"{len(met.names):,} named by the head, {how}")
        if self.deep:
            yield from self._contents(state)
        return state, met

    def _batches(self, state: State) -> Flow[None]:
        """What batches count; a head that has moved on may have let go of what they would be counted in."""
        with suppress(Damaged, NotFound):
            for told in (yield from miscounted(self.queue, self.shard, self.root, state, self.deep)):
                self.say(*told)

    def _contents(self, state: State) -> Flow[None]:
        """Payloads and results of the head itself that lie in bodies."""
        contents = list(contents_in_memory(state))
        read = yield from segments.read_bodies(self.root, contents)
        bad = [each for each in read if isinstance(each, Damaged | NotFound)]
        for error in bad[:SHOWN_MAX]:
            self.say(
                TROUBLE, "payloads", error.message, "Restore the object from the versions of the bucket."
            )
        if not bad:
            self.say(OK, "payloads", f"{len(contents):,} payloads and results of the head are sound")

    def _names(self, state: State, met: ReachableObjects) -> Flow[None]:
        """The listing against the pointers, where both are complete."""
        most = None if self.deep else LISTED_MAX
        there = yield from inventory.names(self.root, inventory.REFERENCED, most)
        indexed = any(span.level for span in spans_of(state)) or any(t.level for t in state.tables)
        if not self.deep and (indexed or len(there) >= LISTED_MAX):
            self.say(OK, "orphans", "not counted: too many objects. --deep counts them.")
            return
        known = set(there)
        gone = [name for name in met.names - known - met.broken.keys() if born_of(name) >= 0]
        now = (yield from look_at(self.queue, self.shard)).state
        if gone and now is not None and now.commit == state.commit:
            for name in sorted(gone)[:SHOWN_MAX]:
                self.say(
                    TROUBLE,
                    "objects",
                    f"{name} is not there",
                    "Restore it from the versions of the bucket. Jobs whose payload is lost can be cancelled.",
                )
        orphans = [name for name in there if name not in met.names]
        self.say(
            OK,
            "orphans",
            f"{_many(len(orphans), 'object')} that nobody refers to; a reap removes them after a day",
        )

    def _intents(self, state: State) -> Flow[None]:
        names = yield from inventory.announcements(self.root, None if self.deep else LISTED_MAX)
        strange = [name for name in names if parse_intent_key(name) is None]
        if self.deep:
            for name in names:
                parsed = parse_intent_key(name)
                if parsed is None:
                    continue
                reply = yield Get(intents_prefix(self.root) + name)
                if isinstance(reply, Found):
                    request = read_intent(parsed, reply.body)
                    if request is None or request_in_key(parsed, state.seals) not in (None, request):
                        strange.append(name)
        if strange:
            self.say(
                WARNING,
                "announcements",
                f"{len(strange):,} cannot be read, {strange[0]} for one: of a newer release, or not ours",
                "Upgrade osqueue, or remove what is not its own.",
            )
        else:
            self.say(
                OK,
                "announcements",
                f"{_many(len(names), 'request')} announced{', all of them readable' if self.deep else ''}",
            )

    # ── Upkeep ───────────────────────────────────────────────────────────────
    def _backup(self, backups: Sequence[str], state: State | None) -> Flow[None]:
        if not backups:
            young = (
                state is not None and self._age_ms(state.marks[0][0] if state.marks else 0) < REAPED_MS_MAX
            )
            level = OK if young or state is None else WARNING
            self.say(level, "backup", "there is none yet", "" if level == OK else REAP)
            return
        newest = backups[-1].rpartition("/")[2]
        reply = yield Get(backups[-1])
        try:
            if not isinstance(reply, Found):
                raise unavailable(reply, backups[-1])
            copied = decode_head(reply.body)
        except (Damaged, NewerFormat) as error:
            self.say(WARNING, "backup", f"{newest}: {error.message}", "Restore from an older one: --backups.")
            return
        if state is not None and (former := (yield from self._former(backups, copied, state))):
            newest, copied = former
            self.say(
                TROUBLE,
                "backup",
                f"{newest} is of commit {copied.seq}, the head of commit {state.seq}: the head was lost and made again",
                f"Stop the writers; osqueue doctor ADDRESS {self.queue} --shard {self.shard} --restore {newest} --yes"
                " brings the old jobs back. Those that came since are in the copy it keeps of this head.",
            )
            return
        age = self._age_ms(moment_of(newest))
        text = f"{len(backups)}, the newest of {newest.replace('T', ' ')} h"
        if state is not None and age > REAPED_MS_MAX:
            self.say(WARNING, "backup", f"{text}: {_ago(age)} old", REAP)
        else:
            self.say(OK, "backup", text)

    def _former(self, backups: Sequence[str], copied: State, state: State) -> Flow[tuple[str, State] | None]:
        """The newest copy of a head that was lost, and not restored, before this one was begun."""

        def is_former(copy: State) -> bool:
            return copy.epoch != state.epoch and state.seq < copy.seq + SEQ_MARGIN

        if copied.seq > state.seq or is_former(copied):
            return backups[-1].rpartition("/")[2], copied
        found: tuple[str, State] | None = None
        order = [backups[0], *reversed(backups[1:-1])]  # the oldest says whether there is one to look for
        for name in order:
            reply = yield Get(name)
            try:
                copy = decode_head(reply.body) if isinstance(reply, Found) else None
            except (Damaged, NewerFormat):
                copy = None
            if copy is not None and is_former(copy):
                found = name.rpartition("/")[2], copy
                if name != backups[0]:
                    return found
            elif found is None:
                return None
        return found

    def _reaped(self, state: State) -> None:
        """How long finished jobs have been waiting for the archive."""
        since = [self._written_ms(born_of(t.name), state) for t in state.tables if not t.archived]
        since += [row.finished_ms for row in state.finished]
        age = self._age_ms(min(since)) if since else 0
        if age > REAPED_MS_MAX:
            self.say(WARNING, "reaper", f"finished jobs have waited {_ago(age)} for the archive", REAP)
        else:
            self.say(OK, "reaper", "nothing waits long for the archive")

    def _written_ms(self, born: int, state: State) -> int:
        """About when an object was born: the head remembers its number once an hour, for a day."""
        later = [ms for ms, seq in state.marks if seq >= born]
        return min(later, default=state.now_ms)

    def _age_ms(self, ms: int) -> int:
        return max(0, self.now_ms - ms)

    def say(self, level: str, check: str, found: str, remedy: str = "") -> None:
        """Note what a check found."""
        self.findings.append(Finding(level, check, found, remedy, self.queue, self.shard))


# ── A whole queue ────────────────────────────────────────────────────────────
def look_at(queue: str, shard: int) -> Flow[FoundHead]:
    """A shard's head, whatever can be said of it."""
    return _look((yield Get(root_of(queue, shard) + HEAD)), shard)


def _look(reply: StoreReply, shard: int) -> FoundHead:
    if isinstance(reply, Missing):
        return FoundHead(shard, None)
    try:
        if not isinstance(reply, Found):
            raise unavailable(reply, "the queue's head")
        return FoundHead(shard, decode_head(reply.body))
    except OsqueueError as error:
        return FoundHead(shard, None, error)


def look_at_all(queue: str) -> Flow[list[FoundHead]]:
    """The heads of all shards. The first says how many there are; if it cannot be read, all there may be are tried."""
    first = yield from look_at(queue, 0)
    count = first.state.settings.shards if first.state is not None else limits.SHARDS_MAX
    replies = yield All(tuple(Get(root_of(queue, shard) + HEAD) for shard in range(1, count)))
    looks = [first, *(_look(reply, shard) for shard, reply in enumerate(replies, 1))]
    if first.state is None:
        known = [look.state.settings.shards for look in looks if look.state is not None]
        places = [name.split("/")[2] for name in (yield from inventory.keys(f"{BACKUPS}{queue}/"))]
        # Others may have put something there: some consoles make folders.
        known += [int(place) + 1 for place in places if place.isdecimal()]
        seen = [look.shard + 1 for look in looks if look.state is not None or look.error is not None]
        looks = looks[: max([1, *known, *seen])]
    return looks


def examine(queue: str, now_ms: int, deep: bool) -> Flow[list[Finding]]:
    """Every check of one queue; ``now_ms`` is the store's clock. Raises nothing: what stops a check is a finding."""
    findings: list[Finding] = []
    looks = yield from look_at_all(queue)
    for look in looks:
        shard = ShardCheck(queue, look.shard, now_ms, deep)
        try:
            yield from shard.run(look)
        except OsqueueError as error:
            shard.say(TROUBLE, "store", error.message, "See the checks of the store.")
        findings += shard.findings
    states = [look.state for look in looks if look.state is not None]
    if states:
        findings += yield from _registered(queue)
        findings += [*_settings(queue, states), *_work(queue, states, now_ms)]
    findings += yield from _ids(queue, now_ms, deep)
    findings += yield from _archive(queue, now_ms, deep)
    findings += yield from strays.examine(queue)
    return findings


def _ids(queue: str, now_ms: int, deep: bool) -> Flow[list[Finding]]:
    """What clients' ids stand for can be read, and is there."""
    try:
        return (yield from orphan_ids.examine(queue, now_ms, deep))
    except OsqueueError as error:
        return [Finding(TROUBLE, "ids", error.message, "See the checks of the store.", queue)]


def _registered(queue: str) -> Flow[list[Finding]]:
    """What works on all queues, such as a reap, finds them in the register."""
    if not isinstance((yield Get(REGISTER + queue)), Missing):
        return [Finding(OK, "register", "the queue is known by name", "", queue)]
    text = "the queue is not in the register: 'queue ls', 'reap' and 'doctor' of all queues pass it over"
    remedy = f"Write the object {REGISTER}{queue} again, from the versions of the bucket or with any content."
    return [Finding(WARNING, "register", text, remedy, queue)]


def _settings(queue: str, states: Sequence[State]) -> list[Finding]:
    """All shards have the settings of the first, but for their number, its own, pauses that end and single groups."""
    found = [{**asdict(lasting(each.settings)), "shards": 0, "shard": 0, "overrides": {}} for each in states]
    differing = sorted({name for each in found for name, value in each.items() if value != found[0][name]})
    if not differing:
        return [Finding(OK, "settings", f"the same on {_many(len(states), 'shard')}", "", queue)]
    what = ", ".join(name.removesuffix("_ms").replace("_", "-") for name in differing)
    remedy = (
        f"Set again what was meant: osqueue queue configure ADDRESS {queue} … (or queue pause, queue resume)"
    )
    return [Finding(WARNING, "settings", f"the shards differ in: {what}", remedy, queue)]


def _work(queue: str, states: Sequence[State], now_ms: int) -> list[Finding]:
    """Dead letters, and how long the oldest job has been waiting."""
    numbers = listing.statistics(queue, states, now_ms)
    dead, oldest = numbers["failed"], numbers["oldest_seconds"]
    findings = []
    if dead:
        remedy = (
            f"osqueue queue jobs ADDRESS {queue} --state failed shows them, dlq redrive queues them again."
        )
        findings.append(
            Finding(WARNING, "dead letters", f"{_many(dead, 'job')} out of attempts", remedy, queue)
        )
    else:
        findings.append(Finding(OK, "dead letters", "none", "", queue))
    if oldest is None:
        return [*findings, Finding(OK, "waiting", "nothing waits", "", queue)]
    age = int(oldest * 1000)
    text = f"{_many(numbers['queued'], 'job')}, the oldest for {_ago(age)}"
    if age <= WAITING_MS_MAX:
        return [*findings, Finding(OK, "waiting", text, "", queue)]
    remedy = (
        f"osqueue queue resume ADDRESS {queue}" if numbers["paused"] else "Are workers up, for every kind?"
    )
    paused = "; the queue is paused" if numbers["paused"] else ""
    return [*findings, Finding(WARNING, "waiting", text + paused, remedy, queue)]


def _archive(queue: str, now_ms: int, deep: bool) -> Flow[list[Finding]]:
    """The archive parts of the last hours can be read."""
    names: list[str] = []
    begin = now_ms - ARCHIVE_HOURS * limits.HOUR_MS
    try:
        while page := (yield from archive.parts(queue, begin, names[-1] if names else "")):
            names += page
        bad: list[str] = []
        for name in names if deep else names[-PARTS_MAX:]:
            try:
                yield from archive.read([name])
            except (Damaged, NewerFormat) as error:
                bad.append(error.message)
    except OsqueueError as error:
        return [Finding(TROUBLE, "archive", error.message, "See the checks of the store.", queue)]
    if bad:
        remedy = "Restore the part from the versions of the bucket; no queue needs it to work."
        return [Finding(TROUBLE, "archive", what, remedy, queue) for what in bad[:SHOWN_MAX]]
    text = f"{_many(len(names), 'part')} in the last {ARCHIVE_HOURS} hours, readable"
    return [Finding(OK, "archive", text, "", queue)]


# ── Repairing the clock ──────────────────────────────────────────────────────
def fix_clock(queue: str, shard: int, machine: Machine, clock: Callable[[], int]) -> Flow[int | None]:
    """Set a head that is far ahead back to the store's clock; answers by how many ms, None: it was not far ahead.

    Raises Damaged, NewerFormat, Unavailable, or Throttled when other writers won every swap.
    """
    for tried in range(1, SWAPS_MAX + 1):
        reply = yield Get(root_of(queue, shard) + HEAD)
        if isinstance(reply, Missing):
            return None
        if not isinstance(reply, Found):
            raise unavailable(reply, "the queue's head")
        state, now = decode_head(reply.body), clock()
        ahead = state.now_ms - now
        if ahead <= limits.CLOCK_AHEAD_MS_MAX:
            yield from _copies(queue, shard, reply.body, now)
            return None
        body = encode_head(reset_clock(state, now, machine.bits(128).to_bytes(16, "big")))
        swapped = yield PutIfMatch(root_of(queue, shard) + HEAD, body, reply.version)
        if isinstance(swapped, Written):
            yield from _copies(queue, shard, body, now)
            return ahead
        if isinstance(swapped, Failed) and swapped.error.permanent:
            raise swapped.error
        yield Sleep(machine.uniform() * 0.05 * tried)
    raise Throttled(
        f"other writers of {queue}/{shard} were faster every time. Repeat it, or pause the queue first."
    )


def _copies(queue: str, shard: int, head: bytes, now_ms: int) -> Flow[None]:
    """Put a copy of the head in the place of those whose hours have not come yet.

    By their names they are the newest, and in those hours no others would be made.
    """
    latest = name_of(queue, shard, now_ms + limits.CLOCK_AHEAD_MS_MAX)
    younger = [name for name in (yield from hourly_backups(queue, shard)) if name > latest]
    ahead = tuple(name for name in younger if moment_of(name.rpartition("/")[2]))
    if ahead:
        reply = yield Put(name_of(queue, shard, now_ms), head)
        if not isinstance(reply, Written):
            raise unavailable(reply, "room for a backup of the head")
        yield Delete(ahead)


# ── Words ────────────────────────────────────────────────────────────────────
def moment_of(name: str) -> int:
    """The hour of a backup by its name, in ms; 0 for what is none."""
    try:
        return int(datetime.strptime(name, "%Y-%m-%dT%H").replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return 0


def _ago(ms: int) -> str:
    for unit, size in (("days", limits.DAY_MS), ("hours", limits.HOUR_MS), ("minutes", limits.MINUTE_MS)):
        if ms >= 2 * size:
            return f"{ms // size:,} {unit}"
    return f"{ms // 1000:,} seconds"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
