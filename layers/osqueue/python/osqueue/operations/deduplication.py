"""Enqueue under a client's own id: one job per id, however many callers ask for it at the same time.

The entry of an item's id is created first. Then there are two cases. Either the entry names the key that we drew, or
the key of a caller who never enqueued it: we submit the item. Or the job that the entry names decides: a live job makes
the item a duplicate, a completed one is its answer, and any other that is over lets us take over the entry for a new
job. The item's rule may say less of what takes the id, and that it takes the place of a job that waits: then the commit
that accepts it cancels the old one, which names it as its successor, and the entry is changed after that. Whoever finds
the old job under the id follows it to the last one, and brings the entry up to date before anything else.

An item that restarts a job which runs takes over the entry, which names that job beside the new one: so whoever
enqueues under the new key has the same commit ask the old job to end. Until one did, the old job decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..commit.effects import Flow, QueueFlow, Submit, together
from ..core.job_ops import CancelJob, JobSpec, UniqueRule
from ..core.ops import Code
from ..core.queue_ops import LOOK_AGAIN
from ..core.state import COMPLETED, PROCESSING, QUEUED, SCHEDULED, FinishedJob, State
from ..errors import Conflict, Expired, NotFound, OsqueueError, Rejected, Throttled
from ..model.job import Enqueued
from ..model.keys import job_id, key_like, key_of, shard_of
from ..model.unique import DEBOUNCE, RESTART
from ..objects import finished_tables, id_index
from ..objects.layout import read_state, root_of
from ..objects.lookup import WAITING, JobLocation, find_heir, find_in_head, find_in_state
from ..objects.segments import find_many, lost_object
from .dedup_attempt import DedupAttempt, Takeover
from .results import ResultFlows

PlaceJobs = Callable[[list[JobSpec], int], QueueFlow[list[Enqueued | Code]]]
"""Commits jobs to a shard: what became of each, or DUPLICATE or RETRY where it has an id."""

ROUNDS_MAX = 20  # looks in a row that bring no item further, at jobs that move while they are enqueued again
NO_RULE = UniqueRule()
UNDER_WAY = (*WAITING, PROCESSING)


class Deduplication:
    """Enqueues the jobs of one call, some of them under ids.

    ``flows`` looks jobs up, ``place_jobs`` commits them to a shard, ``draw`` draws a new key. A subclass says what
    differs where callers draw the keys and repeat their calls.
    """

    def __init__(self, flows: ResultFlows, place_jobs: PlaceJobs, draw: Callable[[int], bytes]) -> None:
        self.flows = flows
        self.queue = flows.queue
        self.place_jobs = place_jobs
        self.draw = draw

    def repeated(self, new: JobSpec, location: JobLocation) -> bool:
        """Is this the job of an earlier try of the same call? Never where calls are not repeated."""
        return False

    def takeover_key(self, item: DedupAttempt, takeover: Takeover) -> Flow[tuple[bytes, int]]:
        """The key under which a job begins again, and the seq of a head in which it was nowhere.

        May answer the item instead.
        """
        yield from ()
        return takeover.unused()

    def earlier(
        self, item: DedupAttempt, where: int, state: State | None, current: JobLocation
    ) -> Flow[Enqueued | None]:
        """What an earlier try of the same call did, if it let its job take another's place, or be replaced since.

        ``current`` is the job that the id stands for. None where calls are not repeated.
        """
        yield from ()
        return None

    def successor_key(self, item: DedupAttempt, old: bytes) -> bytes:
        """The key under which a job takes the place of another one."""
        return key_like(old, self.draw(shard_of(old)))

    def completed(self, key: bytes, location: JobLocation) -> Flow[Enqueued | None]:
        """The answer where the id's job is completed: its result. None if that has expired meanwhile: look again."""
        try:
            result = yield from self.flows.result_of(key, location)
        except Expired:
            return None
        except OsqueueError as error:
            return Enqueued("completed", job_id(key), COMPLETED, error=error)
        return Enqueued("completed", job_id(key), COMPLETED, result)

    def failed(self, item: DedupAttempt, error: OsqueueError) -> None:
        """The commit of an item failed, perhaps after it was applied. May raise the error, for all of the call."""
        item.fail(error)

    def enqueue(self, news: Sequence[JobSpec], shard: int) -> QueueFlow[list[Enqueued]]:
        """Enqueue jobs, some of them under ids; in one commit, unless others use those ids as well.

        The answer of a job that was not enqueued is its error. Raises an error of the store that kept all of them out.
        """
        items = [DedupAttempt(new) for new in news]
        yield from self._register(items, shard)
        left, rounds = items, ROUNDS_MAX
        while left and rounds:
            yield from self._submit([item for item in left if item.ready])
            before, left = len(left), [item for item in left if item.answer is None]
            if left:
                yield from self._resolve(left, shard)
                left = [item for item in left if item.answer is None]
            rounds = ROUNDS_MAX if len(left) < before else rounds - 1
        failures = [item.failure for item in items if item.failure is not None]
        if failures and len(failures) == len(items):
            raise failures[0]
        crowded = Enqueued(
            "rejected",
            None,
            error=Throttled("the job of this id changes too fast just now. Repeat the call."),
        )
        return [item.answer or crowded for item in items]

    def _register(self, items: Sequence[DedupAttempt], shard: int) -> QueueFlow[None]:
        """Let each id stand for our key, or learn what it stands for. The first item under an id counts."""
        named: dict[str, DedupAttempt] = {}
        for item in items:
            if item.new.client_id is not None:
                named.setdefault(item.new.client_id, item)
        # Before the entries exist that let others act on our behalf.
        state = yield from self.flows.state_seen(shard)
        entries = yield from id_index.create(
            self.queue, [(each, item.new.key) for each, item in named.items()]
        )
        stands = dict(zip(named, entries, strict=True))
        # What a caller drew may have been used before, without an id or under another one.
        drawn = {item.new.key for item in named.values() if item.new.seen >= 0}
        drawn &= {each.key for each in entries if isinstance(each, id_index.IdEntry) and each.fresh}
        used = (yield from self._used(shard, state, drawn)) if drawn else drawn
        for item in items:
            if item.new.client_id is None:
                continue
            entry = stands[item.new.client_id]
            if isinstance(entry, OsqueueError):
                item.fail(entry)
            elif entry.fresh and entry.key not in used:
                item.first = True
                item.own(entry, state.seq)
            else:  # another's; or ours, from a call that is repeated, and its job may be anywhere by now
                item.entry, item.ready = entry, False

    def _used(self, shard: int, state: State, keys: set[bytes]) -> QueueFlow[set[bytes]]:
        """Which of these keys may name a job outside the head. The reducer finds those in the head."""
        root = root_of(self.queue, shard)
        spans = [span for lane in state.lanes for span in lane.backlog.spans]
        found: set[bytes] = set()
        try:
            for span in (*spans, *state.delayed.spans, *state.dead.spans):
                found.update((yield from find_many(root, span, keys)))
            found.update((yield from finished_tables.find_many(root, state.tables, keys)))
        except OsqueueError:  # merged away since that state, or out of reach: look at each
            return keys
        return found

    def _submit(self, items: Sequence[DedupAttempt]) -> QueueFlow[None]:
        shards: dict[int, list[DedupAttempt]] = {}
        sent: set[bytes] = set()
        for item in items:
            if item.new.key in sent:
                item.ready = (
                    False  # the same id twice in one call: the second looks what becomes of the first
                )
                continue
            sent.add(item.new.key)
            shards.setdefault(shard_of(item.new.key), []).append(item)
        for shard, group in shards.items():
            try:
                answers = yield from self.place_jobs([item.new for item in group], shard)
            except OsqueueError as error:
                for item in group:
                    self.failed(item, error)
                continue
            for item, answer in zip(group, answers, strict=True):
                if isinstance(answer, Enqueued):
                    item.answer = answer
                else:
                    item.ready = False  # another enqueued it, or may have: look

    def _resolve(self, items: Sequence[DedupAttempt], shard: int) -> QueueFlow[None]:
        """See what became of the jobs that the entries name, with one look at each shard's head."""
        shards: dict[int, list[DedupAttempt]] = {}
        for item in items:
            shards.setdefault(shard_of(_entry(item).key), []).append(item)
        for where, group in shards.items():
            try:
                state = yield from read_state(self.queue, where)
                if state is not None and (yield from self._roomless(where, state, group)):
                    continue
                now = 0 if state is None else (yield from self.flows.moment(where, state))
                takeover = Takeover(partial(self.draw, shard), (yield from self.flows.state_seen(shard)))
                # Many at once: a group of a thousand ids must not take a thousand round trips, one after the other.
                yield from together([self._settle_alone(item, where, state, now, takeover) for item in group])
                if any(item.closing for item in group):
                    yield Submit(where, (LOOK_AGAIN,))
                replacing = [item for item in group if item.old is not None]
                if replacing and state is not None:
                    yield from self._replace(replacing, where, state)
            except OsqueueError as error:
                for item in group:
                    if item.answer is None:
                        item.fail(error)
            for item in group:
                if item.closing:
                    item.closing, item.retired_key = False, _entry(item).key

    def _settle_alone(self, item: DedupAttempt, *what: Any) -> Flow[None]:
        """As ``_settle``; an error is the answer of this item alone."""
        try:
            yield from self._settle(item, *what)
        except OsqueueError as error:
            item.fail(error)

    def _settle(
        self, item: DedupAttempt, where: int, state: State | None, now: int, takeover: Takeover
    ) -> Flow[None]:
        """Decide on an item by the job that its entry names. Decides nothing when the head has moved on: look again."""
        entry = _entry(item)
        rule = item.original.unique or NO_RULE
        location = old = None
        if state is not None:
            try:
                location, old = yield from self._stands_for(entry, where, state)
            except NotFound as error:
                if item.missed == state.commit:
                    raise lost_object(error, self.queue) from error
                item.missed = state.commit
                return
        if location is None:
            if old is None or self._may_restart(item, old, now):
                yield from self._help(item, 0 if state is None else state.seq, takeover, old)
        elif location.row is not None and location.row.successor is not None:
            assert state is not None
            yield from self._follow(item, where, state, location.row)
        elif (
            rule.on_duplicate
            and (told := (yield from self.earlier(item, where, state, location))) is not None
        ):
            item.answer = told
        elif entry.key == item.original.key and not item.first and self.repeated(item.original, location):
            item.answer = Enqueued("queued", job_id(entry.key), location.state)
        elif location.job.client_id != item.original.client_id:  # a caller drew one key for two jobs
            yield from self._take_over(item, takeover)
        elif rule.on_duplicate and location.state in WAITING:
            item.old = location
        elif rule.on_duplicate == RESTART and location.state == PROCESSING:
            if self._may_restart(item, location, now):
                yield from self._take_over(item, takeover, location)
        elif not _is_taken(rule, location, now):
            yield from self._take_over(item, takeover)
        elif location.state == COMPLETED and not rule.while_ and not location.expired(now):
            item.answer = yield from self.completed(entry.key, location)
        else:
            item.answer = Enqueued("duplicate", job_id(entry.key), location.state)

    def _stands_for(
        self, entry: id_index.IdEntry, where: int, state: State
    ) -> Flow[tuple[JobLocation | None, JobLocation | None]]:
        """The job of an entry. Where it is nowhere, also the one that it restarts, while that is under way.

        By the head's own time and rules: every later commit finds the same.
        """
        root = root_of(self.queue, where)
        location = yield from find_in_state(root, state, entry.key)
        if location is not None or not entry.restarts:
            return None if location is None else location.at(state), None
        old = yield from find_heir(root, state, entry.restarts)
        old = None if old is None else old.at(state)
        return None, old if old is not None and old.state in UNDER_WAY else None

    def _may_restart(self, item: DedupAttempt, old: JobLocation, now: int) -> bool:
        """May the item come although a job is under way under its id? If not, it is answered."""
        rule = item.original.unique or NO_RULE
        if rule.on_duplicate == RESTART or (rule.on_duplicate and old.state in WAITING):
            if old.job.group == item.original.group:
                return True
            item.answer = Enqueued("rejected", None, error=_another_group(old.job.group))
        elif not _is_taken(rule, old, now):
            return True
        else:
            item.answer = Enqueued("duplicate", job_id(old.job.key), old.state)
        return False

    def _roomless(self, where: int, state: State, items: Sequence[DedupAttempt]) -> QueueFlow[bool]:
        """Jobs that make room for others may lie in segments: is there no room to cancel one there, and so no use?"""
        if not any(_entry(item).restarts for item in items):
            return False
        from .replacing import tombstones_settled

        return (yield from tombstones_settled(self.flows, where, state))

    def _help(self, item: DedupAttempt, seen: int, takeover: Takeover, old: JobLocation | None) -> Flow[None]:
        """The job is nowhere: it was never enqueued, unless it has just been forgotten. ``old`` makes room for it.

        An entry is freed before its job is forgotten, so an entry that is still there means: never enqueued. Nobody
        enqueues under an entry that is about to be removed. It is taken over once all writers had to look again.
        """
        known = _entry(item)
        if old is not None and old.job.group != item.original.group:
            old = None  # it comes beside that one, as its rule lets it
        (entry,) = yield from id_index.read(self.queue, [item.new.client_id or ""])
        if entry is None:
            key, seen = yield from self.takeover_key(item, takeover)
            if item.answer is None:
                yield from self._begin(item, key, seen)
        elif entry.key != known.key:
            item.entry = entry
        elif entry.place:  # it took another's place, and is forgotten
            item.entry = entry
            yield from self._take_over(item, takeover)
        elif not entry.closing:
            item.own(entry, seen, old)
        elif item.retired_key == entry.key:
            item.entry = entry
            yield from self._take_over(item, takeover, old)
        else:
            item.entry, item.closing = entry, True

    def _follow(self, item: DedupAttempt, where: int, state: State, row: FinishedJob) -> Flow[None]:
        """The job was replaced, and the entry does not tell: let it, before anything else is done."""
        name, key, place = item.new.client_id or "", row.key, row.job.replaced
        while row.successor is not None:
            key, place = row.successor, place + 1
            try:
                found = yield from find_in_state(root_of(self.queue, where), state, key)
            except NotFound:  # the head has moved on: look again
                return
            if found is None or found.row is None:
                break
            row = found.row
        entry = yield from id_index.follow(self.queue, name, _entry(item), key, place)
        if entry is None:
            (entry,) = yield from id_index.read(self.queue, [name])
        if entry is not None:
            item.entry = entry
        else:  # freed meanwhile
            yield from self._begin(item, item.new.key, 0)

    def _replace(self, items: Sequence[DedupAttempt], shard: int, state: State) -> QueueFlow[None]:
        """Let items take the places of jobs that wait; of several under one id, one after the other."""
        from .replacing import replace_jobs

        pairs: list[tuple[CancelJob, JobSpec]] = []
        last: dict[str, bytes] = {}  # the key under each id, once all those before are applied
        for item in items:
            name, old = item.original.client_id or "", item.old
            assert old is not None
            item.old = None
            key = self.successor_key(item, old.job.key)
            evident = CancelJob(last[name]) if name in last else old.evidence
            last[name] = key
            new = replace(item.original, key=key, seen=state.seq)
            pairs.append((evident, new))
        codes = yield from replace_jobs(self.flows, shard, state, pairs)
        holds: dict[str, DedupAttempt] = {}
        for item, (_, new), code in zip(items, pairs, codes, strict=True):
            error = refusal(code)
            if code in (Code.QUEUED, Code.SCHEDULED):
                status = "postponed" if new.unique and new.unique.on_duplicate == DEBOUNCE else "replaced"
                where = SCHEDULED if code == Code.SCHEDULED else QUEUED
                item.answer = Enqueued(status, job_id(new.key), where)
                holds[new.client_id or ""] = item
            elif error is not None:
                item.answer = Enqueued("rejected", None, error=error)
        after = yield from self.flows.state_seen(shard)
        yield from together([self._told(item, name, after) for name, item in holds.items()])
        for item in items:
            held = holds.get(item.original.client_id or "")
            if (
                held is not None
                and held.answer is not None
                and item.answer is not None
                and not item.answer.error
            ):
                item.answer = replace(item.answer, job_id=held.answer.job_id)

    def _told(self, item: DedupAttempt, name: str, state: State) -> Flow[None]:
        """Let the entry name the job that took the place, if that holds it still: others may have come behind it.

        Where nothing comes of it, the next caller does so: the old job names its successor.
        """
        assert item.answer is not None
        key = key_of(item.answer.job_id or "")
        found = find_in_head(state, key)
        if found is not None and found.row is None:
            with suppress(OsqueueError):
                told = yield from id_index.follow(self.queue, name, _entry(item), key, found.job.replaced)
                item.entry = told or item.entry

    def _take_over(
        self, item: DedupAttempt, takeover: Takeover, old: JobLocation | None = None
    ) -> Flow[None]:
        """The id's job is over, or is to make room (``old``): let the id stand for a new one."""
        key, seen = yield from self.takeover_key(item, takeover)
        if item.answer is not None:
            return
        restarts = b"" if old is None else old.job.key
        entry = yield from id_index.replace(self.queue, item.new.client_id or "", _entry(item), key, restarts)
        if entry is not None:
            item.first = entry.fresh
            item.own(entry, seen, old)
        else:  # somebody else was faster, or the id was freed meanwhile
            yield from self._begin(item, key, seen, old)

    def _begin(self, item: DedupAttempt, key: bytes, seen: int, old: JobLocation | None = None) -> Flow[None]:
        """Let the id stand for a new key if it stands for none, or learn what it stands for."""
        (entry,) = yield from id_index.create(self.queue, [(item.new.client_id or "", key)])
        if isinstance(entry, OsqueueError):
            raise entry
        if entry.key == key:
            item.first = entry.fresh
            item.own(entry, seen, old if entry.restarts else None)
        else:
            item.entry = entry


def _is_taken(rule: UniqueRule, location: JobLocation, now: int) -> bool:
    """Does the job that was enqueued under an id keep this one out?"""
    job = location.job
    if location.state in WAITING or now < job.enqueued_ms + job.window_ms:
        return True
    if location.state == PROCESSING:
        return rule.while_ != "waiting"
    return location.state == COMPLETED and not rule.while_ and not location.expired(now)


def _another_group(group: str) -> Rejected:
    of = f"of group {group!r}" if group else "of no group"
    return Rejected(
        f'group: the job of this id that runs is {of}. With on_duplicate="restart" the new one has to be of the same,'
        " to wait behind it.",
        field="group",
    )


def refusal(code: Code) -> OsqueueError | None:
    """The error of a job that there was no room for; None of any other."""
    if code == Code.DELAYED_LIMIT:
        return Throttled(
            "delay: too many delayed jobs are waiting in this shard. Add shards, or repeat later."
        )
    if code == Code.BATCH_OVER:
        return Conflict(
            "batch: it is over, or there is none of this id in the job's shard: nothing can join it. Open another one"
            " with q.batch()."
        )
    return None


def _entry(item: DedupAttempt) -> id_index.IdEntry:
    assert item.entry is not None
    return item.entry
