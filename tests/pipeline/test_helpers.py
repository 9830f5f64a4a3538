"""Processes that help the local engine: they share its pieces, tell what went wrong, and leave with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from osqueue import child_process
from osqueue.errors import Rejected, Unavailable
from osqueue.pipeline.engines import helpers
from osqueue.pipeline.engines.helpers import Helpers
from osqueue.pipeline.engines.local import LocalEngine, cores_here
from tests.pipeline import pieces
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

HERE = os.getpid()


@pytest.fixture
def helping(monkeypatch: pytest.MonkeyPatch) -> Iterator[Helpers]:
    """One other process, from the first moment on."""
    monkeypatch.setattr(helpers, "ALONE_SECONDS", 0)
    made = Helpers(1)
    yield made
    made.close()


def others(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.iterdir()} - {HERE}


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_pieces_are_done_here_and_there_at_once_and_answered_in_their_order(
    helping: Helpers, tmp_path: Path
) -> None:
    for _ in range(2):  # the process stays for the next ones
        done = helping.share(partial(pieces.together, tmp_path, pieces.numbered), range(6))
        assert [piece for piece, _ in done] == [*range(6)]
        (other,) = others(tmp_path)
        assert {process for _, process in done} <= {HERE, other}
    helping.close()
    assert gone(other)


def test_what_takes_no_longer_than_a_start_is_done_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "ALONE_SECONDS", PATIENCE)
    assert Helpers(3).share(pieces.numbered, range(5)) == [(piece, HERE) for piece in range(5)]


def test_on_one_core_and_of_one_piece_nothing_goes_to_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(helpers, "ALONE_SECONDS", 0)
    for engine, count in ((LocalEngine(), 5), (LocalEngine(2), 1)):
        assert engine.spread(pieces.numbered, range(count)) == [(piece, HERE) for piece in range(count)]
        engine.close()


def test_cores_are_those_that_the_process_may_use_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, used in ((1, 1), (3, 3), (100, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, count=there: {*range(count)}, raising=False)
        assert cores_here() == used


def test_without_room_for_a_process_the_work_goes_on_here(
    helping: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "start", refused)
    assert helping.share(pieces.numbered, range(5)) == [(piece, HERE) for piece in range(5)]


def refused(serve: object) -> None:
    raise BlockingIOError("no more processes")


def test_an_error_arrives_as_itself_and_the_next_pieces_have_another_process(
    helping: Helpers, tmp_path: Path
) -> None:
    with pytest.raises(Rejected) as caught:
        helping.share(partial(pieces.refuse, tmp_path, HERE), range(2))
    assert (str(caught.value), caught.value.field) == ("no", "piece")
    assert "in refuse" in caught.value.__notes__[0]
    (first,) = others(tmp_path)
    assert gone(first)
    (tmp_path / str(first)).unlink()
    helping.share(partial(pieces.together, tmp_path, pieces.numbered), range(2))
    assert others(tmp_path) != {first}


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("exits", SystemExit, "3"),
        ("is unsent", Unavailable, r"failed in another process: Unsent\('this and that'\)"),
        ("holds a function", Unavailable, "failed in another process: LookupError"),
    ],
)
def test_an_error_that_cannot_be_sent_is_told_in_its_words(
    helping: Helpers,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    how: str,
    kind: type[BaseException],
    words: str,
) -> None:
    with pytest.raises(kind, match=words) as caught:
        helping.share(partial(pieces.fail, tmp_path, HERE, how), range(2))
    assert "in fail" in caught.value.__notes__[0]
    assert "Fatal" not in capfd.readouterr().err


def test_a_python_that_is_part_of_another_program_does_all_alone(
    helping: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", None)
    assert helping.share(pieces.numbered, range(5)) == [(piece, HERE) for piece in range(5)]


def test_a_process_that_is_killed_is_told_of(helping: Helpers, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"is lost \(exit code -9\)\. What is done stays"):
        helping.share(partial(pieces.die, tmp_path, HERE, pieces.numbered), range(2))


def test_an_interrupt_ends_the_other_process_in_the_middle_of_its_piece(
    helping: Helpers, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        helping.share(partial(pieces.interrupt, tmp_path, HERE), range(2))
    (other,) = others(tmp_path)
    assert gone(other)


def test_the_other_process_ends_with_whoever_started_it_however_that_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.pipeline.pieces", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.communicate(timeout=PATIENCE)  # both have closed standard error
