"""One shard driven by hand: requests go straight into the reducer, without a store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from osqueue import crontab, limits
from osqueue.commit.block_reader import decode_need
from osqueue.core.batches import batch_of
from osqueue.core.consumers import Wake
from osqueue.core.context import ReductionContext
from osqueue.core.deletion_vectors import EMPTY_VECTOR, decode_vector
from osqueue.core.encoding import Footer, decode_footer, decode_head, decode_index, encode_head
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs, JobSpec
from osqueue.core.ops import Op, Outcome, Request
from osqueue.core.reduce import Reduction, reduce
from osqueue.core.state import (
    ARCHIVE_ONLY,
    ENDED,
    EXPIRED_DEAD,
    FAILED,
    FAILING,
    KEYSUM_MASK,
    PROCESSING,
    QUEUED,
    SCHEDULED,
    UPDATED,
    Backlog,
    FinishedJob,
    JobRecord,
    LeaseRecord,
    Span,
    State,
    TableRef,
    Transition,
    delayed_state,
    keysums,
)
from osqueue.core.tables import decode_rows
from osqueue.core.tables import decode_table_index as decode_tables
from osqueue.core.weights import finished_weight, job_weight, lease_weight, session_weight
from osqueue.errors import Damaged
from osqueue.objects.segments import remaining
from tests.support.machines import NOON_MS


class Shard:
    """One shard without a store: requests go straight into the reducer, every commit through the wire format."""

    def __init__(self, *, seed: int = 1, checked: bool = True) -> None:
        self.chance = random.Random(seed)
        self.state = State(commit=bytes(16), epoch=7)
        self.objects: dict[str, bytes] = {}
        self.now = NOON_MS
        self.events: list[Transition] = []  # of every commit
        self.last: Reduction | None = None
        self.checked = checked  # look into every segment after every commit
        self.head_bytes = 0
        self.head_bytes_most = 0
        self.wakes: list[Wake] | None = None  # of consumers, where whoever commits can invoke them
        self.reads = 0
        self.left: dict[bytes, str] = {}  # every job that left the head for a table, and its last state
        self._tables: set[str] = set()  # those looked into
        self._spans: dict[
            Span, tuple[bytes, list[JobRecord]]
        ] = {}  # those looked into: what was read, its jobs
        self._n: dict[str, int] = {}
        self._drawn = 0

    # ── Doing ────────────────────────────────────────────────────────────────
    def key(self) -> bytes:
        """A new key; later ones sort later."""
        self._drawn += 1
        return self._drawn.to_bytes(8, "big") + self.chance.getrandbits(64).to_bytes(8, "big")

    def new(self, payload: bytes = b"1", **fields: Any) -> JobSpec:
        """A job to enqueue."""
        return JobSpec(self.key(), payload, **fields)

    def request(self, *ops: Op, env: str = "w") -> Request:
        """A request with an identity of its own."""
        self._n[env] = self._n.get(env, 0) + 1
        return Request(env, self._n[env], self.chance.getrandbits(64), self.state.seq, self.state.epoch, ops)

    def apply(self, *ops: Op, env: str = "w") -> tuple[Outcome, ...]:
        """Commit operations; their outcomes."""
        request = self.request(*ops, env=env)
        return self.commit([request]).outcomes[request.identity]

    def context(self, commit: bytes, chance: int, blocks: Any) -> ReductionContext:
        """What a reduction is given."""
        return ReductionContext(
            self.now, commit, chance, blocks, ticks=crontab.ticks, wakes=self.wakes is not None
        )

    def commit(self, requests: list[Request], *, load: bool = True) -> Reduction:
        """One commit, its segments read and written as the commit layer would."""
        commit, chance = self.chance.randbytes(16), self.chance.getrandbits(64)
        blocks: dict[Any, Any] = {}
        for _ in range(200):
            done = reduce(self.state, requests, self.context(commit, chance, blocks))
            wanted = [need for need in done.missing if need.place not in blocks]
            if not wanted or not load:
                break
            for need in wanted:
                self.reads += 1
                found = self.objects[need.name][need.start : need.start + need.length]
                blocks.update(decode_need(need, found))
                if need.place not in blocks:
                    raise Damaged(need.name)
        self.last = done
        if done.changed:
            self.objects.update((item.name, item.body) for item in done.objects)
            data = encode_head(done.state)
            self.head_bytes = len(data)
            self.head_bytes_most = max(self.head_bytes_most, len(data))
            self.state = done.state
            self.events.extend(done.events)
            if self.wakes is not None:
                self.wakes.extend(done.wakes)
            if self.checked:
                self.state = decode_head(data)
                assert self.state == done.state
                self.check()
        return done

    # ── Short for what tests do all the time ─────────────────────────────────
    def enqueue(self, count: int = 1, payload: bytes = b"1", **fields: Any) -> list[bytes]:
        """Enqueue jobs in one commit; their keys."""
        news = tuple(self.new(payload, **fields) for _ in range(count))
        self.apply(EnqueueJobs(news))
        return [new.key for new in news]

    def claim(
        self, limit: int = 1, kinds: tuple[str, ...] | None = None, lease_ms: int = limits.LEASE_MS_DEFAULT
    ) -> tuple[LeaseRecord, ...]:
        """Claim jobs."""
        return self.apply(ClaimJobs(limit, "ada", lease_ms, kinds))[0].leases

    def drain(self, limit: int = 1_000) -> list[bytes]:
        """Claim until nothing comes any more; the keys in order."""
        keys: list[bytes] = []
        while leases := self.claim(limit):
            keys.extend(lease.job.key for lease in leases)
        return keys

    # ── Looking ──────────────────────────────────────────────────────────────
    def where(self, key: bytes) -> str:
        """A job's state by the place it lies in; "gone" when it lies nowhere."""
        return self.places().get(key, "gone")

    def places(self) -> dict[bytes, str]:
        """Every job's state; a job in two places fails."""
        found: dict[bytes, str] = {}
        for job, state in self.all():
            assert job.key not in found, f"{job.key.hex()} is {found[job.key]} and {state}"
            found[job.key] = state
        return found

    def all(self) -> Iterator[tuple[JobRecord, str]]:
        """Every job, with its state."""
        state, gone = self.state, set(self.state.tombstones)
        for lane in state.lanes:
            for job in self.jobs(lane.backlog, gone):
                yield job, QUEUED
        for lease in state.leases.values():
            yield lease.job, PROCESSING
        for job in state.delayed.jobs:
            yield job, delayed_state(job)
        for span in state.delayed.spans:
            for job in self.inside(span):
                if job.key not in gone:
                    yield job, delayed_state(job)
        for job in self.jobs(state.dead, set()):
            yield job, FAILED
        for row in state.finished:
            if row.mark not in (ARCHIVE_ONLY, UPDATED):  # those jobs lie elsewhere
                yield row.job, "gone" if row.state == FAILED else row.state

    def jobs(self, backlog: Backlog, gone: set[bytes]) -> Iterator[JobRecord]:
        """Every job of a FIFO in order."""
        yield from backlog.ready
        for span in backlog.spans:
            yield from (job for job in self.inside(span) if job.key not in gone)
        yield from backlog.tail

    def inside(self, span: Span) -> list[JobRecord]:
        """Every job still to come in a span, its numbers checked. A span is looked into again if its object changed."""
        data = self.objects[span.name]
        known = self._spans.get(span)
        if known is None or known[0] is not data:
            known = self._spans[span] = data, self._look_into(span, data)
        return known[1]

    def _look_into(self, span: Span, data: bytes) -> list[JobRecord]:
        if span.level:
            jobs = [job for child in decode_index(data, span.name) for job in self.inside(child)]
        else:
            vector = span.vector
            deleted = (
                EMPTY_VECTOR if vector is None else decode_vector(self.objects[vector.name], vector.name)
            )
            jobs = remaining(span, data[span.offset :], deleted)
        assert len(jobs) == span.count
        assert keysums(jobs) == span.keysum
        assert all(span.first <= job.key <= span.last for job in jobs)
        return jobs

    def rows(self, table: TableRef) -> list[FinishedJob]:
        """Every row of one table, or of all below an index, its numbers checked."""
        data = self.objects[table.name]
        assert len(data) == table.size
        if table.level:
            rows = [row for child in decode_tables(data, table.name) for row in self.rows(child)]
        else:
            footer = decode_footer(data, table.name)
            assert isinstance(footer, Footer)
            rows = list(decode_rows(data, footer.blocks[0].length, table.name))
            assert rows == sorted(rows, key=lambda row: row.key)
        assert len(rows) == table.count
        assert table.first == min(row.key for row in rows)
        assert table.last == max(row.key for row in rows)
        assert table.named == sum(row.job.client_id is not None for row in rows)
        return rows

    def _shelved(self, tables: tuple[TableRef, ...]) -> None:
        """Look into the tables that are new: no job leaves the head twice, and none comes out of nowhere."""
        for table in tables:
            if table.name in self._tables:
                continue
            self._tables.add(table.name)
            if table.level:
                self._shelved(decode_tables(self.objects[table.name], table.name))
            fresh = {row.key: row.state for row in self.rows(table) if row.mark in (ENDED, EXPIRED_DEAD)}
            if table.archived or table.level:  # made of tables
                assert fresh.keys() <= self.left.keys()
            else:
                assert not fresh.keys() & self.left.keys()
                self.left.update(fresh)

    def check(self) -> None:
        """The sums kept in the head are the true ones, and no job was lost or doubled."""
        state = self.state
        for backlog in [*(lane.backlog for lane in state.lanes), state.dead]:
            assert backlog.ready_bytes == sum(map(job_weight, backlog.ready))
            assert backlog.tail_bytes == sum(map(job_weight, backlog.tail))
        assert state.leases_bytes == sum(map(lease_weight, state.leases.values()))
        assert state.delayed.jobs_bytes == sum(map(job_weight, state.delayed.jobs))
        assert state.finished_bytes == sum(map(finished_weight, state.finished))
        assert state.sessions_bytes == sum(session_weight(*each) for each in state.sessions.items())
        keys = list(self.places())
        self._shelved(state.tables)
        live = sum(int.from_bytes(key[8:], "big") for key in keys)
        gone = sum(int.from_bytes(key[8:], "big") for key in self.left)
        assert (live + state.counters.keysum_out) & KEYSUM_MASK == state.counters.keysum_in
        assert gone & KEYSUM_MASK == state.counters.keysum_out
        assert not self.left.keys() & set(keys)
        assert state.counters.enqueued - len(self.left) == len(keys)
        assert len(state.tombstones) <= limits.TOMBSTONES_MAX
        for key, row in state.batches.items():
            mine = [where for job, where in self.all() if batch_of(job) == key]
            assert row.left == sum(where in (QUEUED, PROCESSING, SCHEDULED, FAILING) for where in mine)
