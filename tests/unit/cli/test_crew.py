"""The commands of several processes."""

from __future__ import annotations

import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from osqueue.cli.crew import ProcessCrew, command_of, sources


@pytest.mark.parametrize("given", [["--processes", "4"], ["--processes=4"]])
def test_each_process_runs_the_same_command_for_itself(given: list[str]) -> None:
    command = command_of(["a:q", *given, "--lease", "5m", "b:q"], 2, None)
    assert command[1:] == ["-m", "osqueue", "worker", "a:q", "--lease", "5m", "b:q", "--json"]


def test_each_has_a_name_of_its_own() -> None:
    command = command_of(["a:q", "--processes", "4", "--name", "host-3"], 2, "host-3")
    assert command[-3:] == ["--name", "host-3-2", "--json"]


@pytest.mark.parametrize("given", [["--metrics-port", "9100"], ["--metrics-port=9100"]])
def test_each_has_a_port_of_its_own(given: list[str]) -> None:
    assert command_of(["a:q", *given], 1, None)[5:7] == ["--metrics-port", "9100"]
    assert command_of(["a:q", *given], 3, None)[5:7] == ["--metrics-port", "9102"]


def test_what_counts_is_python_of_ones_own(tmp_path: Path) -> None:
    for name in ("tasks.py", "shop/mail.py", "notes.txt", ".hidden/a.py", "__pycache__/b.py", "env/c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    found = sources(str(tmp_path))
    assert sorted(found) == [str(tmp_path / "shop/mail.py"), str(tmp_path / "tasks.py")]
    (tmp_path / "tasks.py").unlink()
    assert len(sources(str(tmp_path))) == 1


def test_a_second_hang_up_has_no_effect_on_the_processes() -> None:
    crew, child = ProcessCrew([]), Mock()
    crew._children.append(child)
    with crew._signals():
        for number, terminated in ((signal.SIGHUP, 1), (signal.SIGHUP, 1), (signal.SIGTERM, 2)):
            signal.raise_signal(number)
            assert child.terminate.call_count == terminated
