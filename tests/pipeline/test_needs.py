"""What is said on a machine where the pipeline cannot run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from osqueue.errors import NotInstalled
from osqueue.pipeline import needs
from osqueue.pipeline.session import session
from tests.pipeline.quick import QUICK
from tests.support.patience import PATIENCE
from tests.support.places import ROOT


def java(monkeypatch: pytest.MonkeyPatch, home: Path, script: str) -> None:
    """A Java of our own."""
    (home / "bin").mkdir()
    (home / "bin/java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin/java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_java_17_and_later_will_do(version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java(monkeypatch, tmp_path, f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")
    assert needs.missing() is None


@pytest.mark.parametrize(("version", "told"), [("1.8.0_391", "Java 1,"), ("11.0.2", "Java 11,")])
def test_an_older_java_is_named(
    version: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java(monkeypatch, tmp_path, f"""echo 'java version "{version}"' >&2""")
    said = needs.missing()
    assert said is not None
    assert said.startswith(f"{tmp_path}/bin/java is {told}")


def test_a_java_that_does_not_run_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java(monkeypatch, tmp_path, "echo Unable to locate a Java Runtime. >&2; exit 1")
    assert "Java is missing. Remedy:" in str(needs.missing())


def test_no_java_at_all_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install openjdk-17-jre-headless" in str(needs.missing())


def test_without_pyspark_that_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda _: None)
    assert "osqueue[pipeline]" in str(needs.missing())


def test_a_session_without_java_is_refused_as_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotInstalled, match="set JAVA_HOME"):
        session()


# ── Quiet ────────────────────────────────────────────────────────────────────
def started(settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A session of a process of its own."""
    code = f"from osqueue.pipeline.session import session; print(session(settings={settings!r}).range(3).count())"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_nothing_but_the_result_is_printed() -> None:
    ended = started(QUICK)
    assert (ended.stdout, ended.stderr) == ("3\n", "")


def test_what_java_says_is_printed_when_it_does_not_start() -> None:
    ended = started({"spark.driver.extraJavaOptions": "-Xmx1g"})  # Spark has a setting for that, and refuses
    assert ended.returncode != 0
    assert "Not allowed to specify max heap(Xmx) memory settings through java options" in ended.stderr
