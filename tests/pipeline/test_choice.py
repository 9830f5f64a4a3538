"""Which engine is chosen, what is said of it, and what a browser is given in the end."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from osqueue.errors import NotInstalled, Rejected
from osqueue.pipeline import needs
from osqueue.pipeline.engines import choice
from osqueue.pipeline.engines.choice import PipelineInput
from osqueue.pipeline.jobs import command, report, run
from tests.pipeline.past import Archive, job

HERE: Callable[[], str | None] = lambda: None  # noqa: E731
GONE: Callable[[], str | None] = lambda: "It is missing. Remedy: get it."  # noqa: E731


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine that has both engines, unless it is told otherwise."""

    def has(local: Callable[[], str | None] = HERE, spark: Callable[[], str | None] = HERE) -> None:
        monkeypatch.setattr(needs, "missing_locally", local)
        monkeypatch.setattr(needs, "missing", spark)
        monkeypatch.setattr(needs, "on_cluster", lambda: False)

    has()
    return has


@pytest.fixture
def workload(archive: Archive) -> PipelineInput:
    for number in range(20):
        archive.write(number, "part", [job(number, number)])
    return command.archive_of(str(archive.store))


def test_a_small_archive_is_done_in_this_process(
    machine: Callable[..., None], workload: PipelineInput
) -> None:
    decision = choice.decided(workload)
    assert (decision.engine, decision.why) == ("local", "the archive has about 0.0 MB; spark from 64 MB on")


@pytest.mark.parametrize(("name", "limit"), [("LOCAL_BYTES_MAX", 20), ("LOCAL_OBJECTS_MAX", 19)])
def test_a_large_one_is_done_on_spark(
    machine: Callable[..., None],
    workload: PipelineInput,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    limit: int,
) -> None:
    monkeypatch.setattr(choice, name, limit)
    assert choice.decided(workload).engine == "spark"
    machine(spark=GONE)
    decision = choice.decided(workload)
    assert decision.engine == "local"
    assert decision.why.endswith("but Spark cannot run. It is missing. Remedy: get it.")


def test_at_the_limit_it_is_small(
    machine: Callable[..., None], workload: PipelineInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "LOCAL_OBJECTS_MAX", 20)
    assert choice.decided(workload).engine == "local"


def test_without_duckdb_it_is_spark_and_without_both_nothing(
    machine: Callable[..., None], workload: PipelineInput
) -> None:
    machine(local=GONE)
    assert choice.decided(workload).engine == "spark"
    machine(local=GONE, spark=GONE)
    with pytest.raises(NotInstalled, match="the pipeline cannot run"):
        choice.decided(workload)


def test_an_engine_that_was_asked_for_and_cannot_run_is_missed_with_the_remedy(
    machine: Callable[..., None],
) -> None:
    machine(local=GONE, spark=GONE)
    for name in ("local", "spark"):
        with (
            pytest.raises(NotInstalled, match=f"the engine {name} cannot run. It is missing"),
            choice.engine(name),
        ):
            pass


def test_spark_submit_is_spark(monkeypatch: pytest.MonkeyPatch, workload: PipelineInput) -> None:
    monkeypatch.setenv("SPARK_ENV_LOADED", "1")
    decision = choice.decided(workload)
    assert (decision.engine, decision.why) == ("spark", "this is spark-submit")


def test_the_choice_is_said_in_one_line_and_what_was_asked_for_is_not(
    machine: Callable[..., None], workload: PipelineInput, capsys: pytest.CaptureFixture[str]
) -> None:
    with choice.chosen("auto", workload) as engine:
        assert engine.name == "local"
    assert len(capsys.readouterr().err.splitlines()) == 1
    with choice.chosen("local", workload) as engine:
        assert engine.name == "local"
    assert capsys.readouterr().err == ""


# ── --open ───────────────────────────────────────────────────────────────────
def test_a_report_is_opened_in_a_browser(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or len(opened) < 3)
    archive.write(8, "part", [job(1, 8.2)])
    out = tmp_path / "a report.html"
    places = [str(archive.tables), str(out)]
    assert run.main([str(archive.store), *places, "--open", "--engine", "local"]) == 0
    assert report.main([*places, "--engine", "local"]) == 0
    assert opened == [out.as_uri()]
    capsys.readouterr()
    assert report.main([*places, "--open", "--engine", "local"]) == 0
    assert report.main([*places, "--open", "--engine", "local"]) == 0
    assert opened == [out.as_uri()] * 3
    assert capsys.readouterr().err == f"there is no browser here. The page is {out}\n"


def test_a_report_in_a_bucket_is_not_opened() -> None:
    with pytest.raises(Rejected, match=r"a browser cannot open s3://bucket/report\.html") as told:
        command.show("s3://bucket/report.html")
    assert told.value.field == "open"
