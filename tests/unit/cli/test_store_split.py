"""Commands on an address with an archive of its own: both stores are checked, searched, and emptied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue, Rejected
from osqueue.aws_lambda.handler import Function
from osqueue.devstack.environment import store_address
from osqueue.objects import archive, backups
from osqueue.stores.address import open_store
from osqueue.stores.base import Get, List, Put
from osqueue.stores.counting import CountingStore
from osqueue.stores.prices import EXPRESS, STANDARD, bill_of
from osqueue.stores.split import SplitStore
from tests.support.commands import Run, answer, answers, dead


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    return f"file://{tmp_path}/jobs", f"file://{tmp_path}/old"


@pytest.fixture
def address(places: tuple[str, str]) -> str:
    return f"{places[0]}?fsync=off&archive={places[1]}"


def keys(address: str) -> tuple[str, ...]:
    return open_store(address).list(List("")).keys


def test_both_stores_are_checked_and_nothing_is_left(run: Run, places: tuple[str, str]) -> None:
    found = answers(run("store", "check"))
    assert {each["level"] for each in found} == {"ok"}
    checks = [each["check"] for each in found]
    apart = [each.removeprefix("archive: ") for each in checks if each.startswith("archive: ")]
    own = [each for each in checks if not each.startswith("archive: ")]
    assert apart == [each for each in own if each not in ("clock", "polling")]
    assert [keys(each) for each in places] == [(), ()]
    assert [each["check"] for each in answers(run("doctor")) if each["check"] != "queues"] == checks


def test_an_archive_that_cannot_be_written_is_trouble(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old").touch()  # no folder
    result = run("store", "check")
    assert result.exit_code == 1
    (bad,) = (each for each in map(json.loads, result.stdout.splitlines()) if each["level"] == "trouble")
    assert bad["check"] == "archive: store: create"
    assert "latency: get" not in result.stdout


def test_what_lies_in_the_old_place_is_named(run: Run, q: Queue[Any], places: tuple[str, str]) -> None:
    q.enqueue(1)
    q.reap()
    assert [each for each in answers(run("doctor")) if each["level"] != "ok"] == []
    left = backups.name_of("emails", 0, 0)
    open_store(places[0]).put(Put(left, b"x"))
    (warning,) = [each for each in answers(run("doctor")) if each["level"] != "ok"]
    assert (warning["level"], warning["check"]) == ("warning", "store: archive")
    assert left in warning["found"]
    assert "Copy them" in warning["remedy"]


def test_a_purge_reaches_the_archive_and_the_backups(
    run: Run, q: Queue[Any], places: tuple[str, str]
) -> None:
    (job,) = dead(q, "secret-of-mine")
    q.reap()
    assert {each.partition("/")[0] for each in keys(places[1])} == {"archive", "backup"}
    told = answer(run("job", "purge", "emails", job, "--yes"))
    assert (told["archive"], told["backups"]) == (1, 1)
    store = open_store(places[1])
    bodies = [store.get(Get(key)).body for key in keys(places[1])]  # type: ignore[union-attr]
    assert not [body for body in bodies if b"secret-of-mine" in body]


@pytest.mark.parametrize("with_archive", [False, True])
def test_a_removed_queue_leaves_no_backup_and_an_archive_if_it_is_to_stay(
    run: Run, q: Queue[Any], places: tuple[str, str], with_archive: bool
) -> None:
    dead(q, "once")
    q.reap()
    q.close()
    run("queue", "rm", "emails", "--yes", "--force", *(["--archive"] if with_archive else []))
    assert keys(places[0]) == ()
    assert [each.partition("/")[0] for each in keys(places[1])] == ([] if with_archive else ["archive"])


def test_a_head_is_restored_from_the_other_store(run: Run, q: Queue[Any], places: tuple[str, str]) -> None:
    q.enqueue("kept")
    q.reap()
    q.close()
    (head,) = (key for key in keys(places[0]) if key.endswith("/head"))
    open_store(places[0]).put(Put(head, b"cut short"))
    assert answer(run("doctor", "emails", "--restore"))["live"] == 1
    assert [
        lease.payload for lease in Queue[Any].connect(f"{places[0]}?archive={places[1]}", "emails").claim()
    ] == ["kept"]


# ── Addresses on their way ───────────────────────────────────────────────────
def test_the_functions_of_a_local_stack_find_both_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        store_address("file://jobs?archive=file://old")
        == f"file://{tmp_path}/jobs?archive=file://{tmp_path}/old"
    )
    with pytest.raises(Rejected, match="store: archive: memory://"):
        store_address("file://jobs?archive=memory://old")


def test_a_function_keeps_the_archive_of_its_environment_apart(
    places: tuple[str, str], address: str, monkeypatch: pytest.MonkeyPatch, q: Queue[Any]
) -> None:
    dead(q, "once")
    monkeypatch.setenv("OSQUEUE_STORE", address)
    Queue[Any](Function("reaper").meter, "emails").reap()
    assert [key for key in keys(places[1]) if key.startswith(archive.ROOT)]
    assert not [key for key in keys(places[0]) if key.startswith(archive.ROOT)]


@pytest.mark.parametrize(
    "words",
    [
        ("enqueue", "file:///tmp/never?archive=memory://old", "emails", "1"),
        ("serve", "file:///tmp/never?archive=memory://old", "--workers", "2"),
    ],
)
def test_an_archive_that_ends_with_the_process_is_refused(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "memory" in result.stderr


# ── Money ────────────────────────────────────────────────────────────────────
def test_requests_cost_what_they_cost_where_they_go() -> None:
    address = "s3://jobs--use1-az4--x-s3?archive=s3://old"
    first, second = CountingStore(open_store("memory://").inner), CountingStore(open_store("memory://").inner)
    store = CountingStore(CountingStore(SplitStore(first, second)))
    dollars = bill_of(store, address)
    assert dollars is not None
    for _ in range(3):
        store.put(Put("head", b"x"))
    store.put(Put(f"{archive.ROOT}part", b"x"))
    store.get(Get(f"{archive.ROOT}part"))
    assert dollars() == pytest.approx((3 * EXPRESS.put + STANDARD.put + STANDARD.get) / 1_000_000)
    free = bill_of(store, "memory://?archive=s3://old")
    assert free is not None
    assert free() == pytest.approx((STANDARD.put + STANDARD.get) / 1_000_000)
    assert bill_of(store, "memory://?archive=file://old") is None
    assert bill_of(store, "s3://jobs?archive=az://old") is None
    assert bill_of(store, "az://jobs?archive=s3://old") is None


def test_an_address_names_the_store_that_is_counted_apart() -> None:
    store = open_store("memory://?archive=memory://")
    assert isinstance(store.inner, SplitStore)
    assert isinstance(store.inner.second, CountingStore)
