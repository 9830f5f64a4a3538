"""``osqueue worker``: where its metrics listen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.commands import Run


@pytest.mark.parametrize(
    ("options", "host"),
    [((), "127.0.0.1"), (("--metrics-host", "0.0.0.0"), "0.0.0.0")],  # noqa: S104 - nothing listens
)
def test_the_metrics_of_a_worker_listen_on_this_machine_alone_unless_another_host_is_named(
    run: Run,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    host: str,
) -> None:
    (tmp_path / "tasks_measured.py").write_text(
        f"from osqueue import Queue\nq = Queue.connect({address!r}, 'emails')\nq.handler(lambda job: None)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    places: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "prometheus_client.start_http_server", lambda port, addr, registry: places.append((addr, port))
    )
    done = run("worker", "tasks_measured:q", "--until-empty", "--metrics-port", "9100", *options)
    assert done.exit_code == 0, done.stderr
    assert places == [(host, 9100)]
