"""The library's flows as the API runs them.

They differ in what travels: contents pass through unread, clients draw the keys of their jobs, and no more is leased
than one answer holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from ..commit.effects import Flow, QueueFlow, Sleep, Submit, submit_together, together
from ..contract.content import content_of
from ..contract.error_codes import JobIdTaken, TooLarge
from ..contract.functions import PAYLOAD_BYTES_MAX
from ..contract.route import QUEUES
from ..contract.schemas import EncodedContent, NewJob
from ..core.job_ops import ClaimJobs, JobSpec, LeaseRef, ReleaseJobs
from ..core.ops import Code
from ..core.rows import BodyRef
from ..core.state import COMPLETED, PROCESSING, FinishedJob, LeaseRecord, State
from ..errors import NotFound, OsqueueError, Rejected, Unavailable
from ..model.job import Enqueued
from ..model.job_options import columns_asked
from ..model.keys import is_key, job_id, key_like, key_of, shard_of
from ..model.unique import DEBOUNCE
from ..objects import finished_tables, segments
from ..objects.layout import read_state, root_of
from ..objects.lookup import JobLocation, find_in_state, find_many_in_state, seek, seek_many
from ..objects.segments import read_bodies
from ..operations.claims import (
    ClaimResult,
    FoundLeases,
    GrantedLease,
    TurnAnswers,
    turn_answers,
    with_contents,
)
from ..operations.dedup_attempt import DedupAttempt, Takeover
from ..operations.deduplication import Deduplication
from ..operations.endings import AttemptEnd
from ..operations.enqueue import placed
from ..operations.flows import EmbeddedFlows
from ..operations.placing import has_groups, placed_in
from .answer_room import AnswerRoom, lease_too_large, lease_weight, result_too_large, result_weight

LOOKS_MAX = 20  # at a queue that moves while we find out whether a call is a repeat
SHARDS_AGE_S = 60.0  # after which a process looks how many shards there are before it spreads calls over them
LEASED_BYTES = (
    2_000  # what a leased job takes in an answer beside its payload: an id of 256 characters and all
)
RESULT_BYTES = 500  # what an answer takes beside its one result
GIVE_BACK_S = 1.0  # how long one tries to give back what was leased and cannot be answered
KEYED = 0  # ``seen`` of a job whose key its client drew, until the queue has been looked through for it
ANSWER_FULL = ClaimResult((), "answer_full")  # by the jobs of other claims: they were given back


class DetachedSubmit(Submit, frozen=True):
    """A commit that nobody waits for. It is made even when the time of its request is over."""


class EnqueueItem(Struct, frozen=True):
    """A job to enqueue, or what is wrong with it."""

    job: NewJob | None
    codec: str = ""  # of the request
    error: OsqueueError | None = None


class UnreadResult(Struct, frozen=True):
    """The result of a job that was there before, not read yet."""

    key: bytes
    location: JobLocation
    size: int  # bytes that it takes in an answer


class ServerFlows(EmbeddedFlows):
    """The flows of one queue."""

    answer_bytes = 0  # of one answer, at most

    # ── Enqueue ──────────────────────────────────────────────────────────────
    def accept(self, items: Sequence[EnqueueItem]) -> QueueFlow[list[Enqueued]]:
        """Queue jobs under the keys that their client drew: a repeated call gets the same jobs.

        While the number of shards grows, a repeated job without an id of its client's may come to another shard. A
        result that is kept under an id comes as ``UnreadResult``, with the error that holds unless an answer has
        room for it.
        """
        head = self.writers[0].head
        if head is not None and self.machine.ms_since(head.seen) > SHARDS_AGE_S * 1000:
            yield Submit(0, ())
        count = yield from self.shards()
        keys = [_drawn(each.job) for each in items]
        first = next((key for key in keys if isinstance(key, bytes)), None)
        # A key's last byte is a turn of its client's: it fills the shards evenly, and a repeat finds the same one.
        shard = self.next_of(count) if first is None else first[15] % count
        spare = iter(self.keys.draw(shard, len(items)))
        results: list[Enqueued | None] = []
        drawn: list[JobSpec] = []
        seen: set[bytes] = set()
        for each, key in zip(items, keys, strict=True):
            try:
                if isinstance(key, OsqueueError):
                    raise each.error or key
                if key is not None and key[:15] in seen:
                    raise Rejected(
                        "job_id: another job of this request has it, too. Its last byte does not count.",
                        field="job_id",
                    )
                seen.update(() if key is None else (key[:15],))
                new = _new(each, (next(spare) if key is None else key)[:15] + bytes((shard,)))
                drawn.append(new if key is None else replace(new, seen=KEYED))
                results.append(None)
            except OsqueueError as error:
                results.append(Enqueued("rejected", None, error=error))
        spread = (yield from self.group_shards()) if has_groups(drawn) else 0
        news: list[JobSpec] = []
        for at, new in zip([at for at, each in enumerate(results) if each is None], drawn, strict=True):
            try:
                news.append(placed_in(new, spread, shard))
            except Rejected as error:
                results[at] = Enqueued("rejected", None, error=error)
        done = iter((yield from self._accepted_by_home(news)))
        return [refused or next(done) for refused in results]

    def _accepted_by_home(self, news: list[JobSpec]) -> QueueFlow[list[Enqueued]]:
        """Commit each job to the shard that its key names; in the order of the jobs."""
        homes: dict[int, list[JobSpec]] = {}
        for new in news:
            homes.setdefault(shard_of(new.key), []).append(new)
        found: dict[int, Iterator[Enqueued]] = {}
        for home, mine in homes.items():
            try:
                found[home] = iter((yield from self._accepted(mine, home)))
            except OsqueueError as error:
                if not found:
                    raise
                found[home] = repeat(Enqueued("rejected", None, error=error))  # others are in the queue
        return [next(found[shard_of(new.key)]) for new in news]

    def _accepted(self, news: list[JobSpec], shard: int) -> QueueFlow[list[Enqueued]]:
        if any(new.client_id is not None for new in news):
            return (yield from KeyedDeduplication(self).enqueue(news, shard))
        answers = yield from self.place_keyed(news, shard)
        return [each for each in answers if isinstance(each, Enqueued)]  # all: a code is of a job with an id

    def place_keyed(self, news: list[JobSpec], shard: int) -> QueueFlow[list[Enqueued | Code]]:
        """Commit jobs to a shard. A job whose key is there already is compared: it may be another job."""
        answers = placed(news, (yield from self._commit_once(news, shard)))
        there = [
            at
            for at, answer in enumerate(answers)
            if _keyed(news[at]) and isinstance(answer, Enqueued) and answer.state == PROCESSING
        ]
        if there:
            _, locations = yield from seek_many(self.queue, shard, [news[at].key for at in there])
            for at in there:
                answers[at] = answer_again(news[at], locations.get(news[at].key))
        return answers

    def _commit_once(self, news: list[JobSpec], shard: int) -> QueueFlow[list[Code]]:
        """Commit jobs; a key that its client drew is accepted once, wherever its job is by now.

        The reducer sees what is in the head, and what has left it since ``seen``. What lay outside it then is
        looked for here: by the ranges of keys alone where the key is newer than all there is, as new ones are.
        """
        left = list(range(len(news)))
        codes = [Code.RETRY] * len(news)
        root = self.writers[shard].root
        state = yield from self.state_seen(shard)
        for _ in range(LOOKS_MAX):
            try:
                there = yield from _outside(root, state, {news[at].key for at in left if _keyed(news[at])})
            except NotFound:  # merged away since that state
                there = None
            if there is not None:
                for at in left:
                    if news[at].key in there:
                        codes[at] = Code.DUPLICATE
                left = [at for at in left if news[at].key not in there]
                sent = [
                    replace(new, seen=state.seq) if _keyed(new) else new
                    for new in map(news.__getitem__, left)
                ]
                answers = (yield from self.commit_jobs(sent, shard)) if sent else []
                for at, code in zip(left, answers, strict=True):
                    codes[at] = code
                left = [at for at in left if codes[at] == Code.RETRY and _keyed(news[at])]
                if not left:
                    return codes
            state = (yield from read_state(self.queue, shard)) or state
        raise Unavailable(
            "the queue moves too fast to tell a repeated call from a new one just now. Repeat it."
        )

    # ── Results ──────────────────────────────────────────────────────────────
    def result_of(self, key: bytes, location: JobLocation) -> Flow[EncodedContent | None]:
        """As the library reads it. Raises TooLarge for one that no answer holds, and does not read it."""
        if location.row is not None and self.holds_none(location.row):
            raise result_too_large(location.row)
        content: EncodedContent | None = yield from super().result_of(key, location)
        return content

    def holds_none(self, row: FinishedJob) -> bool:
        """Is a result too large for any answer?"""
        return RESULT_BYTES + result_weight(row) > self.answer_bytes

    def results(self, kept: Sequence[UnreadResult]) -> QueueFlow[list[EncodedContent | OsqueueError | None]]:
        """Read results; those that cannot be read are their error."""
        try:
            return (yield from together([self._result(each) for each in kept]))
        except OsqueueError as error:  # the time is over
            return [error] * len(kept)

    def _result(self, kept: UnreadResult) -> Flow[EncodedContent | OsqueueError | None]:
        try:
            return (yield from self.result_of(kept.key, kept.location))
        except OsqueueError as error:
            return error

    # ── Claim ────────────────────────────────────────────────────────────────
    def turn(
        self, endings: Sequence[AttemptEnd], claims: Sequence[ClaimJobs], beside: int = 0
    ) -> QueueFlow[TurnAnswers]:
        """As the library makes it. Its claims share one answer, of which so many bytes are for other things."""
        start = self.machine.uniform()
        flows = [self.end(endings), *[self.find_work(op, start) for op in claims]]
        done, found = turn_answers(len(endings), (yield from submit_together(flows)))
        room = AnswerRoom(self.answer_bytes - beside)
        for at, each in enumerate(found):
            if isinstance(each, FoundLeases):
                try:
                    given = yield from self.granted(each, room)
                    found[at] = ClaimResult(given) if given else ANSWER_FULL
                except OsqueueError as error:
                    found[at] = error
        return done, found

    def granted(
        self, found: FoundLeases, room: AnswerRoom | None = None
    ) -> QueueFlow[tuple[GrantedLease, ...]]:
        """As many as one answer holds, with their payloads; the others are given back.

        One that no answer can hold is given without its payload: its worker has to end it.
        """
        shard, leases, asked = found.shard, found.leases, found.asked
        room = AnswerRoom(self.answer_bytes) if room is None else room
        given: list[LeaseRecord] = []
        for lease in leases:
            if not room.take(LEASED_BYTES + (0 if self._too_large(lease) else lease_weight(lease))):
                break
            given.append(lease)
        yield from self._give_back(shard, leases[len(given) :])
        fitting = [lease for lease in given if not self._too_large(lease)]
        try:
            contents = [content for each in fitting for content in each.job.contents]
            read = iter((yield from read_bodies(root_of(self.queue, shard), contents)))
            yield Sleep(0)  # is there time left to answer? Without an answer nobody holds these leases
        except OsqueueError:
            yield from self._give_back(shard, given)
            raise
        return tuple(
            [
                GrantedLease(lease, lease_too_large(lease), asked)
                if self._too_large(lease)
                else with_contents((lease,), read, asked)[0]
                for lease in given
            ]
        )

    def _too_large(self, lease: LeaseRecord) -> bool:
        return LEASED_BYTES + lease_weight(lease) > self.answer_bytes

    def _give_back(self, shard: int, leases: Sequence[LeaseRecord]) -> QueueFlow[None]:
        # Trouble or not, the claim is answered; what cannot be given back ends by itself.
        held = tuple(LeaseRef(lease.job.key, lease.token) for lease in leases)
        if held:
            with suppress(OsqueueError):
                yield DetachedSubmit(shard, (ReleaseJobs(held),), GIVE_BACK_S)


class KeyedDeduplication(Deduplication):
    """Jobs under ids whose clients draw their keys, and may repeat a call whose answer was lost."""

    flows: ServerFlows

    def __init__(self, flows: ServerFlows) -> None:
        super().__init__(flows, flows.place_keyed, flows.draw)

    def repeated(self, new: JobSpec, location: JobLocation) -> bool:
        return same_job(new, location)

    def takeover_key(self, item: DedupAttempt, takeover: Takeover) -> Flow[tuple[bytes, int]]:
        """That of the client, so that a repeat finds its job by it; unless the job has been there already."""
        key, entry = item.original.key, item.entry
        used = item.retired_key == key or (entry is not None and entry.key == key)
        if item.original.seen < KEYED or used:
            return takeover.unused()
        state: State | None = takeover.state
        try:
            location = yield from find_in_state(root_of(self.queue, key[15]), takeover.state, key)
        except NotFound:  # merged away since that state
            state, location = yield from seek(self.queue, key[15], key)
        if location is not None:
            item.answer = answer_again(item.original, location)
        return key, 0 if state is None else state.seq

    def earlier(
        self, item: DedupAttempt, where: int, state: State | None, current: JobLocation
    ) -> Flow[Enqueued | None]:
        """By the keys that it drew for it: what replaces others has the time of those in its key."""
        new, job = item.original, current.job
        if new.seen < KEYED or state is None:
            return None
        mine = key_like(job.key, new.key)
        found = yield from find_many_in_state(root_of(self.queue, where), state, {mine, new.key})
        for key, location in found.items():
            told = location.row is not None and location.row.successor is not None
            mine_still = key == job.key and same_job(new, location)
            if (told or mine_still) and location.job.client_id == new.client_id:
                status = _status_again(new) if location.job.replaced else "queued"
                return Enqueued(status, job_id(job.key), current.state)
        return None

    def successor_key(self, item: DedupAttempt, old: bytes) -> bytes:
        new = item.original
        return super().successor_key(item, old) if new.seen < KEYED else key_like(old, new.key)

    def completed(self, key: bytes, location: JobLocation) -> Flow[Enqueued]:
        """Its result is read when it is known that the answer has room for it."""
        yield from ()
        row, text = location.row, job_id(key)
        assert row is not None
        if self.flows.holds_none(row):
            return Enqueued("completed", text, COMPLETED, error=result_too_large(row))
        crowded = TooLarge(
            "result: this answer has no room for it. Read it with"
            f" GET {QUEUES}/{self.queue}/jobs/{text}/result.",
            field="result",
        )
        unread = UnreadResult(key, location, result_weight(row))
        return Enqueued("completed", text, COMPLETED, unread, crowded)

    def failed(self, item: DedupAttempt, error: OsqueueError) -> None:
        """An error of a job under a drawn key fails the whole request.

        The job is perhaps in the queue. The caller repeats a request that fails. A caller who is answered that this one
        job was rejected enqueues it under another key, and has it twice.
        """
        if _keyed(item.original):
            raise error
        item.fail(error)


def _status_again(new: JobSpec) -> str:
    return "postponed" if new.unique and new.unique.on_duplicate == DEBOUNCE else "replaced"


def same_job(new: JobSpec, location: JobLocation) -> bool:
    """Is the job under a key the one that is enqueued now, or another caller's? The payload decides.

    Of a job that is over its length is known, and its checksum where it lay beside the head: another short payload
    of the same length is taken for a repeat.
    """
    job, row, mine = location.job, location.row, new.payload
    assert isinstance(mine, bytes)
    kept = job.payload if row is None else row.spent
    if isinstance(kept, BodyRef):
        same = (kept.length, kept.crc) == (len(mine), crc32(mine))
    else:
        same = mine == kept if row is None else len(mine) == row.payload_bytes
    return same and (row is not None or job.client_id == new.client_id)  # a purge blanks a row's


def answer_again(new: JobSpec, location: JobLocation | None) -> Enqueued:
    """The answer of a job whose key is there already."""
    if location is None or same_job(new, location):  # None: over and forgotten meanwhile
        return Enqueued("queued", job_id(new.key), None if location is None else location.state)
    return Enqueued("rejected", None, error=_taken(new.key))


def _drawn(job: NewJob | None) -> bytes | Rejected | None:
    """The key that a client drew for a job; None: it drew none."""
    if job is None:
        return Rejected("jobs: this one cannot be read.", field="jobs")
    if job.job_id is None:
        return None
    if not is_key(job.job_id):
        return Rejected(
            "job_id: it is not a UUID of version 7 in lower case. Draw one for every job, or leave it out.",
            field="job_id",
        )
    return key_of(job.job_id)


def _new(item: EnqueueItem, key: bytes) -> JobSpec:
    """Check one job."""
    job = item.job
    assert job is not None
    content = content_of(job.payload, job.data, job.codec or item.codec, "payload", PAYLOAD_BYTES_MAX)
    if content is None:
        raise Rejected("payload: it is missing. Every job has one (null is allowed).", field="payload")
    return JobSpec(key, content.data, content.codec, **columns_asked(job))


def _keyed(new: JobSpec) -> bool:
    return new.client_id is None and new.seen >= KEYED


def _taken(key: bytes) -> JobIdTaken:
    return JobIdTaken(
        f"job_id: {job_id(key)} stands for another job. Draw a UUID of version 7 for every job; its last byte does not"
        " count."
    )


def _outside(root: str, state: State, keys: Collection[bytes]) -> QueueFlow[set[bytes]]:
    """Which jobs lie in objects beside the head. Raises NotFound when the state is old."""
    found: set[bytes] = set()
    if not keys:
        return found
    newest = max(keys)
    spans = [span for lane in state.lanes for span in lane.backlog.spans]
    for span in (*spans, *state.delayed.spans, *state.dead.spans):
        if span.first <= newest:
            found.update((yield from segments.find_many(root, span, keys)))
    if state.tables:
        found.update((yield from finished_tables.find_many(root, state.tables, keys)))
    return found
