"""Tables of finished jobs: what is written is found, the newest version is right, few are left, a row stays cheap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from osqueue import Damaged, NewerFormat, NotFound, limits
from osqueue.commit.effects import All
from osqueue.core import tables
from osqueue.core.encoding import Footer, decode_footer
from osqueue.core.job_ops import (
    AbortJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    LeaseRef,
    SetResultTtl,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import MergeTables, RunTimers
from osqueue.core.rows import BodyRef
from osqueue.core.state import (
    ARCHIVE_ONLY,
    CANCELLED,
    COMPLETED,
    ENDED,
    EXPIRED_DEAD,
    FAILED,
    UPDATED,
    FinishedJob,
    JobRecord,
    TableRef,
)
from osqueue.core.tables import (
    decode_rows,
    decode_table_index,
    encode_table,
    encode_table_index,
    fold,
    merge_rows,
    to_archive,
    to_merge,
)
from osqueue.objects import finished_tables
from osqueue.stores.base import Get
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited

NOW = 1_800_000_000_000


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def row(number: int, **fields: Any) -> FinishedJob:
    job = JobRecord(key(number), b"", NOW, client_id=fields.pop("client_id", None))
    return FinishedJob(job, fields.pop("state", COMPLETED), NOW, **{"expires_ms": NOW + 1_000, **fields})


class Shelf:
    """Tables in a store, read as the library reads them, every read counted."""

    def __init__(self, machine: Any) -> None:
        self.store = MemoryStore(machine)
        self.tables: list[TableRef] = []
        self.reads: list[Get] = []
        self._names = 0

    def write(self, encode: Callable[[str], tuple[bytes, TableRef]]) -> TableRef:
        self._names += 1
        name = f"finished/{self._names:012x}-aa-0"
        data, table = encode(name)
        self.store._write("root/" + name, data)
        return table

    def add(self, rows: Sequence[FinishedJob], archived: bool = False) -> TableRef:
        self.tables.append(
            self.write(partial(encode_table, sorted(rows, key=lambda each: each.key), archived))
        )
        return self.tables[-1]

    def fold(self) -> bool:
        return fold(self.tables, lambda folder, encode: self.write(encode))

    def run(self, flow: Any) -> Any:
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            requests = effect.requests if isinstance(effect, All) else (effect,)
            self.reads.extend(requests)
            replies = tuple(map(self.store.perform, requests))
            reply = replies if isinstance(effect, All) else replies[0]

    def find(self, number: int) -> Any:
        """The newest row of a key."""
        self.reads.clear()
        kept = self.run(finished_tables.find("root/", self.tables, key(number)))
        return None if kept is None else kept.row


@pytest.fixture
def shelf(machine: Any) -> Shelf:
    return Shelf(machine)


# ── One table ────────────────────────────────────────────────────────────────
FULL = row(
    3,
    token="t",
    result=BodyRef("bodies/1-aa-0", 5, 7, 9),
    payload_bytes=77,
    why="because",
    kept_ms=NOW + 9_999,
    codec="msgpack",
    mark=UPDATED,
    client_id="größe",
)


def test_a_table_survives_the_round_trip() -> None:
    rows = [row(1, result=b"r"), row(2, state=CANCELLED, mark=EXPIRED_DEAD), FULL]
    data, table = encode_table(rows, True, "finished/x")
    footer = decode_footer(data, "x")
    assert isinstance(footer, Footer)
    assert list(decode_rows(data, footer.blocks[0].length, "x")) == rows
    assert footer.bodies == ("bodies/1-aa-0",)
    assert table == TableRef(
        "finished/x",
        0,
        3,
        len(data),
        key(1),
        key(3),
        until_ms=NOW + 9_999 + limits.EXPIRED_KNOWN_MS,
        half_expired_ms=NOW + 1_000 + limits.EXPIRED_KNOWN_MS,
        named=1,
        bodies=True,
        archived=True,
        updated_rows=1,
    )


def test_a_table_tells_of_payloads_that_the_archive_is_to_get() -> None:
    kept = row(1, payload=BodyRef("bodies/0-aa-0", 0, 70, 9), result=b"1234")
    data, table = encode_table([kept, row(2, payload=b"12"), row(3, result=b"123")], False, "t")
    footer = decode_footer(data, "t")
    assert isinstance(footer, Footer)
    assert footer.bodies == ("bodies/0-aa-0",)
    assert next(decode_rows(data, footer.blocks[0].length, "t")) == kept
    assert (table.bodies, table.archive_bytes) == (True, 70 + 4 + 2)
    assert encode_table_index([table, table], "i")[1].archive_bytes == 2 * 76


def test_an_index_survives_the_round_trip() -> None:
    one = encode_table([row(1), row(9, client_id="a")], True, "a")[1]
    two = encode_table([FULL], False, "b")[1]
    data, index = encode_table_index([one, two], "i")
    assert decode_table_index(data, "i") == (one, two)
    assert (index.level, index.count, index.first, index.last) == (1, 3, key(1), key(9))
    assert (index.named, index.bodies, index.archived, index.size) == (2, True, False, len(data))
    assert (index.until_ms, index.half_expired_ms) == (
        two.until_ms,
        max(one.half_expired_ms, two.half_expired_ms),
    )
    assert encode_table_index([index, one], "j")[1].level == 2


def test_damage_and_newer_formats_are_told() -> None:
    data, table = encode_table([row(1), row(2)], False, "t")
    length = decode_footer(data, "t").blocks[0].length  # type: ignore[union-attr]
    for at in (0, 5, 20, length - 1):
        with pytest.raises((Damaged, NewerFormat)):
            list(decode_rows(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], length, "t"))
    with pytest.raises(NewerFormat):
        list(decode_rows(bytes([*data[:4], 0, 9, *data[6:]]), length, "t"))
    with pytest.raises(Damaged):
        decode_table_index(data, "t")
    index = encode_table_index([table], "i")[0]
    with pytest.raises(Damaged):
        list(decode_rows(index, len(index), "i"))
    with pytest.raises(Damaged):
        decode_table_index(index[:-1], "i")


def test_a_small_table_is_one_read_a_large_one_two(shelf: Shelf) -> None:
    shelf.add([row(at) for at in range(50)])
    assert shelf.find(17) == row(17)
    assert len(shelf.reads) == 1
    shelf.tables.clear()
    table = shelf.add([row(2 * at) for at in range(10_000)])
    assert table.size > 20 * limits.BLOCK_BYTES_MAX
    for number in (0, 2, 9_998, 18_000):
        assert shelf.find(number) == row(number)
        assert len(shelf.reads) == 2
        assert shelf.reads[1].length < 2 * limits.BLOCK_BYTES_MAX  # type: ignore[operator]
    assert shelf.find(9_999) is None
    assert shelf.find(20_000) is None
    assert shelf.reads == []


def test_a_footer_larger_than_was_guessed_is_read_again_whole(shelf: Shelf) -> None:
    with limited({"BLOCK_BYTES_MAX": 200}):
        table = shelf.add([row(at) for at in range(3_000)])
    for number in (0, 1_500, 2_999):
        assert shelf.find(number) == row(number)
        assert len(shelf.reads) == 3
    assert len(shelf.run(finished_tables.rows("root/", table))) == 3_000


def test_a_table_that_is_gone_or_cut_short_is_told(shelf: Shelf) -> None:
    table = shelf.add([row(at) for at in range(10)])
    good = shelf.store.get(Get("root/" + table.name)).body  # type: ignore[union-attr]
    shelf.store._write("root/" + table.name, good[:-1])
    with pytest.raises(Damaged):
        shelf.find(3)
    with pytest.raises(Damaged):
        shelf.run(finished_tables.rows("root/", table))
    shelf.store._remove("root/" + table.name)
    with pytest.raises(NotFound):
        shelf.find(3)


def test_all_objects_below_some_pointers_are_named(shelf: Shelf) -> None:
    for at in range(2 * limits.FANOUT):
        shelf.add([row(at, result=BodyRef(f"bodies/{at}", 0, 1, 1))])
    leaves = {table.name for table in shelf.tables}
    assert shelf.fold()
    found = shelf.run(finished_tables.pointers("root/", shelf.tables))
    assert {table.name for table in found} == leaves | {table.name for table in shelf.tables}
    bodies = [shelf.run(finished_tables.bodies_of("root/", each)) for each in found if not each.level]
    assert bodies == [(f"bodies/{at}",) for at in range(2 * limits.FANOUT)]
    assert [leaf.name for leaf in shelf.run(finished_tables.leaves("root/", shelf.tables))] == sorted(leaves)


# ── Several ──────────────────────────────────────────────────────────────────
def test_only_tables_that_may_know_a_key_are_read_the_newest_first(shelf: Shelf) -> None:
    old = shelf.add([row(1), row(5, why="old"), row(9)])
    shelf.add([row(20), row(30)])
    shelf.add([row(4), row(5, why="new"), row(6)])
    assert shelf.find(5).why == "new"
    assert shelf.find(9) == row(9)
    assert [read.key for read in shelf.reads] == ["root/" + old.name]
    assert shelf.find(10) is None


def test_an_echo_is_nobodys_row(shelf: Shelf) -> None:
    shelf.add([row(1), row(2, state=FAILED, mark=ARCHIVE_ONLY)])
    assert shelf.find(2) is None
    shelf.add([row(2, why="redriven")])
    shelf.add([row(2, state=FAILED, mark=ARCHIVE_ONLY)])
    assert shelf.find(2).why == "redriven"


def test_of_several_versions_of_a_row_the_newest_is_kept() -> None:
    runs = [
        [row(1), row(2, why="old"), row(4, mark=ARCHIVE_ONLY)],
        [row(2, why="middle"), row(3)],
        [row(2, why="new"), row(3, mark=ARCHIVE_ONLY), row(5)],
    ]
    assert list(merge_rows(runs)) == [row(1), row(2, why="new"), row(3), row(5)]
    assert list(merge_rows([[row(1, mark=ARCHIVE_ONLY)]])) == []
    assert list(merge_rows([])) == []


def test_sixteen_neighbours_of_a_kind_become_an_index_and_the_sixteen_newest_stay(shelf: Shelf) -> None:
    for at in range(2 * limits.FANOUT - 1):
        shelf.add([row(at)])
        assert not shelf.fold()
    shelf.add([row(99)])
    newest = shelf.tables[limits.FANOUT :]
    assert shelf.fold()
    assert [table.level for table in shelf.tables] == [1] + [0] * limits.FANOUT
    assert shelf.tables[1:] == newest
    assert all(shelf.find(at) == row(at) for at in [*range(2 * limits.FANOUT - 1), 99])


def test_archived_and_other_tables_share_no_index(shelf: Shelf) -> None:
    for at in range(limits.FANOUT - 1):
        shelf.add([row(at)], archived=True)
    for at in range(2 * limits.FANOUT - 1):
        shelf.add([row(at)])
        assert not shelf.fold()
    shelf.add([row(99)])
    assert shelf.fold()
    kinds = [(table.level, table.archived) for table in shelf.tables]
    assert kinds == [(0, True)] * (limits.FANOUT - 1) + [(1, False)] + [(0, False)] * limits.FANOUT


def test_without_reaps_the_pointers_stay_few_and_every_row_is_found(shelf: Shelf) -> None:
    with limited({"FANOUT": 4}):
        for at in range(700):
            shelf.add([row(at, why="first"), row(at // 2, why=f"by {at}")] if at % 2 else [row(at)])
            shelf.fold()
            assert len(shelf.tables) <= 5 * (2 + math.log(at + 1, 4))
    assert max(table.level for table in shelf.tables) >= 4
    assert shelf.find(699).why == "first"
    assert shelf.find(3).why == "by 7"
    assert shelf.find(2).why == "by 5"


# ── Plans ────────────────────────────────────────────────────────────────────
def plain(size: int, archived: bool = True, level: int = 0, count: int = 1) -> TableRef:
    return TableRef("t", level, count, size, key(1), key(2), 0, 0, archived=archived)


def test_the_archive_gets_the_oldest_neighbours_it_lacks_as_many_as_fit() -> None:
    done, small, large = plain(10), plain(1_000, False), plain(limits.TABLE_BYTES_MAX, False)
    assert to_archive([]) == ()
    assert to_archive([done, done]) == ()
    assert to_archive([done, small, small]) == (small, small)
    assert to_archive([done, small, large, small]) == (small,)
    assert to_archive([large, small]) == (large,)
    assert to_archive([small, done, small]) == (small,)
    many = replace(large, level=1, size=10, count=limits.TABLE_BYTES_MAX)
    assert to_archive([small, many]) == (small,)
    assert to_archive([small, replace(small, archive_bytes=limits.TABLE_BYTES_MAX)]) == (small,)


def test_tables_of_like_size_are_merged_from_the_youngest_on() -> None:
    one, two, four, ten = (plain(size * 1_000) for size in (1, 2, 4, 10))
    assert to_merge([]) == to_merge([one]) == ()
    assert to_merge([one, one]) == (one, one)
    assert to_merge([four, two, one]) == (four, two, one)
    assert to_merge([ten, one]) == ()
    assert to_merge([ten, one, one]) == (one, one)
    assert to_merge([ten, one, one, plain(1_000, False)]) == (one, one)
    assert to_merge([ten, four, two]) == (ten, four, two)
    full = plain(limits.TABLE_BYTES_MAX)
    assert to_merge([full, full]) == ()
    assert to_merge([plain(limits.TABLE_BYTES_MAX - 2_000), one]) == ()


@pytest.mark.parametrize("sizes", ["alike", "mixed"])
def test_a_row_is_rewritten_about_log_n_times_and_about_log_n_tables_are_left(sizes: str) -> None:
    """Counted in rows of 150 bytes: what merging writes over n shelves, and what it leaves after each."""
    for shelves in (100, 1_000, 4_000):
        held: list[TableRef] = []
        total = rewritten = 0
        for at in range(shelves):
            size = 150 if sizes == "alike" else 150 * (1 + at * 7919 % 13)
            held.append(plain(size))
            total += size
            while taken := to_merge(held):
                del held[-len(taken) :]
                held.append(plain(sum(each.size for each in taken)))
                rewritten += held[-1].size
            assert len(held) <= 1 + math.log2(total / 150)
        assert rewritten <= 2 * total * math.log2(shelves)
        assert sum(each.size for each in held) == total


# ── Any sequence ─────────────────────────────────────────────────────────────
TIGHT = {"FINISHED_BYTES_MAX": 1_200, "FANOUT": 3, "BLOCK_BYTES_MAX": 400, "DEAD_BYTES_MAX": 700}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["complete", "cancel", "fail", "flush", "archive", "merge", "amend"]),
        st.integers(0, 10**6),
    ),
    min_size=5,
    max_size=60,
)


class Story:
    """A shard whose finished jobs are shelved, archived, merged and changed; every read through the library."""

    def __init__(self, shard: Any) -> None:
        self.shard = shard
        self.state: dict[bytes, str] = {}  # of every job that is over
        self.ttls: dict[bytes, int] = {}  # when each result expires
        self.told: list[tuple[bytes, int]] = []  # records written

    def end(self, how: str, count: int) -> None:
        shard = self.shard
        shard.apply(EnqueueJobs(tuple(shard.new(max_attempts=1) for _ in range(count))))
        leases = shard.claim(count)
        if how == "complete":
            shard.apply(CompleteJobs(tuple(Completion(x.job.key, x.token, b"r" * 20) for x in leases)))
        elif how == "cancel":
            shard.apply(AbortJobs(tuple(LeaseRef(x.job.key, x.token) for x in leases)))
        else:
            shard.apply(FailJobs(tuple(FailedAttempt(x.job.key, x.token, "no", final=True) for x in leases)))
        for lease in leases:
            if how != "fail":
                self.state[lease.job.key] = COMPLETED if how == "complete" else CANCELLED
                self.ttls[lease.job.key] = shard.now + lease.job.result_ttl_ms

    def look(self, wanted: bytes) -> tuple[FinishedJob | None, str]:
        """The row of a key as the library would find it, and the outermost table it lies in."""
        for row in self.shard.state.finished:
            if row.key == wanted and row.mark != ARCHIVE_ONLY:
                return row, ""
        kept = self.run(finished_tables.find("", self.shard.state.tables, wanted))
        return (None, "") if kept is None else (kept.row, kept.top.name)

    def run(self, flow: Any) -> Any:
        reply: Any = None
        objects = self.shard.objects
        store = MemoryStore()
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            requests = effect.requests if isinstance(effect, All) else (effect,)
            for request in requests:
                if request.key in objects:
                    store._write(request.key, objects[request.key])
            replies = tuple(map(store.perform, requests))
            reply = replies if isinstance(effect, All) else replies[0]

    def amend(self, who: int) -> None:
        if self.state:
            wanted = sorted(self.state)[who % len(self.state)]
            row, table = self.look(wanted)
            ttl = 1_000 + who
            seen = self.shard.state.seq
            op = SetResultTtl(wanted, ttl, row, table, seen=seen) if table else SetResultTtl(wanted, ttl)
            assert self.shard.apply(op)[0].code == Code.OK
            self.ttls[wanted] = self.shard.now + ttl

    def exchange(self, taken: tuple[TableRef, ...]) -> None:
        """What the reaper does with tables, without forgetting anything."""
        if not taken:
            return
        shard = self.shard
        leaves = self.run(finished_tables.leaves("", taken))
        runs = [self.run(finished_tables.rows("", leaf)) for leaf in leaves]
        if not taken[0].archived:
            self.told += [
                (row.key, row.job.run) for run in runs for row in run if row.mark in (ENDED, ARCHIVE_ONLY)
            ]
        rows, put = list(merge_rows(runs)), ()
        if rows:
            name = f"finished/{shard.state.seq:012x}-bb-{len(shard.objects)}"
            shard.objects[name], table = encode_table(rows, True, name)
            put = (table,)
        below = [each.name for each in self.run(finished_tables.pointers("", taken))]
        assert shard.apply(MergeTables(taken, put, len(rows)))[0].code == Code.OK
        for gone in below:  # nothing may refer to them any more
            del shard.objects[gone]


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, seed=st.integers(0, 1_000))
def test_every_row_is_found_whatever_happens_to_the_tables(
    new_shard: Callable[..., Any], steps: list[tuple[str, int]], seed: int
) -> None:
    with limited(TIGHT):
        story = Story(new_shard(seed=seed))  # checks its sums and every table after every commit
        for what, who in [*steps, ("flush", 0)]:
            if what in ("complete", "cancel", "fail"):
                story.end(what, 1 + who % 8)
            elif what == "flush":
                story.shard.apply(RunTimers(flush=True))
            elif what == "amend":
                story.amend(who)
            else:
                plan = tables.to_archive if what == "archive" else tables.to_merge
                story.exchange(plan(story.shard.state.tables))
            for wanted, state in story.state.items():
                row, _ = story.look(wanted)
                assert row is not None
                assert (row.state, row.expires_ms) == (state, story.ttls[wanted])
        while taken := to_archive(story.shard.state.tables):
            story.exchange(taken)
        ended = story.shard.state.counters
        assert len(story.told) == len(set(story.told)) == ended.completed + ended.cancelled + ended.failed


def test_a_table_is_taken_from_a_commit_before_the_one_that_shelves_it(shard: Any) -> None:
    """Whoever finished a job finds it in the head for at least one commit."""
    shard.enqueue(2)
    leases = shard.claim(2)
    ends = CompleteJobs(tuple(Completion(lease.job.key, lease.token) for lease in leases))
    shard.apply(ends, RunTimers(flush=True))
    assert len(shard.state.finished) == 2
    shard.apply(RunTimers(flush=True))
    assert (shard.state.finished, [table.count for table in shard.state.tables]) == ((), [2])


def test_an_exchange_of_tables_that_have_moved_is_refused(shard: Any) -> None:
    for _ in range(2):
        shard.enqueue()
        (lease,) = shard.claim()
        shard.apply(CompleteJobs((Completion(lease.job.key, lease.token),)))
        shard.apply(RunTimers(flush=True))
    one, two = shard.state.tables
    data, both = encode_table(
        [*shard.rows(one), *shard.rows(two)], True, f"finished/{shard.state.seq:012x}-bb-0"
    )
    shard.objects[both.name] = data
    for taken in ((two, one), (replace(one, archived=True),), (both,), (one, both), ()):
        assert shard.apply(MergeTables(taken, (both,), 2))[0].code == Code.RETRY
    assert shard.apply(MergeTables((one, two), (both,), 2))[0].code == Code.OK
    assert shard.state.tables == (both,)
    assert shard.state.counters.archived == 2
    assert shard.apply(MergeTables((one, two), (both,), 2))[0].code == Code.RETRY
    assert shard.state.counters.archived == 2
