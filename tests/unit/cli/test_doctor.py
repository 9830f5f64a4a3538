"""``osqueue doctor`` as people and scripts use it: findings, exit codes, and repairs on a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from osqueue import Queue, limits
from osqueue.cli import output
from osqueue.cli.app import app
from osqueue.core.encoding import decode_head, encode_head
from osqueue.stores.base import Found, Get
from osqueue.stores.file import FileStore

Run = Callable[..., Result]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


@pytest.fixture
def run(address: str) -> Run:
    def invoke(*args: str) -> Result:
        return CliRunner().invoke(app, args, env={"OSQUEUE_ADDRESS": address})

    return invoke


@pytest.fixture
def q(address: str) -> Queue[Any]:
    made = Queue.connect(address, "emails")
    made.enqueue_many([{"payload": at} for at in range(5)])
    made.reap()
    return made  # type: ignore[no-any-return]


def head(folder: Path, shard: int = 0) -> Path:
    (found,) = (folder / "jobs").glob(f"*/emails/{shard}/head")
    return found


def answers(result: Result, code: int = 0) -> list[Any]:
    assert result.exit_code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def levels(found: list[Any]) -> set[str]:
    return {each["level"] for each in found}


def test_a_place_without_queues_is_told(run: Run) -> None:
    result = run("doctor")
    (warning,) = [each for each in answers(result) if each["level"] != "ok"]
    assert (warning["level"], warning["check"]) == ("warning", "queues")
    assert "check the address" in warning["remedy"]


def test_the_store_and_every_queue_are_examined(run: Run, q: Queue[Any], address: str) -> None:
    Queue.connect(address, "orders").enqueue(1)
    result = run("doctor")
    found = answers(result)
    assert levels(found) == {"ok"}
    assert {each["queue"] for each in found} == {None, "emails", "orders"}
    assert f"{len(found)} ok, 0 warning, 0 trouble" in result.stderr
    assert {each["queue"] for each in answers(run("doctor", "emails", "--deep"))} == {None, "emails"}


def test_trouble_is_told_by_the_exit_code_and_the_remedy_works(
    run: Run, q: Queue[Any], tmp_path: Path
) -> None:
    head(tmp_path).write_bytes(b"nonsense")
    (trouble,) = [each for each in answers(run("doctor", "emails"), 1) if each["level"] == "trouble"]
    assert trouble["remedy"] == "osqueue doctor ADDRESS emails --restore --shard 0"
    (done,) = answers(run(*trouble["remedy"].split()[1:2], *trouble["remedy"].split()[3:]))
    assert (done["live"], done["stalled"]) == (5, 0)
    assert levels(answers(run("doctor", "emails"))) == {"ok"}


def test_on_a_terminal_findings_are_lines_with_their_remedy(
    run: Run, q: Queue[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    head(tmp_path).write_bytes(b"nonsense")
    result = run("doctor", "emails")
    assert result.exit_code == 1
    assert "ok       store: create-only: an existing object is not overwritten" in result.stdout
    assert "TROUBLE  emails/0 head: the head is cut short" in result.stdout
    assert "         → osqueue doctor ADDRESS emails --restore --shard 0" in result.stdout


def test_backups_are_listed_and_may_be_chosen_by_name(run: Run, q: Queue[Any]) -> None:
    (copy,) = answers(run("doctor", "emails", "--backups"))
    assert (copy["queue"], copy["shard"], copy["jobs"]) == ("emails", 0, 5)
    q.enqueue("lost again")
    refused = run("doctor", "emails", "--restore", copy["backup"])
    assert refused.exit_code == 1
    assert "conflict" in refused.stderr
    result = run("doctor", "emails", "--restore", copy["backup"], "--yes")
    (done,) = answers(result)
    assert (done["live"], done["enqueued_since"]) == (5, 1)
    assert "jobs enqueued since the backup; those that have not finished are lost: 1" in result.stderr
    assert run("doctor", "emails", "--restore", "2020-01-01T00", "--yes").exit_code == 1


def test_each_damaged_shard_is_restored_and_the_others_are_left(
    run: Run, address: str, tmp_path: Path
) -> None:
    q = Queue.connect(address, "emails")
    q.configure(shards=3)
    for at in range(6):
        q.enqueue(at)
    q.reap()
    head(tmp_path, 0).write_bytes(b"cut")
    head(tmp_path, 2).unlink()
    before = head(tmp_path, 1).read_bytes()
    assert [each["shard"] for each in answers(run("doctor", "emails", "--restore"))] == [0, 2]
    assert head(tmp_path, 1).read_bytes() == before
    assert levels(answers(run("doctor", "emails"))) == {"ok"}
    fresh, found = Queue.connect(address, "emails"), []
    while leases := fresh.claim(10):
        found += [lease.payload for lease in leases]
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    which = run("doctor", "emails", "--restore", "--yes")
    assert which.exit_code == 2
    assert "--shard N" in which.stderr


def test_a_clock_is_set_right(run: Run, q: Queue[Any], tmp_path: Path) -> None:
    place = head(tmp_path)
    found = FileStore(tmp_path / "jobs").perform(Get(str(place.relative_to(tmp_path / "jobs"))))
    assert isinstance(found, Found)
    state = decode_head(found.body)
    place.write_bytes(encode_head(replace(state, commit=b"x" * 16, now_ms=state.now_ms + limits.DAY_MS)))
    (trouble,) = [each for each in answers(run("doctor", "emails"), 1) if each["level"] == "trouble"]
    assert trouble["remedy"] == "osqueue doctor ADDRESS emails --fix-clock"
    (fixed,) = answers(run("doctor", "emails", "--fix-clock"))
    assert fixed["set_back_seconds"] == pytest.approx(86_400, abs=60)
    assert levels(answers(run("doctor", "emails"))) == {"ok"}
    assert answers(run("doctor", "emails", "--fix-clock"))[0]["set_back_seconds"] == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--restore",), "which queue?"),
        (("--fix-clock",), "which queue?"),
        (("emails", "--restore", "--fix-clock"), "one thing at a time"),
        (("emails", "--fix-ids", "--shard", "1"), "for all shards"),
        (("emails", "--yes"), "--yes goes with --restore"),
        (("emails", "--shard", "1"), "--shard goes with"),
        (("emails", "--restore", "--shard", "64"), "64 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, q: Queue[Any], args: tuple[str, ...], says: str) -> None:
    result = run("doctor", *args)
    assert result.exit_code == 2
    assert says in result.stderr


def test_entries_of_ids_are_mended(run: Run, q: Queue[Any], tmp_path: Path) -> None:
    q.enqueue(1, id="a")
    (entry,) = [each for each in (tmp_path / "jobs/ids/emails").iterdir() if each.is_file()]
    entry.write_bytes(b"")
    (trouble,) = [each for each in answers(run("doctor", "emails"), 1) if each["level"] == "trouble"]
    assert (trouble["check"], trouble["remedy"]) == ("ids", "osqueue doctor ADDRESS emails --fix-ids")
    (fixed,) = answers(run("doctor", "emails", "--fix-ids"))
    assert (fixed["restored"], fixed["freed"], fixed["left"]) == (1, 0, [])
    assert q.enqueue(2, id="a").status == "duplicate"


def test_a_name_nobody_used_is_answered_with_those_there_are(run: Run, q: Queue[Any]) -> None:
    for args in (("emial",), ("emial", "--backups"), ("emial", "--fix-clock")):
        result = run("doctor", *args)
        assert result.exit_code == 1
        assert "There are: emails" in result.stderr


def test_a_folder_where_nothing_can_be_written_is_trouble(run: Run, tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("not a folder")
    assert "trouble" in levels(answers(run("doctor"), 1))


def test_it_stops_when_its_time_is_up(run: Run, q: Queue[Any]) -> None:
    result = run("doctor", "--timeout", "0s")
    assert result.exit_code == 3
    assert "--timeout" in result.stderr
