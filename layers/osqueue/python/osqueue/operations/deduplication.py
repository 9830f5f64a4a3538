"""Enqueue under a client's own id: one job per id, whoever else asks for it at the same time.

Each item is a *wish*. Its id's entry is created first; then either the wish is ours to submit (the entry names the
key we drew, or that of a caller who never came to enqueue it), or the job that the entry names decides: a live one
makes the wish a duplicate, a completed one answers it, one that is over lets us take the entry over and begin anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..commit.effects import Flow, QueueFlow, Submit, together
from ..core.ops import LOOK_AGAIN, Code, JobSpec
from ..core.state import COMPLETED, State
from ..errors import Damaged, Expired, NewerFormat, NotFound, OsqueueError, Throttled
from ..model.job import Enqueued
from ..model.keys import job_id, shard_of
from ..objects import finished_tables, id_index
from ..objects.layout import read_state, root_of
from ..objects.lookup import JobLocation, find_in_state
from ..objects.segments import find_many, lost_object
from .results import OVER, ResultFlows

PlaceJobs = Callable[[list[JobSpec], int], QueueFlow[list[Enqueued | Code]]]
"""Commits jobs to a shard: what became of each, or DUPLICATE or RETRY where it has an id."""

ROUNDS_MAX = 20  # looks at a job that moves while it is enqueued again


class DedupAttempt:
    """One item on its way into the queue."""

    __slots__ = (
        "answer",
        "asked",
        "closing",
        "entry",
        "failure",
        "first",
        "missed",
        "new",
        "ready",
        "retired_key",
    )

    def __init__(self, new: JobSpec) -> None:
        self.new = new  # as it will be submitted
        self.asked = new  # as its caller wished it
        self.first = False  # this very call wrote the entry, so it does not repeat another
        self.entry: id_index.IdEntry | None = None  # what its id stands for
        self.ready = new.client_id is None  # may be submitted as it is
        self.answer: Enqueued | None = None
        self.failure: OsqueueError | None = None  # of the store, not of this item
        self.closing = False  # its id's entry is about to be removed
        self.retired_key: bytes | None = None  # the key of such an entry: nobody can enqueue it any more
        self.missed: bytes | None = None  # a state that names an object which was not there

    def fail(self, error: OsqueueError) -> None:
        """It ends here."""
        self.answer = Enqueued("rejected", None, error=error)
        if not isinstance(error, Damaged | NewerFormat):
            self.failure = error

    def own(self, entry: id_index.IdEntry, seen: int) -> None:
        """The entry names a key that nobody has enqueued, as far as the head of ``seen`` tells."""
        self.entry = entry
        self.new = replace(self.new, key=entry.key, seen=seen)
        self.ready = True


class Takeover:
    """What it takes to begin anew under ids whose jobs are over."""

    def __init__(self, draw: Callable[[], bytes], state: State) -> None:
        self.key = draw  # a key that nobody has used
        self.state = state  # of its shard, from before any of those keys stands in an entry

    def unused(self) -> tuple[bytes, int]:
        """A new key, and the seq of a head in which it was nowhere."""
        return self.key(), self.state.seq


class Deduplication:
    """Enqueues the jobs of one call, some of them under ids.

    ``flows`` looks jobs up, ``place_jobs`` commits them to a shard, ``draw`` draws a new key. An heir says what differs
    where callers draw the keys and repeat their calls.
    """

    def __init__(self, flows: ResultFlows, place_jobs: PlaceJobs, draw: Callable[[int], bytes]) -> None:
        self.flows = flows
        self.queue = flows.queue
        self.place_jobs = place_jobs
        self.draw = draw

    def repeated(self, new: JobSpec, sighting: JobLocation) -> bool:
        """Is this the job of the very same call, which its caller repeats? Not where no caller can."""
        return False

    def takeover_key(self, wish: DedupAttempt, anew: Takeover) -> Flow[tuple[bytes, int]]:
        """The key under which a job begins again, and the seq of a head in which it was nowhere.

        May answer the wish instead.
        """
        yield from ()
        return anew.unused()

    def completed(self, key: bytes, sighting: JobLocation) -> Flow[Enqueued | None]:
        """The answer where the id's job is completed: its result. None if that has expired meanwhile: look again."""
        try:
            result = yield from self.flows.result_of(key, sighting)
        except Expired:
            return None
        except OsqueueError as error:
            return Enqueued("completed", job_id(key), COMPLETED, error=error)
        return Enqueued("completed", job_id(key), COMPLETED, result)

    def failed(self, wish: DedupAttempt, error: OsqueueError) -> None:
        """The commit of a wish failed, perhaps after it was applied. May raise the error, for all of the call."""
        wish.fail(error)

    def enqueue(self, news: Sequence[JobSpec], shard: int) -> QueueFlow[list[Enqueued]]:
        """Enqueue jobs, some of them under ids; in one commit, unless others use those ids as well.

        What keeps one of them out is its answer. Raises what the store keeps all of them out with.
        """
        wishes = [DedupAttempt(new) for new in news]
        yield from self._register(wishes, shard)
        for _ in range(ROUNDS_MAX):
            yield from self._submit([wish for wish in wishes if wish.answer is None and wish.ready])
            left = [wish for wish in wishes if wish.answer is None]
            if not left:
                break
            yield from self._resolve(left, shard)
        failures = [wish.failure for wish in wishes if wish.failure is not None]
        if failures and len(failures) == len(wishes):
            raise failures[0]
        crowded = Enqueued(
            "rejected",
            None,
            error=Throttled("the job of this id changes too fast just now. Repeat the call."),
        )
        return [wish.answer or crowded for wish in wishes]

    def _register(self, wishes: Sequence[DedupAttempt], shard: int) -> QueueFlow[None]:
        """Let each id stand for our key, or learn what it stands for. Of several wishes for one id the first counts."""
        named: dict[str, DedupAttempt] = {}
        for wish in wishes:
            if wish.new.client_id is not None:
                named.setdefault(wish.new.client_id, wish)
        # Before the entries exist that let others act on our behalf.
        state = yield from self.flows.state_seen(shard)
        entries = yield from id_index.create(
            self.queue, [(each, wish.new.key) for each, wish in named.items()]
        )
        stands = dict(zip(named, entries, strict=True))
        # What a caller drew may have been used before, without an id or under another one.
        drawn = {wish.new.key for wish in named.values() if wish.new.seen >= 0}
        drawn &= {each.key for each in entries if isinstance(each, id_index.IdEntry) and each.fresh}
        used = (yield from self._used(shard, state, drawn)) if drawn else drawn
        for wish in wishes:
            if wish.new.client_id is None:
                continue
            entry = stands[wish.new.client_id]
            if isinstance(entry, OsqueueError):
                wish.fail(entry)
            elif entry.fresh and entry.key not in used:
                wish.first = True
                wish.own(entry, state.seq)
            else:  # another's; or ours, from a call that is repeated, and its job may be anywhere by now
                wish.entry, wish.ready = entry, False

    def _used(self, shard: int, state: State, keys: set[bytes]) -> QueueFlow[set[bytes]]:
        """Which of these keys may stand for a job beside the head; of those in the head the reducer tells."""
        root = root_of(self.queue, shard)
        spans = [span for lane in state.lanes for span in lane.backlog.spans]
        found: set[bytes] = set()
        try:
            for span in (*spans, *state.delayed.spans, *state.dead.spans):
                found.update((yield from find_many(root, span, keys)))
            found.update((yield from finished_tables.find_many(root, state.tables, keys)))
        except OsqueueError:  # merged away since that state, or out of reach: a look at each tells
            return keys
        return found

    def _submit(self, wishes: Sequence[DedupAttempt]) -> QueueFlow[None]:
        shards: dict[int, list[DedupAttempt]] = {}
        sent: set[bytes] = set()
        for wish in wishes:
            if wish.new.key in sent:
                wish.ready = (
                    False  # the same id twice in one call: the second looks what becomes of the first
                )
                continue
            sent.add(wish.new.key)
            shards.setdefault(shard_of(wish.new.key), []).append(wish)
        for shard, group in shards.items():
            try:
                answers = yield from self.place_jobs([wish.new for wish in group], shard)
            except OsqueueError as error:
                for wish in group:
                    self.failed(wish, error)
                continue
            for wish, answer in zip(group, answers, strict=True):
                if isinstance(answer, Enqueued):
                    wish.answer = answer
                else:
                    wish.ready = False  # another enqueued it, or may have: look

    def _resolve(self, wishes: Sequence[DedupAttempt], shard: int) -> QueueFlow[None]:
        """See what became of the jobs that the entries name, with one look at each shard's head."""
        shards: dict[int, list[DedupAttempt]] = {}
        for wish in wishes:
            shards.setdefault(shard_of(_entry(wish).key), []).append(wish)
        for where, group in shards.items():
            try:
                state = yield from read_state(self.queue, where)
                now = 0 if state is None else (yield from self.flows.moment(where, state))
                anew = Takeover(partial(self.draw, shard), (yield from self.flows.state_seen(shard)))
                # Many at once: a group of a thousand ids must not take a thousand round trips, one after the other.
                yield from together([self._settle_alone(wish, where, state, now, anew) for wish in group])
                if any(wish.closing for wish in group):
                    yield Submit(where, (LOOK_AGAIN,))
            except OsqueueError as error:
                for wish in group:
                    if wish.answer is None:
                        wish.fail(error)
            for wish in group:
                if wish.closing:
                    wish.closing, wish.retired_key = False, _entry(wish).key

    def _settle_alone(self, wish: DedupAttempt, *what: Any) -> Flow[None]:
        """The trouble of one harms no other."""
        try:
            yield from self._settle(wish, *what)
        except OsqueueError as error:
            wish.fail(error)

    def _settle(
        self, wish: DedupAttempt, where: int, state: State | None, now: int, anew: Takeover
    ) -> Flow[None]:
        """What the job that an entry names means for a wish. Nothing, when the head has moved on: look again."""
        entry = _entry(wish)
        sighting = None
        if state is not None:
            try:
                sighting = yield from find_in_state(root_of(self.queue, where), state, entry.key)
            except NotFound as error:
                if wish.missed == state.commit:
                    raise lost_object(error, self.queue) from error
                wish.missed = state.commit
                return
        if sighting is None:
            yield from self._help(wish, 0 if state is None else state.seq, anew)
        elif entry.key == wish.asked.key and not wish.first and self.repeated(wish.asked, sighting):
            wish.answer = Enqueued("queued", job_id(entry.key), sighting.state)
        elif sighting.job.client_id != wish.asked.client_id:  # a caller drew one key for two jobs
            yield from self._take_over(wish, anew)
        elif sighting.state not in OVER:
            wish.answer = Enqueued("duplicate", job_id(entry.key), sighting.state)
        elif sighting.state == COMPLETED and not sighting.expired(now):
            wish.answer = yield from self.completed(entry.key, sighting)
        else:
            yield from self._take_over(wish, anew)

    def _help(self, wish: DedupAttempt, seen: int, anew: Takeover) -> Flow[None]:
        """The job is nowhere: it was never enqueued, unless it has just been forgotten.

        An entry is freed before its job is forgotten, so one that is still there tells the two apart. On the word of
        one that is about to be removed nobody enqueues: once all have had to look again, it is taken over.
        """
        known = _entry(wish)
        (entry,) = yield from id_index.read(self.queue, [wish.new.client_id or ""])
        if entry is None:
            key, seen = yield from self.takeover_key(wish, anew)
            if wish.answer is None:
                yield from self._begin(wish, key, seen)
        elif entry.key != known.key:
            wish.entry = entry
        elif not entry.closing:
            wish.own(entry, seen)
        elif wish.retired_key == entry.key:
            wish.entry = entry
            yield from self._take_over(wish, anew)
        else:
            wish.entry, wish.closing = entry, True

    def _take_over(self, wish: DedupAttempt, anew: Takeover) -> Flow[None]:
        """The id's job is over: let the id stand for a new one."""
        key, seen = yield from self.takeover_key(wish, anew)
        if wish.answer is not None:
            return
        entry = yield from id_index.replace(self.queue, wish.new.client_id or "", _entry(wish), key)
        if entry is not None:
            wish.first = entry.fresh
            wish.own(entry, seen)
        else:  # somebody else was faster, or the id was freed meanwhile
            yield from self._begin(wish, key, seen)

    def _begin(self, wish: DedupAttempt, key: bytes, seen: int) -> Flow[None]:
        """Let the id stand for a new key if it stands for none, or learn what it stands for."""
        (entry,) = yield from id_index.create(self.queue, [(wish.new.client_id or "", key)])
        if isinstance(entry, OsqueueError):
            raise entry
        if entry.key == key:
            wish.first = entry.fresh
            wish.own(entry, seen)
        else:
            wish.entry = entry


def _entry(wish: DedupAttempt) -> id_index.IdEntry:
    assert wish.entry is not None
    return wish.entry
