"""Fixtures for pytest, which finds them by itself where osqueue is installed: the modes of ``osqueue.testing``.

    def test_signing_up_sends_a_mail(osqueue_manual):
        test = osqueue_manual(app.emails, worker.emails)
        app.sign_up("ada@example.com")
        assert [ran.outcome for ran in test.drain()] == ["completed"]

It loads nothing of the library until a test asks for one of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("osqueue.testing.store_contract")  # its tests show what they compared


@pytest.fixture
def osqueue_manual() -> Iterator[Callable[..., Any]]:
    """``osqueue_manual(q, …)`` is what ``with manual(q, …)`` gives, until the test ends."""
    from .testing import manual

    with contextlib.ExitStack() as stack:
        yield lambda *queues, **options: stack.enter_context(manual(*queues, **options))


@pytest.fixture
def osqueue_inline() -> Iterator[Callable[..., Any]]:
    """``osqueue_inline(q, …)`` is what ``with inline(q, …)`` gives, until the test ends."""
    from .testing import inline

    with contextlib.ExitStack() as stack:
        yield lambda *queues, **options: stack.enter_context(inline(*queues, **options))


@pytest.fixture
def osqueue_address(tmp_path: Path) -> str:
    """The address of an empty folder of this test, for what works on a real store: other processes, too."""
    return f"file://{tmp_path}/osqueue?fsync=off"
