"""What must hold after every commit. Numbers are those of the design's list of invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from uuid import UUID

from osqueue import limits
from osqueue.core.archive_record import decode_part
from osqueue.core.arrows import ARROWS, EXPIRED
from osqueue.core.audit import spans_of
from osqueue.core.encoding import Footer, decode_blocks, decode_footer, decode_head, decode_index, encode
from osqueue.core.job_ops import (
    AbortJobs,
    AttachBulk,
    AttachSpans,
    ClaimJobs,
    CompleteJobs,
    Completion,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    LeaseRef,
    ReleaseJobs,
    SetResultTtl,
)
from osqueue.core.ops import Code
from osqueue.core.state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    KEYSUM_MASK,
    QUEUED,
    SCHEDULED,
    FinishedJob,
    State,
    Transition,
)
from osqueue.core.weights import finished_weight, job_weight, lease_weight, session_weight
from osqueue.maintenance.reaper import STEPS_MAX
from osqueue.objects.archive import hour_of
from osqueue.objects.listing import count_states
from osqueue.stores.base import PutIfAbsent, PutIfMatch, StoreRequest

from . import (
    ageing,
    empty_claims,
    lives,
    order,
    payloads,
    rates,
    releases,
    running_limits,
    shelves,
    time_limits,
)
from .flow_control import FlowControl
from .leases import LeaseWatch
from .ledger import Applied, Ledger, RecordedReduction, Violation, describe
from .listening import EventWatch
from .places import FINISHED, JobPlace, SegmentCache, bodies_of, keysum_of, places
from .progress import Progress
from .restarts import Restarts
from .shelves import Record, Shelves, TableLeaf, check_hour, record_of
from .stories import LIVE, Stories
from .truth import Truth

MOVES = {EXPIRED, *((each.origin, each.target, each.cause) for each in ARROWS)}
TABLES_MAX = 8  # times FANOUT: the head points to no more, but for those that one pass has just archived
SLACK_BYTES = 1_500  # one more row than the budget admits
ALIVE = (*LIVE, FAILED)
CLOCK_SLACK_MS = 1_500  # a head may be this far ahead of the store's clock: drift between measurements


class Invariants:
    """Watches the store and judges every write to it."""

    def __init__(
        self,
        root: str,
        truth: Truth,
        ledger: Ledger,
        *,
        queue: str = "",
        ordered: bool = False,
        shard: int = 0,
        on_bulk: Callable[[int, set[bytes]], None] = lambda shard, keys: None,
        on_commit: Callable[[int, State, RecordedReduction], None] = lambda shard, state, batch: None,
    ) -> None:
        self.root = root
        self.queue = queue
        self.shard = shard
        self.on_bulk = on_bulk  # told of the jobs of every ``AttachBulk`` that joined
        self.on_commit = on_commit  # told of every commit
        self.truth, ledger.clock = truth, truth.seconds
        self.ledger = ledger
        self.rows = True  # judge how rows are dropped (invariant 4), not only what comes of it
        self.progress = Progress(root, ordered)
        self.starts = rates.StartLog()
        self.flow = FlowControl()
        self.restarts = Restarts()
        self.leases = LeaseWatch(ledger.machines, truth.clock_ms)
        self.library = SegmentCache(lambda name: truth.read(root + name))
        self.shelves = Shelves(lambda name: truth.read(root + name))
        self.leaves: list[TableLeaf] = []  # the tables of the newest head
        self.stories = Stories(root, queue, truth)
        self.events = EventWatch(queue)
        self.names: set[str] = set()  # all that the newest head refers to
        self.found: dict[bytes, JobPlace] = {}
        self.missing = False  # was the head deleted?
        self.finished: dict[Record, FinishedJob] = {}  # whatever any committed head had finished
        self.ended: Counter[Record] = Counter()  # whatever ended, by the events of commits
        self.over: Counter[bytes] = Counter()  # how often each job ended for good
        self.accepted: set[bytes] = set()  # the keys of all jobs that ever came in
        self.written: set[Record] = set()  # what parts tell of that were written in the hour of their folder
        self.parts: dict[str, set[Record]] = {}  # what each part tells
        self.late = 0  # parts written in a later hour
        self.tokens: set[str] = set()  # every lease token ever granted
        self.lanes: dict[order.Lane, list[bytes]] = {}
        self.attached: dict[str, tuple[bytes, ...]] = {}  # the keys of every segment ever written
        self.purged = self.stories.purged  # jobs that somebody purges, or has purged
        self.erased: set[bytes] = set()  # jobs of which a purge said that they are gone
        self.adrift: set[bytes] = set()  # jobs of which no row tells any more where contents of theirs lie
        self.ticked: set[bytes] = set()  # the keys of jobs that schedules made
        self.served: set[tuple[str, int]] = set()  # and the ticks, by schedule and time
        self.unmarked: set[bytes] = (
            set()
        )  # cancelled jobs whose deletion vectors were lost: they may run again
        self.lost_jobs: set[bytes] = set()  # that no backup knew when a head was restored
        self.runs: set[tuple[bytes, int]] = set()  # every job and run ever granted
        truth.watchers.append(self.watch)
        truth.mourners.append(self.mourn)

    @property
    def state(self) -> State | None:
        """The newest head."""
        return self.ledger.commits[-1].state if self.ledger.commits else None

    def leftovers(self) -> list[str]:
        """Segments that are there, and hold jobs that never came in."""
        names = [name for name, keys in self.attached.items() if self.accepted.isdisjoint(keys)]
        return [name for name in names if self.truth.read(self.root + name) is not None]

    def watch(self, request: StoreRequest, key: str, body: bytes) -> None:
        """A write took effect."""
        if key == self.root + "head":
            self._head(request, body)
        elif key.startswith("archive/") and key.rpartition("/")[2].startswith(f"{self.shard:02d}-"):
            self._part(key, body)
        elif key.startswith(self.root + "segments/"):
            self._segment(key.removeprefix(self.root), body)
        elif key.startswith(self.root + "events/"):
            self.events.written(key.removeprefix(self.root), body)
        elif key.startswith(self.progress.place):
            self.progress.landed(key, body, self.state)

    def mourn(self, key: str) -> None:
        """An object was deleted."""
        if key == self.root + "head":
            lives.lose(self, deleted=True)
        if key.startswith(self.root) and key.removeprefix(self.root) in self.names:
            raise Violation(f"invariant 8: {key} was deleted while the head refers to it")

    def _segment(self, name: str, body: bytes) -> None:
        """Note whose jobs a segment holds, so that a bulk can be accounted for."""
        footer = decode_footer(body, name) if body[:4] == b"OSQB" else None
        if isinstance(footer, Footer):
            blocks = decode_blocks(body, footer.blocks[0].length, name)
            self.attached[name] = tuple(job.key for _, block in blocks for job in block.jobs)
        elif body[:4] == b"OSQX":
            self.attached[name] = sum(
                [self.attached.get(each.name, ()) for each in decode_index(body, name)], ()
            )

    # ── The archive ──────────────────────────────────────────────────────────
    def _part(self, key: str, body: bytes) -> None:
        """Invariant 10, first half: no part ever tells of what was not committed, or takes another's place."""
        on_time = key.startswith(hour_of(self.queue, self.truth.clock_ms()))
        self.late += not on_time
        told = {(UUID(each.job_id).bytes, each.run, each.state): each for each in decode_part(body, key)}
        records = set(told)
        before, self.parts[key] = self.parts.get(key, set()), records
        if lost := {each for each in before - records if each[0] not in self.purged}:
            raise Violation(f"invariant 10: {key} was written again, without {len(lost)} records")
        for record in records:
            if record not in self.finished:
                raise Violation(f"invariant 10: {key} archives {record[0].hex()}, which never {record[2]}")
            if on_time:
                self.written.add(record)
        payloads.check_records(self, told.items())
        check_hour(key, told.values(), self.truth.clock_ms())

    # ── The head ─────────────────────────────────────────────────────────────
    def _head(self, request: StoreRequest, body: bytes) -> None:
        if body == lives.DAMAGE:
            lives.lose(self, deleted=False)
            return
        there = self.state is not None and not self.missing
        if not isinstance(request, PutIfMatch if there else PutIfAbsent):
            raise Violation(f"invariant 1: the head was changed by {type(request).__name__}")
        self.judge(body)
        self.ledger.lost = self.missing = False

    def judge(self, body: bytes) -> None:
        """A new head became current."""
        ledger = self.ledger
        before, state = self.state, decode_head(body)
        if state.commit in ledger.repairs:
            lives.judge(self, before, state, body)
            return
        if self.missing:
            lives.begin(self)
            before = None
        batch = ledger.batches.get(state.commit)
        if batch is None or any(each.state.commit == state.commit for each in ledger.commits[-50:]):
            raise Violation("invariant 1: a head appeared that nobody reduced, or one came back")
        if batch.base.commit != (before.commit if before else b"\0" * 16):
            raise Violation("invariant 1: a commit was made on another head than the current one")
        if not body.endswith(encode(batch.reduction.state)):
            raise Violation("invariant 1: a head is not what was made under its commit's id")
        ledger.record(self.truth_now(), state)
        self._requests(batch)
        self.progress.commit(state, batch)
        self.leases.commit(before, state, batch, self.truth_now())
        if before is not None:
            self._monotone(before, state)
            releases.check(before, state)
            time_limits.check(before, state, batch, self.found)
            running_limits.check(before, state, batch)
            ageing.check(before, state, batch)
            if self.rows:
                self._sessions(before, state)
        self.starts.commit(before, state, batch)
        self.on_commit(self.shard, state, batch)
        self._sums(state)
        self._size(state, body)
        found = places(state, self.library)
        self._conservation(state, found)
        self._transitions(state, batch, found)
        self.flow.commit(self, before, state, batch, found)
        self._tables(before, state, batch, found)
        self._references(state, found)
        self._erased(state, found)
        self._tokens(before, state, batch)
        lanes = order.orders(state, self.library)
        order.check(self.lanes, lanes, batch.reduction.events)
        self.lanes = lanes
        self.found = found
        self.stories.commit(state, batch, self.leaves)
        self.restarts.commit(before, state, batch, found, self.stories.redriven | self.stories.passed)
        self.events.commit(before, state, batch)
        payloads.check_rows(self, before, state, self.leaves)
        for row in state.finished:
            self.finished.setdefault(record_of(row), row)
        empty_claims.check(self, state, found)

    def truth_now(self) -> float:
        return self.truth.seconds()

    def _requests(self, batch: RecordedReduction) -> None:
        """Invariant 2, and that nothing given up is applied after all."""
        ledger = self.ledger
        index = len(ledger.commits) - 1
        for request in batch.requests:
            outcomes = batch.reduction.outcomes.get(request.identity)
            if outcomes is None:
                continue
            who = request.identity
            if who in ledger.applied:
                raise Violation(f"invariant 2: {describe(request)} was applied twice")
            if who in ledger.never:
                raise Violation(f"{describe(request)} was applied, although {ledger.never[who]}")
            ledger.applied[who] = Applied(request, outcomes, index)
            for op, answer in zip(request.ops, outcomes, strict=True):
                if isinstance(op, AttachBulk) and answer.code == Code.QUEUED:
                    names = [span.name for part in op.parts for span in part.spans]
                    self.on_bulk(self.shard, {key for name in names for key in self.attached[name]})

    def _monotone(self, before: State, state: State) -> None:
        """Invariant 3."""
        if state.seq != before.seq + 1 or state.epoch != before.epoch:
            raise Violation(f"invariant 3: seq went from {before.seq} to {state.seq}")
        if state.settings.shards < before.settings.shards:
            raise Violation(f"invariant 3: the shards went back to {state.settings.shards}")
        for name in ("floor", "gc_floor", "now_ms"):
            if getattr(state, name) < getattr(before, name):
                raise Violation(f"invariant 3: {name} went back")
        for env, row in before.sessions.items():
            after = state.sessions.get(env)
            # One that this commit forgets may be a clone's that is behind, and begin again in the same commit.
            if after is not None and after.n < row.n and row.seq > state.floor:
                raise Violation(f"invariant 3: the session of {env} went back")
        if state.now_ms > max(self.truth.clock_ms() + CLOCK_SLACK_MS, before.now_ms):
            raise Violation(
                f"the head is {state.now_ms - self.truth.clock_ms()} ms ahead of the store's clock"
            )

    def _sessions(self, before: State, state: State) -> None:
        """Invariant 4: whatever a forgotten writer had applied lies below the floor."""
        for env in before.sessions.keys() - state.sessions.keys():
            row = before.sessions[env]
            if row.seq > state.floor:
                raise Violation(f"invariant 4: the row of {env} was dropped and the floor not raised past it")
            applied = self.ledger.applied.get((env, row.n, row.nonce))
            if applied is not None and applied.request.born >= state.floor:
                raise Violation(f"invariant 4: {describe(applied.request)} is above the floor and forgotten")

    def _sums(self, state: State) -> None:
        """The sums kept in the head are those of what it holds."""
        for lane in [*(lane.backlog for lane in state.lanes), state.dead]:
            same("ready_bytes", lane.ready_bytes, sum(map(job_weight, lane.ready)))
            same("tail_bytes", lane.tail_bytes, sum(map(job_weight, lane.tail)))
        same("leases_bytes", state.leases_bytes, sum(map(lease_weight, state.leases.values())))
        same("delayed.jobs_bytes", state.delayed.jobs_bytes, sum(map(job_weight, state.delayed.jobs)))
        same("finished_bytes", state.finished_bytes, sum(map(finished_weight, state.finished)))
        rows = sum(session_weight(env, row) for env, row in state.sessions.items())
        same("sessions_bytes", state.sessions_bytes, rows)
        if any(key != lease.job.key for key, lease in state.leases.items()):
            raise Violation("a lease stands under another job's key")

    def _size(self, state: State, body: bytes) -> None:
        """The head keeps to its budgets."""
        ready = sum(lane.backlog.ready_bytes for lane in state.lanes)
        tail = sum(lane.backlog.tail_bytes for lane in state.lanes)
        lanes = len(state.lanes)
        parts = {
            "ready": (ready, limits.READY_BYTES_MAX + lanes * SLACK_BYTES),
            "tail": (tail, limits.TAIL_BYTES_MAX),
            "leases": (state.leases_bytes, limits.LEASES_BYTES_MAX + SLACK_BYTES),
            "sessions": (state.sessions_bytes, limits.SESSIONS_BYTES_MAX + SLACK_BYTES),
            "delayed": (state.delayed.jobs_bytes, limits.DELAYED_BYTES_MAX + SLACK_BYTES),
            "dead": (state.dead.ready_bytes + state.dead.tail_bytes, limits.DEAD_BYTES_MAX + SLACK_BYTES),
            "finished": (state.finished_bytes, limits.FINISHED_BYTES_MAX + limits.LEASES_BYTES_MAX + 20_000),
        }
        for name, (size, budget) in parts.items():
            if size > budget:
                raise Violation(f"the head's {name} take {size} bytes; the budget is {budget}")
        if len(state.tombstones) > limits.TOMBSTONES_MAX:
            raise Violation("too many tombstones")
        if len(state.result_ttls) > limits.RESULT_TTLS_MAX:
            raise Violation(f"{len(state.result_ttls)} times to live")
        if len(state.tables) > TABLES_MAX * limits.FANOUT + STEPS_MAX:
            raise Violation(f"the head points to {len(state.tables)} tables")
        bound = sum(budget for _, budget in parts.values()) + len(list(spans_of(state))) * 200 + 2_500
        bound += len(state.tables) * 180 + len(state.result_ttls) * 30
        bound += sum(20 + 9 * len(each.marks) for each in state.refusals)
        if len(body) > bound:
            raise Violation(f"the head takes {len(body)} bytes, {bound} are the bound")

    def _conservation(self, state: State, found: dict[bytes, JobPlace]) -> None:
        """Invariant 6, the running sums: what came in is live or went out."""
        total = (keysum_of(found) + state.counters.keysum_out) & KEYSUM_MASK
        if total != state.counters.keysum_in:
            raise Violation("invariant 6: the sums over job keys do not balance")
        if over := [key for key in state.result_ttls if key not in found or found[key].state not in LIVE]:
            raise Violation(f"{len(over)} times to live are those of jobs that are over")

        told = {name: number for name, number in count_states(state).items() if name in ALIVE and number}
        if told != Counter(place.state for place in found.values() if place.state in ALIVE):
            raise Violation(f"the head says of its jobs that they are {told}")
        if state.delayed_tombstones.keys() - set(state.tombstones):
            raise Violation("the head says of which state jobs were that are not cancelled")

    def _references(self, state: State, found: dict[bytes, JobPlace]) -> None:
        """Invariant 8 for bodies; segments were read by ``places``, tables by ``_tables``."""
        rows = [row for leaf in self.leaves if leaf.table.bodies for row in leaf.rows]
        bodies = bodies_of((*state.finished, *rows), found, self.purged, state.schedules)
        for name in bodies - self.names:  # ``mourn`` guards the others
            if self.truth.read(self.root + name) is None:
                raise Violation(f"invariant 8: {name} is referenced and does not exist")
        spans = [span for lane in state.lanes for span in lane.backlog.spans]
        self.names = bodies | set(self.shelves.names(state.tables))
        self.names |= set(self.library.names((*spans, *state.delayed.spans, *state.dead.spans)))

    def _erased(self, state: State, found: dict[bytes, JobPlace]) -> None:
        """What a purge said that it erased stays away."""
        rows = [*state.finished, *(row for leaf in self.leaves for row in leaf.rows)] if self.erased else []
        if back := self.erased & (found.keys() | {row.key for row in rows}):
            raise Violation(f"{len(back)} purged jobs came back")

    def _tables(
        self, before: State | None, state: State, batch: RecordedReduction, found: dict[bytes, JobPlace]
    ) -> None:
        """A row leaves the head into a table as it is, and not before the commit after its job's end."""
        had = {tag(row): row for row in (before.finished if before else ())}
        fresh = {item.name for item in batch.reduction.objects}
        same_tables = before is not None and state.tables == before.tables  # ``mourn`` guards those
        leaves = self.leaves if same_tables else list(self.shelves.leaves(state.tables))
        moved = [row for leaf in leaves if leaf.table.name in fresh for row in leaf.rows]
        if hasty := [row for row in moved if tag(row) not in had]:
            raise Violation(f"{len(hasty)} jobs left the head in the commit that finished them")
        if any(not shelves.alike(row, had[tag(row)]) for row in moved):
            raise Violation("a row left the head in the commit that changed it")
        now = {tag(row): row for row in (*state.finished, *moved)}
        for each, row in had.items():
            if each not in now and row.key not in self.purged:
                raise Violation(f"{row.key.hex()}, {row.state}, left the head and is in no table")
            if each in now and not shelves.alike(now[each], row) and row.key not in _amended(batch):
                raise Violation(f"the record of {row.key.hex()} changed by itself")
        if self.found.keys() - found.keys() - {row.key for row in moved} - self.purged:
            raise Violation("jobs disappeared")
        if not same_tables:
            shelves.check(self.leaves, leaves, moved, self.ledger.latest_ms, self.written, self.purged)
        self.leaves = leaves

    def _transitions(self, state: State, batch: RecordedReduction, found: dict[bytes, JobPlace]) -> None:
        """Invariant 10, second half: the events of a commit are exactly what it changed, by allowed arrows."""
        current = {key: place.state for key, place in self.found.items()}
        for key, start in self._bulks(batch):  # a bulk's jobs come without events
            if key in current:
                raise Violation(f"{key.hex()} was attached and is {current[key]} already")
            self._accept(key)
            current[key] = start
        told = sum(event.count for event in batch.reduction.events if not event.key)
        if told != sum(1 for _ in self._bulks(batch)):
            raise Violation(f"bulks of {told} jobs were told of; others were attached")
        for event in filter(lambda each: each.key, batch.reduction.events):
            origin = current.get(event.key, "")
            if origin.startswith(FINISHED) or event.origin != origin:
                raise Violation(f"an event says {event.origin} → {event.target} of a job that is {origin!r}")
            if (event.origin, event.target, event.cause) not in MOVES:
                raise Violation(f"forbidden arrow: {event.origin} → {event.target} by {event.cause}")
            ends = self._note(event)
            current[event.key] = FINISHED + event.target if ends else event.target
        for key, place in found.items():
            if current.get(key) != place.state:
                raise Violation(f"{key.hex()} is {place.state}, its events say {current.get(key)}")
        if stray := [key for key in current if key not in found and key not in self.found]:
            raise Violation(f"{len(stray)} jobs came and went in one commit")
        for item in batch.reduction.objects:
            if self.truth.read(self.root + item.name) is None:
                raise Violation(f"invariant 8: {item.name} was to be written before this commit")

    def _note(self, event: Transition) -> bool:
        """Keep account of what came in and what ended; is the job over for good?"""
        if event.origin == "":
            self._accept(event.key)
        forgotten = event.origin == event.target == FAILED
        archived = not forgotten and event.cause != "replaced"
        if event.target in (COMPLETED, CANCELLED, FAILED) and archived:
            self.ended[(event.key, event.run, event.target)] += 1
        over = event.target in (COMPLETED, CANCELLED) or forgotten
        if over:
            self.over[event.key] += 1
        return over

    def _accept(self, key: bytes) -> None:
        if key in self.accepted:
            raise Violation(f"{key.hex()} was accepted a second time")
        self.accepted.add(key)

    def _bulks(self, batch: RecordedReduction) -> Iterator[tuple[bytes, str]]:
        """The jobs attached by a commit, and their first states."""
        for request in batch.requests:
            outcomes = batch.reduction.outcomes.get(request.identity, ())
            for op, answer in zip(request.ops, outcomes, strict=False):
                if not isinstance(op, AttachSpans | AttachBulk) or answer.code not in (
                    Code.QUEUED,
                    Code.SCHEDULED,
                ):
                    continue
                for part in op.parts if isinstance(op, AttachBulk) else (op,):
                    for span in part.spans:
                        for key in self.attached[span.name]:
                            yield key, SCHEDULED if part.delayed else QUEUED

    def _tokens(self, before: State | None, state: State, batch: RecordedReduction) -> None:
        """Invariant 7: only the newest token acts; no token is granted twice."""
        held = {key: lease.token for key, lease in before.leases.items()} if before else {}
        done = {(row.job.key, row.token) for row in state.finished}
        done |= {(row.job.key, row.token) for row in before.finished} if before else set()
        for request in batch.requests:
            outcomes = batch.reduction.outcomes.get(request.identity)
            for op, answer in zip(request.ops, outcomes or (), strict=False):
                if isinstance(op, ClaimJobs):
                    for lease in answer.leases:
                        if lease.token in self.tokens:
                            raise Violation(
                                f"invariant 7: the token of {lease.job.key.hex()} was used before"
                            )
                        self.tokens.add(lease.token)
                        if (lease.job.key, lease.job.run) in self.runs:
                            raise Violation(
                                f"run {lease.job.run} of {lease.job.key.hex()} was granted before"
                            )
                        self.runs.add((lease.job.key, lease.job.run))
                items: tuple[LeaseRef | Completion | FailedAttempt, ...] = ()
                if isinstance(op, CompleteJobs | FailJobs):
                    items = op.items
                elif isinstance(op, ExtendLeases | ReleaseJobs | AbortJobs):
                    items = op.held
                for item, code in zip(items, answer.codes, strict=False):
                    if code in (Code.LEASE_LOST, Code.STALE):
                        continue
                    again = isinstance(op, CompleteJobs) and (item.key, item.token) in done
                    if held.get(item.key) != item.token and not again:
                        raise Violation(f"invariant 7: {type(op).__name__} acted with an old token")
        live = [lease.token for lease in state.leases.values()]
        if len(set(live)) != len(live):
            raise Violation("invariant 7: two leases share a token")


def tag(row: FinishedJob) -> tuple[bytes, int, str, int]:
    """What tells a row from all others of one head."""
    return (*record_of(row), row.mark)


def _amended(batch: RecordedReduction) -> Iterator[bytes]:
    for request in batch.requests:
        outcomes = batch.reduction.outcomes.get(request.identity, ())
        for op, answer in zip(request.ops, outcomes, strict=False):
            if isinstance(op, SetResultTtl) and answer.code == Code.OK:
                yield op.key


def same(name: str, kept: int, true: int) -> None:
    """A sum kept in the head must be the true one."""
    if kept != true:
        raise Violation(f"{name} says {kept}; the rows sum up to {true}")
