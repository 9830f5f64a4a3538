"""When a store opens another client after a refusal."""

from __future__ import annotations

import pytest

from osqueue import Rejected, Unavailable
from osqueue.stores import reopening
from osqueue.stores.reopening import REOPEN_SECONDS, Reopening

REFUSED = Unavailable("403 AccessDenied", permanent=True)


class Clock:
    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(reopening, "MACHINE", made)
    return made


def test_refusals_open_another_client_once_in_some_seconds(clock: Clock) -> None:
    of_store = Reopening()
    assert [of_store.is_due(REFUSED) for _ in range(3)] == [True, False, False]
    clock.seconds += REOPEN_SECONDS
    assert [of_store.is_due(REFUSED) for _ in range(2)] == [True, False]


def test_a_refusal_in_a_changed_environment_opens_another_client_at_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_store = Reopening()
    assert of_store.is_due(REFUSED)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert [of_store.is_due(REFUSED) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("error", [Unavailable("503 SlowDown"), Rejected("not a key", field="key")])
def test_an_error_that_no_credentials_mend_opens_no_other_client(clock: Clock, error: Exception) -> None:
    assert not Reopening().is_due(error)  # type: ignore[arg-type]


def test_a_client_is_stale_once_the_environment_has_changed_after_a_refusal(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_store = Reopening()
    assert [of_store.is_due(REFUSED) for _ in range(2)] == [True, False]
    assert not of_store.is_stale()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert [of_store.is_stale() for _ in range(2)] == [True, False]
