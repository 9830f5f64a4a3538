"""The files of tables: what is in one, and that it is replaced by one conditional write or left alone."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osqueue.clock import MACHINE
from osqueue.commit.effects import All
from osqueue.errors import Damaged, Unavailable
from osqueue.pipeline import files
from osqueue.pipeline.files import RetryingDriver, TableFileWriter, Unsettled
from osqueue.stores.base import (
    Delete,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Store,
    StoreReply,
    StoreRequest,
)
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

KEY = "jobs/queue=emails/date=2026-01-05/rows.parquet"
SCHEMA = pa.schema(
    [("id", pa.string()), ("kind", pa.string()), ("leases", pa.list_(pa.struct([("run", pa.int64())])))]
)


def rows(*numbers: int) -> pa.Table:
    columns = [
        [f"{each}" for each in numbers],
        ["mail"] * len(numbers),
        [[{"run": each}] for each in numbers],
    ]
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def file(*parts: pa.Table, spread: tuple[str, ...] = ()) -> bytes | None:
    draft = TableFileWriter(SCHEMA, spread)
    for each in parts:
        draft.add(each)
    return draft.finish()


# ── What is in one ───────────────────────────────────────────────────────────
def test_a_file_holds_the_rows_in_the_order_in_which_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 3)
    body = file(rows(5, 1), rows(2), rows(), rows(9, 8, 7, 6), rows(3))
    assert body is not None
    assert pq.read_table(io.BytesIO(body))["id"].to_pylist() == [*"51298763"]
    told = pq.ParquetFile(io.BytesIO(body)).metadata
    assert [told.row_group(at).num_rows for at in range(told.num_row_groups)] == [3, 3, 2]
    assert {told.row_group(0).column(at).compression for at in range(3)} == {"ZSTD"}


def test_the_same_rows_make_the_same_bytes_however_they_came() -> None:
    assert file(rows(1, 2), rows(3)) == file(rows(1), rows(2, 3)) != file(rows(3), rows(1, 2))


def test_a_file_without_rows_is_none() -> None:
    assert file() is file(rows()) is None


def test_columns_that_hardly_repeat_have_no_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SMALL_ROWS", 1)
    body = file(rows(1, 2, 3), spread=("id", "leases.list.element.run"))
    told = pq.ParquetFile(io.BytesIO(body or b"")).metadata.row_group(0)
    columns = {told.column(at).path_in_schema: told.column(at).has_dictionary_page for at in range(3)}
    assert columns == {"id": False, "kind": True, "leases.list.element.run": False}


@pytest.mark.parametrize(("number", "has"), [(files.SMALL_ROWS - 1, False), (files.SMALL_ROWS, True)])
def test_a_file_of_few_rows_has_neither_dictionaries_nor_statistics(number: int, has: bool) -> None:
    body = file(rows(*range(number)))
    told = pq.ParquetFile(io.BytesIO(body or b"")).metadata.row_group(0).column(1)
    assert (told.has_dictionary_page, told.is_stats_set) == (has, has)


def test_some_columns_of_the_files_that_are_there_are_read() -> None:
    store = MemoryStore()
    store.put(Put(KEY, file(rows(1, 2)) or b""))
    found = RetryingDriver(store, MACHINE).run(files.columns([f"{KEY}-gone", KEY], ["id"]))
    assert {key: rows.to_pydict() for key, rows in found.items()} == {KEY: {"id": ["1", "2"]}}
    with pytest.raises(Damaged, match=r"rows\.parquet has no column hour\. Delete it"):
        RetryingDriver(store, MACHINE).run(files.columns([KEY], ["id", "hour"]))


# ── Replacing it ─────────────────────────────────────────────────────────────
class Scripted(WrappedStore):
    """Does something else in the place of the next requests, or before them."""

    def __init__(self, *acts: Callable[[Store, StoreRequest], StoreReply | None]) -> None:
        super().__init__(MemoryStore())
        self.acts = list(acts)
        self.asked: list[type] = []

    def perform(self, request: StoreRequest) -> StoreReply:
        self.asked.append(type(request))
        act = self.acts.pop(0) if self.acts else None
        reply = act(self.inner, request) if act else None
        return reply if reply is not None else self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PAUSES_SECONDS", (0, 0, 0))


def held(store: Store) -> bytes | None:
    found = store.get(Get(KEY))
    return found.body if isinstance(found, Found) else None


def replace(store: Store, body: bytes | None) -> None:
    RetryingDriver(store, MACHINE).run(files.replace(KEY, body))


@pytest.mark.parametrize(
    ("before", "after", "requests"),
    [
        (None, b"new", [Get, PutIfAbsent]),
        (b"old", b"new", [Get, PutIfMatch]),
        (b"old", b"old", [Get]),
        (b"old", None, [Get, DeleteIfMatch]),
        (None, None, [Get]),
    ],
    ids=["created", "exchanged", "left alone", "removed", "not there anyway"],
)
def test_a_file_is_written_only_where_it_says_something_else(
    before: bytes | None, after: bytes | None, requests: list[type]
) -> None:
    store = Scripted()
    if before is not None:
        store.inner.perform(Put(KEY, before))
    replace(store, after)
    assert held(store.inner) == after
    assert store.asked == requests


def fails(_: Store, __: StoreRequest) -> StoreReply:
    return Failed(Unavailable("no answer"))


def loses_the_reply(store: Store, request: StoreRequest) -> StoreReply:
    store.perform(request)
    return Failed(Unavailable("no answer"))


def nothing(_: Store, __: StoreRequest) -> None:
    """Nothing happens meanwhile."""


@pytest.mark.parametrize("before", [None, b"old"])
@pytest.mark.parametrize("after", [b"new", None])
@pytest.mark.parametrize("trouble", [fails, loses_the_reply])
@pytest.mark.parametrize("at", [0, 1])
def test_a_request_without_an_answer_is_looked_after(
    before: bytes | None, after: bytes | None, trouble: Callable[[Store, StoreRequest], StoreReply], at: int
) -> None:
    store = Scripted(*[nothing] * at, trouble)
    if before is not None:
        store.inner.perform(Put(KEY, before))
    replace(store, after)
    assert held(store.inner) == after


def test_a_store_that_never_answers_is_told() -> None:
    store = Scripted(*[fails] * 100)
    with pytest.raises(Unavailable, match="no answer"):
        replace(store, b"new")
    assert store.asked == [Get] * 4


def test_a_store_that_never_writes_is_told() -> None:
    store = Scripted(*[nothing, fails, nothing] * 4)
    with pytest.raises(Unavailable, match="no answer"):
        replace(store, b"new")
    assert store.asked == [Get, PutIfAbsent, Get] * 4
    assert held(store.inner) is None


def test_what_will_not_change_by_itself_is_told_at_once() -> None:
    store = Scripted(
        nothing, lambda *_: Failed(Unavailable("AccessDenied: let the role write.", permanent=True))
    )
    with pytest.raises(Unavailable, match="let the role write"):
        replace(store, b"new")
    assert store.asked == [Get, PutIfAbsent]


@pytest.mark.parametrize("request_", [Get(KEY), List("jobs/"), Put(KEY, b"x"), Delete((KEY,))])
def test_what_may_be_asked_twice_is(request_: StoreRequest) -> None:
    store = Scripted(fails, fails, fails)
    assert not isinstance(RetryingDriver(store, MACHINE).perform(request_), Failed)
    store = Scripted(fails, fails, fails, fails)
    assert not any(
        isinstance(each, Failed) for each in RetryingDriver(store, MACHINE).perform(All((request_, request_)))
    )
    assert len(store.asked) == 6


@pytest.mark.parametrize(
    "request_", [PutIfAbsent(KEY, b"x"), PutIfMatch(KEY, b"x", "1"), DeleteIfMatch(KEY, "1")]
)
def test_what_has_a_condition_is_not_asked_twice(request_: StoreRequest) -> None:
    """The first may have been carried out: then the second one is refused."""
    assert isinstance(RetryingDriver(Scripted(fails), MACHINE).perform(request_), Failed)


def others(body: bytes) -> Callable[[Store, StoreRequest], None]:
    """Another run writes first."""

    def act(store: Store, _: StoreRequest) -> None:
        store.perform(Put(KEY, body))

    return act


@pytest.mark.parametrize(("before", "after"), [(None, b"new"), (b"old", b"new"), (b"old", None)])
def test_what_another_run_has_written_since_a_file_was_looked_at_stays(
    before: bytes | None, after: bytes | None
) -> None:
    store = MemoryStore()
    if before is not None:
        store.perform(Put(KEY, before))
    driver = RetryingDriver(store, MACHINE)
    seen = driver.run(files.look(KEY))
    store.perform(Put(KEY, b"its"))
    with pytest.raises(Unsettled, match="another run writes the same tables"):
        driver.run(files.exchange(KEY, seen, after))
    assert held(store) == b"its"


def test_another_run_that_writes_the_same_is_no_trouble() -> None:
    store = Scripted(nothing, others(b"new"))
    replace(store, b"new")
    assert store.asked == [Get, PutIfAbsent, Get]


def test_another_run_that_writes_again_and_again_is_told() -> None:
    acts = [act for number in range(20) for act in (nothing, others(b"%d" % number), nothing)]
    with pytest.raises(Unsettled, match="another run writes the same tables"):
        replace(Scripted(*acts), b"new")


def test_a_file_that_cannot_be_read_is_told() -> None:
    store = MemoryStore()
    store.put(Put(KEY, b"no table"))
    with pytest.raises(
        Damaged, match=r"date=2026-01-05/rows.parquet cannot be read: .*compact its day again"
    ):
        RetryingDriver(store, MACHINE).run(files.columns([KEY], ["id"]))
