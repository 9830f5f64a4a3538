"""Two servers of one store, one of them killed again and again: nothing that was acknowledged is lost or done twice.

``python -m bench.kills --seconds 120`` is the same for longer.
"""

from __future__ import annotations

from pathlib import Path

from bench.kills import KILLS_MIN, soak
from tests.support.valkey_server import ValkeyServer

SECONDS = 5.0


def test_on_a_folder_nothing_is_lost_when_servers_are_killed(tmp_path: Path) -> None:
    _survived(f"file://{tmp_path}/jobs", seed=1)


def test_on_s3_nothing_is_lost_when_servers_are_killed(s3_endpoint: str, s3_bucket: str) -> None:
    _survived(f"s3://{s3_bucket}/kills?endpoint={s3_endpoint}&region=us-east-1", seed=2)


def test_on_valkey_nothing_is_lost_when_servers_are_killed(valkey: ValkeyServer) -> None:
    _survived(valkey.address(), seed=3)


def _survived(address: str, seed: int) -> None:
    report = soak(address, SECONDS, seed)
    assert report.faults == [], "\n".join(report.lines())
    assert report.kills >= KILLS_MIN
    assert report.acknowledged == report.completed > 0
    assert report.broken > 0
