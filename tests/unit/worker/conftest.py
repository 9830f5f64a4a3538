"""What the worker's tests share: workers say nothing of themselves, or the tests would count that, too."""

from __future__ import annotations

import pytest

from osqueue.worker import registration


@pytest.fixture(autouse=True)
def first_seconds(monkeypatch: pytest.MonkeyPatch) -> float:
    """When a worker says its first word, in a test of it; in every other one it never comes to that."""
    seconds = registration.FIRST_SECONDS
    monkeypatch.setattr(registration, "FIRST_SECONDS", 1_000_000.0)
    return seconds
