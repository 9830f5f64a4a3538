"""``osqueue bench``: it leaves nothing behind, or says what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osqueue import Unavailable
from osqueue.core.intents import INTENTS
from osqueue.stores.base import Delete, Failed, List, StoreReply, StoreRequest
from osqueue.stores.counting import CountingStore
from tests.support.commands import Run, answers


def test_a_bench_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    assert answers(run("bench", "--jobs", "40", "--payload-bytes", "2000", "--seconds", "5"))
    left = list((tmp_path / "jobs").rglob("osqueue-bench-*"))
    assert [path for folder in left for path in (folder, *folder.rglob("*")) if path.is_file()] == []


@pytest.mark.parametrize("refused", [Delete, List])
def test_a_bench_that_may_not_delete_ends_and_says_what_it_left(
    run: Run, monkeypatch: pytest.MonkeyPatch, refused: type[StoreRequest]
) -> None:
    asked: list[StoreRequest] = []

    def commits(request: StoreRequest) -> bool:
        """Does it belong to a commit? After half a second of them, one looks for announced requests."""
        return isinstance(request, List) and request.prefix.startswith(INTENTS)

    def perform(self: Any, request: StoreRequest) -> StoreReply:
        if isinstance(request, refused) and not commits(request):
            asked.append(request)
            assert len(asked) < 100, "it goes on and on"
            return Failed(Unavailable("s3:DeleteObject is refused", permanent=True))
        return real(self, request)

    real = CountingStore.perform
    monkeypatch.setattr(CountingStore, "perform", perform)
    result = run("bench", "--jobs", "5", "--seconds", "5")
    assert answers(result)
    assert "the bench's queue osqueue-bench-" in result.stderr
    assert "could not be removed: s3:DeleteObject is refused" in result.stderr
