"""Enqueue: one job, many in one commit, or a bulk staged as segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from .. import limits
from ..commit.effects import QueueFlow, Submit
from ..commit.request_status import CommitResult
from ..commit.retry import after_commit, before_commit
from ..core.job_ops import AttachSpans, EnqueueJobs, JobSpec
from ..core.ops import Code
from ..core.rows import StoredContent
from ..core.state import PROCESSING, QUEUED, SCHEDULED
from ..errors import OsqueueError, Rejected, Throttled
from ..model import validation
from ..model.job import Enqueued
from ..model.job_options import check_item, columns_of
from ..model.keys import KeySource, job_id
from ..objects.layout import read_state
from ..objects.staging import SegmentBuilder, wipe_refused
from .deduplication import Deduplication, refusal
from .placing import has_groups, placed_in
from .results import ResultFlows
from .staged_calls import stage_call

STALE_TRIES = 3  # times a call is staged again when the collector overtook it

_PLACED = frozenset(("group", "then", "batch"))
_TAKEN = (Code.QUEUED, Code.SCHEDULED)  # of any other item the commit refers to nothing


class EnqueueFlows(ResultFlows):
    """The flows that bring jobs in."""

    def __init__(self, *context: Any) -> None:
        super().__init__(*context)
        self.keys = KeySource(self.machine)

    def enqueue(self, payload: Any, options: Mapping[str, Any]) -> QueueFlow[Enqueued]:
        """One job; ``options`` holds those that differ from their defaults."""
        shard = self.next_of(self.shards_seen() or (yield from self.shards(will_write=True)))
        (key,) = self.keys.draw(shard)
        if options:
            new = yield from self._placed(self._new({"payload": payload, **options}, key))
            key, shard = new.key, new.key[15]
            if new.client_id is not None:
                (done,) = yield from Deduplication(self, self.place_jobs, self.draw).enqueue([new], shard)
                return _accepted(done)
        else:
            new = JobSpec(key, self._payload(payload), self.codec.name)
        if self.known and len(new.payload) <= limits.INLINE_BYTES_MAX:  # type: ignore[arg-type]
            answer = yield Submit(
                shard, (EnqueueJobs((new,)),)
            )  # the common case: nothing to stage or to repeat
            code = answer.outcomes[0].code
        else:
            (code,) = yield from self.commit_jobs([new], shard)
        return _accepted(_enqueued(key, code))

    def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> QueueFlow[list[Enqueued]]:
        """Many jobs in one commit, or in one for each shard that has groups of theirs; a bad one fails alone."""
        batch = validation.items(items)
        if not batch:
            return []
        began = self.machine.monotonic()
        shard = self.next_of(self.shards_seen() or (yield from self.shards(will_write=True)))
        if any(map(_is_placed, batch)):
            return (yield from self._enqueue_by_place(batch, shard, began))
        return (yield from self._enqueue_batch(batch, shard, began))

    def _placed(self, new: JobSpec) -> QueueFlow[JobSpec]:
        """The job under a key of the shard where it has to be."""
        if not (new.group or new.then or new.batch):
            return new
        return placed_in(new, (yield from self.group_shards()) if has_groups((new,)) else 0, new.key[15])

    def _enqueue_by_place(self, batch: list[Any], shard: int, began: float) -> QueueFlow[list[Enqueued]]:
        """Each job that has to be in some shard to that one, by its batch; the others to one shard together."""
        places: dict[tuple[int, bytes], list[int]] = {}
        results: list[Enqueued | None] = [None] * len(batch)
        (key,) = self.keys.draw(shard)
        for at, item in enumerate(batch):
            place = (shard, b"")
            if _is_placed(item):
                try:
                    new = yield from self._placed(JobSpec(key, b"", **columns_of(check_item(item))))
                except Rejected as error:
                    results[at] = Enqueued("rejected", None, error=error)
                    continue
                place = (new.key[15], new.batch)
            places.setdefault(place, []).append(at)
        for (home, mine), found in places.items():
            try:
                answers = yield from self._enqueue_batch([batch[at] for at in found], home, began, mine)
            except OsqueueError as error:
                if not any(each is not None and each.error is None for each in results):
                    raise
                answers = [Enqueued("rejected", None, error=error)] * len(found)  # others are in the queue
            for at, done in zip(found, answers, strict=True):
                results[at] = done
        return [each for each in results if each is not None]

    def _enqueue_batch(
        self, batch: list[Any], shard: int, began: float, of: bytes = b""
    ) -> QueueFlow[list[Enqueued]]:
        """Jobs of one call that began at a monotonic time, all of one batch or of none."""
        keys = self.keys.draw(shard, len(batch))
        if any(isinstance(item, (dict, Mapping)) and item.get("id") is not None for item in batch):
            return (yield from self._enqueue_named(batch, keys, shard))
        if len(batch) > limits.ITEMS_PER_REQUEST_MAX:
            return (yield from self._enqueue_bulk(batch, keys, shard, of))
        news: list[JobSpec] = []
        refused: dict[bytes, Enqueued] = {}
        for item, key in zip(batch, keys, strict=True):
            try:
                news.append(self._new(item, key))
            except Rejected as error:
                refused[key] = Enqueued("rejected", None, error=error)
        codes: list[Code] = []
        if news:
            code = yield from stage_call(self, news, shard, of, began)
            codes = [code] * len(news) if code is not None else (yield from self.commit_jobs(news, shard))
        if not refused:
            return list(map(_enqueued, keys, codes))
        accepted = iter(codes)
        return [refused.get(key) or _enqueued(key, next(accepted)) for key in keys]

    def _new(self, item: Any, key: bytes) -> JobSpec:
        """Check and serialise one item."""
        fields = check_item(item)
        if len(fields) == 1:  # the common case, a million times over
            return JobSpec(key, self._payload(fields["payload"]), self.codec.name)
        columns = columns_of(fields)
        return JobSpec(key, self._payload(fields["payload"]), self.codec.name, **columns)

    def _payload(self, value: Any) -> bytes:
        data = self.codec.encode(value, "payload")
        if len(data) > limits.PAYLOAD_BYTES_MAX:
            raise Rejected(
                f"payload: {len(data):,} bytes; the most is {limits.PAYLOAD_BYTES_MAX:,}. Store it elsewhere and"
                " enqueue a reference.",
                field="payload",
            )
        return data

    # ── Under clients' ids ───────────────────────────────────────────────────
    def _enqueue_named(self, batch: list[Any], keys: list[bytes], shard: int) -> QueueFlow[list[Enqueued]]:
        """Jobs some of which have ids: a request's worth to a commit."""
        results: list[Enqueued | None] = [None] * len(batch)
        for start in range(0, len(batch), limits.ITEMS_PER_REQUEST_MAX):
            news: list[JobSpec] = []
            places: list[int] = []
            for at in range(start, min(start + limits.ITEMS_PER_REQUEST_MAX, len(batch))):
                try:
                    news.append(self._new(batch[at], keys[at]))
                    places.append(at)
                except Rejected as error:
                    results[at] = Enqueued("rejected", None, error=error)
            try:
                answers = yield from Deduplication(self, self.place_jobs, self.draw).enqueue(news, shard)
            except OsqueueError as error:
                if not any(each is not None and each.error is None for each in results):
                    raise
                # Those before are answered. The rest may be repeated: what is in the queue already is a duplicate.
                missed = Enqueued("rejected", None, error=error)
                return [each or missed for each in results]
            for at, done in zip(places, answers, strict=True):
                results[at] = done
        return [each for each in results if each is not None]

    def place_jobs(self, news: list[JobSpec], shard: int) -> QueueFlow[list[Enqueued | Code]]:
        """Commit jobs to a shard: what became of each, or DUPLICATE or RETRY where it has an id."""
        return placed(news, (yield from self.commit_jobs(news, shard)))

    def draw(self, shard: int) -> bytes:
        """A new key."""
        return self.keys.draw(shard)[0]

    # ── In one commit ────────────────────────────────────────────────────────
    def commit_jobs(self, news: list[JobSpec], shard: int) -> QueueFlow[list[Code]]:
        """Commit jobs to a shard, large payloads beside its head; what became of each."""
        if not self.known:
            yield from self.known_queue()
        large = max(len(new.payload) for new in news) > limits.INLINE_BYTES_MAX  # type: ignore[arg-type]
        for _ in range(STALE_TRIES):
            sent = news
            if large:
                stage = yield from self.stage(shard)
                placed = yield from stage.bodies([new.payload for new in news])  # type: ignore[misc]
                sent = [_with_payload(new, payload) for new, payload in zip(news, placed, strict=True)]
            answer = yield Submit(shard, (EnqueueJobs(tuple(sent)),))
            codes = answer.outcomes[0].codes
            if large:
                staged = [(new.payload, code in _TAKEN) for new, code in zip(sent, codes, strict=True)]
                yield from wipe_refused(self.writers[shard].root, staged)
            if Code.STALE not in codes:
                return list(codes)
            news = [new for new, code in zip(news, codes, strict=True) if code == Code.STALE]
            if len(news) < len(codes):  # some went in: only the others again
                try:
                    again = yield from self.commit_jobs(news, shard)
                except OsqueueError as error:
                    raise (after_commit(error) if any(code in _TAKEN for code in codes) else error) from None
                rest = iter(again)
                return [next(rest) if code == Code.STALE else code for code in codes]
        raise Throttled("the call was overtaken by the collector again and again. Repeat it later.")

    def _enqueue_bulk(
        self, items: list[Any], keys: list[bytes], shard: int, batch: bytes
    ) -> QueueFlow[list[Enqueued]]:
        """More than one request holds: staged as segments, then visible in one commit."""
        for _ in range(STALE_TRIES):
            results: list[Enqueued] = []
            delayed: list[bool | None] = []  # each item, if it is one; None: it was rejected
            staged: list[tuple[bool | None, StoredContent]] = []  # and each payload beside the head
            stage = yield from self.stage(shard)
            seen = yield from self.state_seen(shard)
            try:
                fresh = yield from read_state(self.queue, shard)  # what was seen may be of any age
            except OsqueueError as error:
                raise before_commit(error) from None
            settings = seen.settings if fresh is None else fresh.settings
            writer = self.writers[shard]
            yield from writer.tell_time()  # the segments say when their jobs are due
            now = writer.now_ms(seen)
            bulk = SegmentBuilder(stage, now, writer.latest_ms(now), settings)
            for start in range(0, len(items), limits.ITEMS_PER_REQUEST_MAX):
                news = []
                for at in range(start, min(start + limits.ITEMS_PER_REQUEST_MAX, len(items))):
                    try:
                        new = self._new(items[at], keys[at])
                    except Rejected as error:
                        results.append(Enqueued("rejected", None, error=error))
                        delayed.append(None)
                        continue
                    news.append(new)
                    due = new.delay_ms > 0 or new.at_ms > now
                    delayed.append(due)
                    results.append(Enqueued("queued", job_id(keys[at]), SCHEDULED if due else QUEUED))
                placed = yield from stage.bodies([new.payload for new in news])  # type: ignore[misc]
                if any(new.payload is not payload for new, payload in zip(news, placed, strict=True)):
                    news = [_with_payload(new, payload) for new, payload in zip(news, placed, strict=True)]
                    staged += zip((due for due in delayed[start:] if due is not None), placed, strict=True)
                yield from bulk.add(news)
            attachments = yield from bulk.attachments()
            if not attachments:
                return results
            if batch:
                attachments = tuple([replace(attach, batch=batch) for attach in attachments])
            yield from self.known_queue()
            answer = yield Submit(shard, attachments)
            codes = {each.code for each in answer.outcomes}
            if Code.STALE not in codes:
                refused = _refused(attachments, answer)
                taken = [(payload, due not in refused) for due, payload in staged]
                yield from wipe_refused(self.writers[shard].root, taken)
                return [
                    refused.get(due, result) if due is not None else result
                    for result, due in zip(results, delayed, strict=True)
                ]
        raise Throttled("the bulk was overtaken by the collector again and again. Repeat it later.")


