"""``osqueue dashboard`` as it runs: who reaches it, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from osqueue import Queue
from tests.support.patience import PATIENCE

COMMAND = [sys.executable, "-m", "osqueue", "dashboard"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    address = f"file://{tmp_path}/store"
    Queue.connect(address, "mail").enqueue({"to": "ada"})
    with subprocess.Popen([*COMMAND, address, "--port", "0", "--json"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
        process.kill()


def test_the_page_and_the_api_answer_this_machine_alone(
    running: tuple[subprocess.Popen[bytes], str],
) -> None:
    _, url = running
    http = urllib3.PoolManager()
    assert url.startswith("http://127.0.0.1:")
    assert b"dashboard/app.js" in http.request("GET", url + "/").data
    assert http.request("GET", url + "/v1/queues/mail").json()["queued"] == 1
    for path in ("/v1/queues/mail", "/dashboard/me", "/dashboard/live"):
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            assert http.request("GET", url + path, headers=headers).status == 403, (path, headers)


def test_it_ends_at_a_signal_also_while_a_page_is_open(running: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = running
    stream = urllib3.PoolManager().request(
        "GET", url + "/dashboard/live?queue=mail", preload_content=False, timeout=PATIENCE
    )
    seen = b""
    while b'"queued":1' not in seen:
        seen += stream.read1(65_536)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    told = subprocess.run(
        [*COMMAND, "ftp://host/place"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert told.returncode == 2
    assert "address" in told.stderr
