"""Did a bulk of many tasks come in as a whole, once, and was its writer told the truth?

A *load* is what one run of a batch staged and means to attach; what its failed tasks staged is no part of it. Whatever
a commit attaches has to be all that one load has for that shard, of a load whose run had come to its commit. Of all
loads of one batch it is one that comes in, whichever run sees to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from osqueue.bulk.receipts import FOLDER, KEPT_MS, MAGIC, BulkReceipt
from osqueue.bulk.writer import BulkResult
from osqueue.core.encoding import unframe
from osqueue.core.job_ops import AttachBulk
from osqueue.errors import OsqueueError, Throttled, Timeout, Unavailable, Unknown
from osqueue.stores.base import StoreRequest

from .ledger import Violation
from .truth import Truth

STAGING, ATTACHING, IN, OUT = "staging", "attaching", "in", "out"
_PERHAPS = ("may or may not be in the queue", "did not take their part")
_LOST = "is gone"  # what was staged for some shards, when the others have their parts


class BulkLoad(Struct, eq=False):
    """What one run of a batch staged."""

    run: str  # who
    batch_id: str | None
    keys: dict[int, set[bytes]]  # by shard
    joined: set[int]  # the shards that have their part
    fate: str = STAGING  # IN: somebody was told that it is; OUT: that it is not and never will be
    forgotten: bool = False  # the batch's id is that of another batch by now

    @property
    def jobs(self) -> int:
        """How many it has."""
        return sum(map(len, self.keys.values()))

    @property
    def whole(self) -> bool:
        """Have all shards their parts?"""
        return self.joined == self.keys.keys()


class BulkLoads:
    """Every load of a run, and what became of it."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.all: list[BulkLoad] = []
        self.names: list[str] = []  # every batch's id
        self.told: Counter[str] = Counter()  # how runs ended
        self.excused: set[str | None] = {
            None
        }  # batches that nobody can finish any more, by what their runs were told
        self._of: dict[bytes, BulkLoad] = {}  # by the key of a job
        self._decided: dict[
            str, BulkLoad | None
        ] = {}  # by place: what a batch is; None: it is written down no more
        self._written: dict[str, float] = {}  # by place: when it was, in seconds of virtual time
        truth.watchers.append(self._watch)
        truth.mourners.append(self._mourn)

    # ── What happened ────────────────────────────────────────────────────────
    def begin(self, run: str, batch_id: str | None) -> BulkLoad:
        """A run is about to stage."""
        self.all.append(BulkLoad(run, batch_id, {}, set()))
        return self.all[-1]

    def count(self, load: BulkLoad, shard: int, keys: Sequence[bytes]) -> None:
        """A task is done, and what it staged counts."""
        load.keys.setdefault(shard, set()).update(keys)
        self._of.update((key, load) for key in keys)

    def join(self, shard: int, keys: set[bytes]) -> None:
        """A commit attached these jobs."""
        load = self._of.get(min(keys))
        if load is None or load.keys.get(shard) != keys:
            of = "a failed task" if load is None else f"{len(load.keys.get(shard, ()))} of {load.run}"
            raise Violation(
                f"{len(keys)} jobs joined shard {shard} as a bulk, which is not the whole of {of}"
            )
        if load.fate in (STAGING, OUT):
            raise Violation(f"a bulk joined whose run was {load.fate}")
        if shard in load.joined or any(each is not load for each in self._in(load.batch_id)):
            raise Violation(f"batch {load.batch_id} joined shard {shard} a second time")
        load.joined.add(shard)

    def _in(self, batch_id: str | None) -> list[BulkLoad]:
        """The loads of a batch that have joined, somewhere."""
        known = [each for each in self.all if each.joined and not each.forgotten]
        return [each for each in known if None is not each.batch_id == batch_id]

    def _watch(self, request: StoreRequest, key: str, body: bytes) -> None:
        """A batch was written down, or that it is done."""
        if not key.startswith(FOLDER):
            return
        requests = _decoded(body, key).requests
        self._written[key] = self.truth.seconds()
        if not requests:
            load = self._decided[key]
            if load is None or not load.whole:
                raise Violation(f"{key} says that a batch is done, and it is not")
            return
        (op,) = requests[0][1].ops
        assert isinstance(op, AttachBulk)
        self._decided[key] = self._of[op.parts[0].spans[0].first]

    def _mourn(self, key: str) -> None:
        """A batch is written down no more, so that the next run begins anew: nothing of it may be there, or come.

        Unless that was long ago.
        """
        if not key.startswith(FOLDER):
            return
        load, self._decided[key] = self._decided[key], None
        if load is not None and self.truth.seconds() - self._written[key] >= KEPT_MS / 1000:
            load.forgotten = True
        elif load is not None:
            self.out(load)

    # ── What was told ────────────────────────────────────────────────────────
    def attached(self, load: BulkLoad, done: BulkResult) -> None:
        """A run was told that the batch is in."""
        self.told["repeated" if done.repeated else "attached"] += 1
        (found,) = self._in(load.batch_id) or [load] if done.repeated else [load]
        if not found.whole or done.jobs != found.jobs:
            raise Violation(f"{load.run} was told that {done.jobs} jobs are in; it is not so")
        found.fate = IN

    def failed(self, load: BulkLoad, error: OsqueueError) -> None:
        """A run was told of an error."""
        self.told[type(error).__name__] += 1
        if isinstance(error, Unknown) or _LOST in error.message:
            self.excused.add(load.batch_id)
        if isinstance(error, Timeout | Unavailable):
            return
        if not isinstance(error, Throttled):
            raise Violation(f"{load.run} was told {type(error).__name__}: {error}")
        if load.batch_id is None and not any(each in error.message for each in _PERHAPS):
            self.out(load)

    def give_up(self, load: BulkLoad) -> None:
        """A driver gives up before it attaches anything."""
        self.told["given up"] += 1
        self.out(load)

    def out(self, load: BulkLoad) -> None:
        """Nothing of a load is visible, and nothing ever will be."""
        if load.joined:
            raise Violation(
                f"{load.run}'s bulk ended as if it had never been, and {load.joined} have their parts"
            )
        load.fate = OUT

    # ── In the end ───────────────────────────────────────────────────────────
    def open(self) -> list[str]:
        """The ids of batches that are decided, not done, and can be finished."""
        found = []
        for place, load in self._decided.items():
            body = self.truth.read(place)
            if body is None or load is None or load.batch_id is None or load.batch_id in self.excused:
                continue
            if _decoded(body, place).requests:
                found.append(load.batch_id)
        return found

    def account(self) -> tuple[set[bytes], set[bytes], set[bytes]]:
        """The keys of jobs of loads that are in, that are not, and that may be. Raises for one that is half in."""
        sums: tuple[set[bytes], set[bytes], set[bytes]] = (set(), set(), set())
        for load in self.all:
            if load.joined and not load.whole and load.batch_id not in self.excused:
                raise Violation(f"batch {load.batch_id} of {load.run} has come in at {load.joined} only")
            at = {IN: 0, ATTACHING: 2}.get(load.fate, 1)
            for keys in load.keys.values():
                sums[at].update(keys)
        return sums


def _decoded(body: bytes, key: str) -> BulkReceipt:
    return msgspec.msgpack.decode(unframe(MAGIC, body, key), type=BulkReceipt)