def _is_placed(item: Any) -> bool:
    """May an item that has not been checked yet have to be in some shard?"""
    return isinstance(item, Mapping) and not _PLACED.isdisjoint(item)


def _accepted(done: Enqueued) -> Enqueued:
    """The answer of a call for one job: what keeps it out is raised."""
    if done.error is not None:
        raise done.error
    return done


def _with_payload(new: JobSpec, payload: Any) -> JobSpec:
    return replace(new, payload=payload)


def placed(news: Sequence[JobSpec], codes: Sequence[Code]) -> list[Enqueued | Code]:
    """What became of committed jobs; the code itself where another job of the same id has to be looked at."""
    again = (Code.DUPLICATE, Code.RETRY)
    return [
        code if new.client_id is not None and code in again else _enqueued(new.key, code)
        for new, code in zip(news, codes, strict=True)
    ]


def _enqueued(key: bytes, code: Code) -> Enqueued:
    if code is Code.QUEUED:
        return Enqueued("queued", job_id(key), QUEUED)
    error = refusal(code)
    if error is not None:
        return Enqueued("rejected", None, error=error)
    return Enqueued("queued", job_id(key), PROCESSING if code == Code.DUPLICATE else code.name.lower())


def _refused(attachments: Sequence[AttachSpans], answer: CommitResult) -> dict[bool, Enqueued]:
    """What the jobs of a bulk that could not be attached are told: those that are delayed, and those that are not."""
    found = {}
    for attach, outcome in zip(attachments, answer.outcomes, strict=True):
        error = refusal(outcome.code)
        if error is not None:
            found[attach.delayed] = Enqueued("rejected", None, error=error)
    return found
