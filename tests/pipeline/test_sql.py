"""Questions in SQL over small tables: how answers are printed, and what is said to those that cannot be understood."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext

import pytest

from osqueue.errors import Rejected
from osqueue.pipeline.engines import choice
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import command, compact, sql
from osqueue.pipeline.jobs.compact import Compaction
from tests.pipeline.past import Archive, at, done, key, lease

pytestmark = pytest.mark.both_engines


@pytest.fixture
def filled(engine: Engine, archive: Archive) -> Archive:
    archive.write(9, "00-a", [done(n, at(8), lease(1, at(8), at(8) + 10**n)) for n in (1, 2)])
    compact.run(engine, Compaction(str(archive.store), str(archive.tables)))
    return archive


def test_a_terminal_gets_a_table_with_numbers_to_the_right(engine: Engine, filled: Archive) -> None:
    answer = engine.ask(
        str(filled.tables), "SELECT queue, total_ms, id, finished_at FROM jobs ORDER BY job_id"
    )
    assert list(sql.text(answer)) == [
        "queue   total_ms  id  finished_at",
        "------  --------  --  ----------------------",
        "emails        10      2026-01-05 08:00:00.01",
        "emails       100      2026-01-05 08:00:00.1",
    ]


def test_what_a_terminal_would_act_upon_is_shown_as_its_escape(engine: Engine, archive: Archive) -> None:
    answer = engine.ask(str(archive.tables), "SELECT 'a' || chr(27) || '[2J' || chr(10) || 'b' AS error")
    assert list(sql.text(answer))[2:] == [r"a\x1b[2J\nb"]


def test_json_has_it_as_an_escape_that_means_the_same(engine: Engine, archive: Archive) -> None:
    answer = engine.ask(str(archive.tables), "SELECT 'a\x9b2J\u202eé' AS error")
    (line,) = sql.lines(answer)
    assert line == r'{"error":"a\u009b2J\u202eé"}'
    assert json.loads(line) == {"error": "a\x9b2J\u202eé"}


def test_json_is_ascii_where_the_output_has_few_characters(
    engine: Engine, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    answer = engine.ask(str(archive.tables), "SELECT 'ж' AS error")
    assert list(sql.lines(answer)) == [r'{"error":"\u0436"}']


def test_a_job_says_what_went_wrong_with_the_same_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> int:
        raise Rejected("query: a\x9b2J\u202e\nb")

    assert command.script(refuse) == 1
    assert capsys.readouterr().err == "error: rejected: query: a\\x9b2J\\u202e\\nb\n"


def test_a_long_answer_is_cut_and_says_so(engine: Engine, filled: Archive) -> None:
    answer = engine.ask(str(filled.tables), "SELECT worker, worker FROM attempts")
    assert list(sql.text(answer, most=1))[2:] == [
        "w1      w1",
        "… the first 1 rows. Add LIMIT, or write to a pipe for all of them.",
    ]


def test_a_pipe_gets_every_row_as_json(
    engine: Engine, filled: Archive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(choice, "engine", lambda name: nullcontext(engine))
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT job_id, id, started_at FROM jobs ORDER BY job_id"))
    assert sql.main([str(filled.tables), "-", "--engine", engine.name]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [{"job_id": key(n), "id": None, "started_at": "2026-01-05T08:00:00.000Z"} for n in (1, 2)]


def test_every_table_can_be_asked_before_it_is_written(engine: Engine, archive: Archive) -> None:
    for table in ("jobs", "attempts", "metrics_hourly", "metrics_daily", "metrics_workers", "metrics_errors"):
        assert list(sql.lines(engine.ask(str(archive.tables), f"FROM {table}"))) == []


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT nothing FROM jobs", "nothing"),
        ("SELEKT 1", "SELEKT"),
        ("SELECT 1 FROM cats", "cats"),
    ],
)
def test_a_question_that_nobody_understands_is_refused(
    engine: Engine, archive: Archive, query: str, told: str
) -> None:
    with pytest.raises(Rejected, match=told) as error:
        engine.ask(str(archive.tables), query)
    assert error.value.field == "query"
    assert "\n" not in error.value.message


def test_a_question_whose_answer_fails_says_so_in_one_line(
    engine: Engine, filled: Archive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(choice, "engine", lambda name: nullcontext(engine))
    question = ["--engine", engine.name, str(filled.tables), "SELECT cast(queue AS int) FROM jobs"]
    assert command.script(lambda: sql.main(question)) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("error: rejected: query: ")
