"""Everything a Queue does, as flows over the commit layer: the embedded mode.

A flow validates, asks for commits (``Submit``) and reads (store requests), and turns outcomes into what callers
see. It does no I/O itself, so the blocking and the async Queue run the same flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from . import limits, listing, validation
from .clock import Machine
from .commit.effects import Sleep
from .commit.protocol import Answer
from .commit.writer import Writer
from .core.ops import (
    Abort,
    Attach,
    Cancel,
    Claim,
    Code,
    Complete,
    Completion,
    Configure,
    Enqueue,
    Fail,
    Failure,
    Heartbeat,
    Held,
    New,
    Op,
    Outcome,
    Redrive,
    Release,
    Sweep,
)
from .core.state import FAILED, PROCESSING, QUEUED, SCHEDULED, Lease, State
from .errors import LeaseLost, OsqueueError, Rejected, Throttled, Unavailable
from .job import Done, Enqueued, Job
from .keys import KeySource, job_id, key_of, shard_of
from .segments import find, read_bodies
from .serde import Codec
from .shards import QueueFlow, Submit, read_state, register, root_of
from .staging import Bulk, Stage
from .stores.base import Refused, Written
from .tombstones import rewrite

STALE_TRIES = 3  # times a bulk is staged again when the collector overtook it
DELAYED = "delayed"  # stands for a lane where bulk results are sorted out
CANCEL_TRIES = 20  # looks for a job that moves while it is being cancelled
POLL_SECONDS_FIRST = 0.05  # between two looks of a waiting claim, doubled up to …
POLL_SECONDS_MAX = 1.0


class Granted(Struct, frozen=True):
    """A leased job with its payload at hand."""

    lease: Lease
    payload: Any
    asked: float  # monotonic seconds when the claim was sent: the lease ends no earlier than asked + its length


class Claimed(Struct, frozen=True):
    """The answer to a claim."""

    leases: tuple[Granted, ...]
    reason: str | None  # why it is empty: "empty", "paused" or "in_flight_limit"


class Embedded:
    """The flows of one queue. Holds what does not change; the state is in the store."""

    def __init__(self, queue: str, codec: Codec, machine: Machine, writers: Writers) -> None:
        self.queue = queue
        self.codec = codec
        self.machine = machine
        self.writers = writers
        self.keys = KeySource(machine)
        self.turn = 0
        self.known = False  # the queue is registered

    # ── Shards ───────────────────────────────────────────────────────────────
    def shards(self) -> QueueFlow[int]:
        """How many shards the queue has, by the head of the first as this process last saw it."""
        return (yield from self._seen(0)).settings.shards

    def _seen(self, shard: int) -> QueueFlow[State]:
        """The shard's state as this process last saw it; an empty submit sees to it that it has."""
        writer = self.writers[shard]
        while writer.head is None:
            yield Submit(shard, ())
        return writer.head.state

    def known_queue(self) -> QueueFlow[None]:
        """Register the queue by name before its first head is written."""
        if self.known:
            return
        if (yield from self._seen(0)).seq == 0:
            reply = yield register(self.queue)
            if not isinstance(reply, Written | Refused):
                raise Unavailable("the queue could not be registered: the store gave no answer. Repeat the call.")
        self.known = True

    def next_shard(self) -> QueueFlow[int]:
        """New jobs go to the shards in turn."""
        count = yield from self.shards()
        self.turn += 1
        return self.turn % count

    def stage(self, shard: int) -> QueueFlow[Stage]:
        """A place for staged objects, born with the head this process knows."""
        seen = yield from self._seen(shard)
        return Stage(self.writers[shard].root, seen.seq, self.machine)

    # ── Enqueue ──────────────────────────────────────────────────────────────
    def enqueue(self, payload: Any, **options: Any) -> QueueFlow[Enqueued]:
        """One job."""
        (done,) = yield from self.enqueue_many([{"payload": payload, **options}])
        if done.error is not None:
            raise done.error
        return done

    def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> QueueFlow[list[Enqueued]]:
        """Many jobs in one commit; a bad one fails alone."""
        batch = list(items) if not isinstance(items, list) else items
        if len(batch) > limits.ITEMS_PER_CALL_MAX:
            raise Rejected(
                f"jobs: {len(batch):,} in one call; the most is {limits.ITEMS_PER_CALL_MAX:,}. Send them in several.",
                field="jobs",
            )
        if not batch:
            return []
        shard = yield from self.next_shard()
        keys = self.keys.draw(shard, len(batch))
        if len(batch) > limits.ITEMS_PER_REQUEST_MAX:
            return (yield from self._enqueue_bulk(batch, keys, shard))
        results: list[Enqueued | None] = [None] * len(batch)
        news: list[New] = []
        places: list[int] = []
        for at, item in enumerate(batch):
            try:
                news.append(self._new(item, keys[at]))
                places.append(at)
            except Rejected as error:
                results[at] = Enqueued("rejected", None, error=error)
        if news:
            codes = yield from self._enqueue(news, shard)
            for at, new, code in zip(places, news, codes, strict=True):
                results[at] = _enqueued(new.key, code)
        return [each for each in results if each is not None]

    def _new(self, item: Any, key: bytes) -> New:
        """Check and serialise one item."""
        fields = validation.item_fields(item)
        if len(fields) == 1:  # the common case, a million times over
            return New(key, self._payload(fields["payload"]), self.codec.name)
        get = fields.get
        validation.client_id(get("id"))
        delay_ms, at_ms = validation.when(get("delay"), get("at"))
        return New(
            key,
            self._payload(fields["payload"]),
            self.codec.name,
            validation.kind(get("kind")),
            validation.priority(get("priority", limits.PRIORITY_DEFAULT)),
            validation.max_attempts(get("max_attempts", limits.ATTEMPTS_DEFAULT)),
            validation.result_ttl_ms(get("result_ttl", limits.RESULT_TTL_MS_DEFAULT / 1000)),
            delay_ms,
            at_ms,
        )

    def _payload(self, value: Any) -> bytes:
        data = self.codec.encode(value, "payload")
        if len(data) > limits.PAYLOAD_BYTES_MAX:
            raise Rejected(
                f"payload: {len(data):,} bytes; the most is {limits.PAYLOAD_BYTES_MAX:,}. Store it elsewhere and"
                " enqueue a reference.",
                field="payload",
            )
        return data

    def _enqueue(self, news: list[New], shard: int) -> QueueFlow[list[Code]]:
        yield from self.known_queue()
        large = any(len(new.payload) > limits.INLINE_BYTES_MAX for new in news)  # type: ignore[arg-type]
        for _ in range(STALE_TRIES):
            sent = news
            if large:
                stage = yield from self.stage(shard)
                placed = yield from stage.bodies([new.payload for new in news])  # type: ignore[misc]
                sent = [_with_payload(new, payload) for new, payload in zip(news, placed, strict=True)]
            answer = yield Submit(shard, (Enqueue(tuple(sent)),))
            codes = answer.outcomes[0].codes
            if Code.STALE not in codes:
                return list(codes)
            news = [new for new, code in zip(news, codes, strict=True) if code == Code.STALE]
            if len(news) < len(codes):  # some went in: only the others again
                again = yield from self._enqueue(news, shard)
                rest = iter(again)
                return [next(rest) if code == Code.STALE else code for code in codes]
        raise Throttled("the call was overtaken by the collector again and again. Repeat it later.")

    def _enqueue_bulk(self, batch: list[Any], keys: list[bytes], shard: int) -> QueueFlow[list[Enqueued]]:
        """More than one request holds: staged as segments, then visible in one commit."""
        yield from self.known_queue()
        for _ in range(STALE_TRIES):
            results: list[Enqueued] = []
            lanes: list[Any] = []  # where each item went
            stage = yield from self.stage(shard)
            now = self.writers[shard].now_ms((yield from self._seen(shard)))
            bulk = Bulk(stage, now)
            for start in range(0, len(batch), limits.ITEMS_PER_REQUEST_MAX):
                news = []
                for at in range(start, min(start + limits.ITEMS_PER_REQUEST_MAX, len(batch))):
                    try:
                        new = self._new(batch[at], keys[at])
                    except Rejected as error:
                        results.append(Enqueued("rejected", None, error=error))
                        lanes.append(None)
                        continue
                    news.append(new)
                    due = new.delay_ms > 0 or new.at_ms > now
                    lanes.append(DELAYED if due else (new.priority, new.kind))
                    results.append(Enqueued("queued", job_id(keys[at]), SCHEDULED if due else QUEUED))
                placed = yield from stage.bodies([new.payload for new in news])  # type: ignore[misc]
                if any(new.payload is not payload for new, payload in zip(news, placed, strict=True)):
                    news = [_with_payload(new, payload) for new, payload in zip(news, placed, strict=True)]
                yield from bulk.add(news)
            attachments = yield from bulk.attachments()
            if not attachments:
                return results
            answer = yield Submit(shard, attachments)
            codes = {each.code for each in answer.outcomes}
            if Code.STALE not in codes:
                return _bulk_results(results, lanes, attachments, answer)
        raise Throttled("the bulk was overtaken by the collector again and again. Repeat it later.")

    # ── Claim ────────────────────────────────────────────────────────────────
    def claim(
        self,
        limit: int = 1,
        worker: str | None = None,
        wait: float = 0,
        lease: float = limits.LEASE_MS_DEFAULT / 1000,
        kinds: Iterable[str] | None = None,
    ) -> QueueFlow[Claimed]:
        """Lease jobs, waiting up to ``wait`` seconds for the first."""
        name = validation.text(
            self.machine.name() if worker is None else worker, "worker", limits.WORKER_CHARS_MAX, 1
        )
        op = Claim(
            validation.whole(limit, "limit", 1, limits.CLAIM_LIMIT_MAX),
            name,
            validation.lease_ms(lease),
            validation.kinds(kinds),
        )
        until = self.machine.monotonic() + validation.milliseconds(wait, "wait", 0, limits.DAY_MS) / 1000
        pause = POLL_SECONDS_FIRST
        while True:
            claimed = yield from self._claim(op)
            left = until - self.machine.monotonic()
            if claimed.leases or left <= 0:
                return claimed
            yield Sleep(min(pause, left))
            pause = min(pause * 2, POLL_SECONDS_MAX)

    def _claim(self, op: Claim) -> QueueFlow[Claimed]:
        count = yield from self.shards()
        first = int(self.machine.uniform() * count)
        reason = "empty"
        for at in range(count):
            shard = (first + at) % count
            asked = self.machine.monotonic()
            answer = yield Submit(shard, (op,))
            outcome: Outcome = answer.outcomes[0]
            if outcome.leases:
                contents = [lease.job.payload for lease in outcome.leases]
                payloads = yield from read_bodies(self.writers[shard].root, contents)
                return Claimed(
                    tuple(
                        Granted(each, data, asked) for each, data in zip(outcome.leases, payloads, strict=True)
                    ),
                    None,
                )
            if outcome.code in (Code.PAUSED, Code.IN_FLIGHT_LIMIT):
                reason = outcome.code.name.lower()
        return Claimed((), reason)

    # ── What a worker says ───────────────────────────────────────────────────
    def complete_many(self, items: Sequence[tuple[str, str, Any]]) -> QueueFlow[list[Done]]:
        """(job id, token, result) each; one commit per shard."""
        found: list[Completion] = []
        for text, token, value in items:
            data = b"" if value is None else self.codec.encode(value, "result")
            found.append(Completion(key_of(text), _token(token), data))
        return (yield from self._held(found, self._complete_ops))

    def _complete_ops(self, shard: int, items: Sequence[Any]) -> QueueFlow[Op]:
        if any(len(item.result) > limits.INLINE_BYTES_MAX for item in items):
            stage = yield from self.stage(shard)
            placed = yield from stage.bodies([item.result for item in items])
            items = [Completion(i.key, i.token, r) for i, r in zip(items, placed, strict=True)]
        return Complete(tuple(items))

    def heartbeat_many(
        self, items: Sequence[tuple[str, str]], lease: float | None = None
    ) -> QueueFlow[list[Done]]:
        """(job id, token) each; one commit per shard."""
        length = 0 if lease is None else validation.lease_ms(lease)
        return (yield from self._held(_holds(items), lambda _, held: _op(Heartbeat(tuple(held), length))))

    def fail_many(
        self, items: Sequence[tuple[str, str, Any]], retry_in: float | None = None, retry: bool = True
    ) -> QueueFlow[list[Done]]:
        """(job id, token, error) each; one commit per shard."""
        wait = -1 if retry_in is None else validation.milliseconds(retry_in, "retry_in", 0, limits.DELAY_MS_MAX)
        found = [
            Failure(key_of(t), _token(k), validation.error_text(e), wait, self.machine.uniform(), not retry)
            for t, k, e in items
        ]
        return (yield from self._held(found, lambda _, items: _op(Fail(tuple(items)))))

    def release_many(self, items: Sequence[tuple[str, str]], delay: float = 0) -> QueueFlow[list[Done]]:
        """(job id, token) each; one commit per shard."""
        wait = validation.milliseconds(delay, "delay", 0, limits.DELAY_MS_MAX)
        return (yield from self._held(_holds(items), lambda _, held: _op(Release(tuple(held), wait))))

    def abort_many(self, items: Sequence[tuple[str, str]], why: str = "") -> QueueFlow[list[Done]]:
        """(job id, token) each; one commit per shard."""
        reason = validation.error_text(why)
        return (yield from self._held(_holds(items), lambda _, held: _op(Abort(tuple(held), reason))))

    def _held(self, items: Sequence[Any], make: Any) -> QueueFlow[list[Done]]:
        """Send items to the shards of their keys and bring the outcomes back in order."""
        shards: dict[int, list[int]] = {}
        for at, item in enumerate(items):
            shards.setdefault(shard_of(item.key), []).append(at)
        results: dict[int, Done] = {}
        for shard, places in shards.items():
            if shard >= limits.SHARDS_MAX:
                raise Rejected("job_id: it was not drawn by this queue.", field="job_id")
            for start in range(0, len(places), limits.ITEMS_PER_REQUEST_MAX):
                chunk = places[start : start + limits.ITEMS_PER_REQUEST_MAX]
                op = yield from make(shard, [items[at] for at in chunk])
                answer = yield Submit(shard, (op,))
                for at, code in zip(chunk, answer.outcomes[0].codes, strict=True):
                    results[at] = _done(items[at].key, code)
        return [results[at] for at in range(len(items))]

    # ── Questions and orders ─────────────────────────────────────────────────
    def status(self, text: str) -> QueueFlow[Job | None]:
        """The job as the committed state shows it, or None."""
        key = key_of(text)
        state = yield from self._state(shard_of(key))
        if state is None:
            return None
        return (yield from listing.find_job(root_of(self.queue, shard_of(key)), state, key))

    def _state(self, shard: int) -> QueueFlow[State | None]:
        if shard >= limits.SHARDS_MAX:
            return None
        return (yield from read_state(self.queue, shard))

    def cancel(self, text: str) -> QueueFlow[str]:
        """Cancel a waiting job, ask the worker of a running one."""
        key = key_of(text)
        shard = shard_of(key)
        root = root_of(self.queue, shard)
        op = Cancel(key)
        for _ in range(CANCEL_TRIES):
            state = yield from self._state(shard)
            if state is None:
                return "not_found"
            answer = yield Submit(shard, (op,))
            code = answer.outcomes[0].code
            if code not in (Code.NOT_FOUND, Code.RETRY):
                return str(code.name.lower())
            # Not in the head itself: find the record in the backlog, and cancel it there by its evidence.
            state = yield from read_state(self.queue, shard)
            assert state is not None
            if len(state.tombstones) >= limits.TOMBSTONES_MAX:
                settle = yield from rewrite(root, state, (yield from self.stage(shard)))
                yield Submit(shard, settle)
                continue
            place = yield from find(root, listing.waiting_spans(state), key)
            if place is not None and key not in state.tombstones:
                op = Cancel(key, place.job, place.top.name, place.offset, place.index)
                continue
            found = yield from listing.find_job(root, state, key)
            if found is None or found.state == FAILED:
                return "not_found"
            op = Cancel(key)
        raise Throttled("the queue moves too fast to cancel this job just now. Repeat it.")

    def jobs(
        self, state: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> QueueFlow[tuple[list[Job], str | None]]:
        """One page of live jobs and the cursor of the next."""
        count = yield from self.shards()
        return (yield from listing.page(self.queue, count, state, limit, cursor))

    def stats(self) -> QueueFlow[dict[str, Any]]:
        """Numbers over all shards."""
        count = yield from self.shards()
        states = []
        for shard in range(count):
            found = yield from read_state(self.queue, shard)
            if found is not None:
                states.append(found)
        return listing.statistics(self.queue, states, self.machine.now_ms())

    def configure(self, **wished: Any) -> QueueFlow[None]:
        """Change settings on every shard; answers when all have them."""
        op = _configure(wished)
        yield from self.known_queue()
        count = yield from self.shards()
        if op.shards is not None and op.shards < count:
            raise Rejected(
                f"shards: the queue has {count}; their number can only grow, or jobs would be out of reach.",
                field="shards",
            )
        # The first shard last: it tells everybody how many there are.
        for shard in reversed(range(max(count, op.shards or 1))):
            yield Submit(shard, (op,))

    def redrive(
        self,
        limit: int | None = None,
        kinds: Iterable[str] | None = None,
        error: str | None = None,
        dry_run: bool = False,
    ) -> QueueFlow[int]:
        """Queue dead jobs again, the oldest first; answers how many (or how many it would be)."""
        most = validation.whole(limit, "limit", 1, limits.ITEMS_PER_CALL_MAX) if limit is not None else None
        wanted = validation.kinds(kinds)
        part = "" if error is None else validation.text(error, "error", limits.ERROR_CHARS_MAX)
        count = yield from self.shards()
        moved = 0
        for shard in range(count):
            left = None if most is None else most - moved
            if left == 0:
                break
            if dry_run:
                moved += yield from listing.count_dead(self.queue, shard, wanted, part, left)
            else:
                moved += yield from self._redrive(shard, left, wanted, part)
        return moved

    def _redrive(self, shard: int, most: int | None, kinds: tuple[str, ...] | None, error: str) -> QueueFlow[int]:
        state = yield from read_state(self.queue, shard)
        if state is None:
            return 0
        scan, moved = listing.dead_count(state), 0
        while scan > 0 and (most is None or moved < most):
            chunk = min(limits.ITEMS_PER_REQUEST_MAX, scan)
            room = chunk if most is None else min(chunk, most - moved)
            answer = yield Submit(shard, (Redrive(room, chunk, kinds, error),))
            (_, again), (_, looked) = answer.outcomes[0].runs
            moved += again
            scan -= looked
            if not looked:
                break
        return moved

    def sweep(self, flush: bool = False) -> QueueFlow[None]:
        """Do what time demands, in every shard."""
        count = yield from self.shards()
        for shard in range(count):
            if (yield from self._state(shard)) is not None:
                yield Submit(shard, (Sweep(flush),))


class Writers(dict[int, Writer]):
    """The writers of a queue's shards, made as they are needed, one for each."""

    def __init__(self, make: Callable[[int], Writer]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, shard: int) -> Writer:
        return self.setdefault(shard, self._make(shard))  # one step, so two threads get the same one


def _op(op: Op) -> QueueFlow[Op]:
    """An operation that needs nothing staged, as a flow."""
    yield from ()
    return op


def _with_payload(new: New, payload: Any) -> New:
    return New(
        new.key,
        payload,
        new.codec,
        new.kind,
        new.priority,
        new.max_attempts,
        new.result_ttl_ms,
        new.delay_ms,
        new.at_ms,
    )


def _refusal(code: Code) -> OsqueueError | None:
    if code == Code.LANES:
        return Throttled(
            f"kind: jobs of {limits.LANES_MAX} different (priority, kind) pairs are waiting already. Use fewer kinds,"
            " or wait until some of them are empty."
        )
    if code == Code.DELAYED_LIMIT:
        return Throttled("delay: too many delayed jobs are waiting in this shard. Add shards, or repeat later.")
    return None


def _enqueued(key: bytes, code: Code) -> Enqueued:
    error = _refusal(code)
    if error is not None:
        return Enqueued("rejected", None, error=error)
    return Enqueued("queued", job_id(key), PROCESSING if code == Code.DUPLICATE else code.name.lower())


def _bulk_results(
    results: list[Enqueued], lanes: Sequence[Any], attachments: Sequence[Attach], answer: Answer
) -> list[Enqueued]:
    """Refuse what belongs to a lane that could not be attached."""
    refused = {
        DELAYED if attach.delayed else (attach.priority, attach.kind): error
        for attach, outcome in zip(attachments, answer.outcomes, strict=True)
        if (error := _refusal(outcome.code)) is not None
    }
    if not refused:
        return results
    return [
        Enqueued("rejected", None, error=refused[lane]) if lane in refused else result
        for result, lane in zip(results, lanes, strict=True)
    ]


def _token(value: Any) -> str:
    return validation.text(value, "token", 64, 1)


def _holds(items: Sequence[tuple[str, str]]) -> list[Held]:
    return [Held(key_of(text), _token(token)) for text, token in items]


def _done(key: bytes, code: Code) -> Done:
    text = job_id(key)
    if code in (Code.LEASE_LOST, Code.STALE):
        return Done(text, False, code.name.lower())
    if code == Code.CANCEL_REQUESTED:
        return Done(text, True, cancel_requested=True)
    return Done(text, True, code.name.lower())


def lease_lost(text: str) -> LeaseLost:
    """The error of a worker that came too late."""
    return LeaseLost(
        f"job {text}: this lease is not the newest one. It ended, or the job was finished or cancelled. Drop the work;"
        " use the job id as an idempotency key for outside effects."
    )


_SETTINGS = {
    "backoff_base": ("backoff_base_ms", 1, limits.DAY_MS),
    "backoff_cap": ("backoff_cap_ms", 1, limits.DELAY_MS_MAX),
    "dead_ttl": ("dead_ttl_ms", limits.MINUTE_MS, limits.DELAY_MS_MAX),
}


def _configure(wished: Mapping[str, Any]) -> Configure:
    fields: dict[str, Any] = {}
    for name, value in wished.items():
        if name in _SETTINGS:
            field, least, most = _SETTINGS[name]
            fields[field] = validation.milliseconds(value, name, least, most)
        elif name == "shards":
            fields["shards"] = validation.whole(value, name, 1, limits.SHARDS_MAX)
        elif name == "paused":
            if not isinstance(value, bool):
                raise Rejected("paused: it is True or False.", field="paused")
            fields["paused"] = value
        else:
            known = ", ".join(sorted([*_SETTINGS, "shards", "paused"]))
            raise Rejected(f"{name}: no such setting. Known: {known}.", field=name)
    return Configure(**fields)
