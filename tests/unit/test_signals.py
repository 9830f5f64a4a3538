"""Which signals end a process, and which have no effect while it ends."""

from __future__ import annotations

import signal

import pytest

from osqueue.signals import ending_signals, has_no_effect


def test_a_hang_up_ends_a_process_unless_nohup_started_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ending_signals() == (signal.SIGTERM, signal.SIGINT)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert ending_signals() == (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("ending", [True, False])
def test_only_a_hang_up_has_no_effect_and_only_at_the_end(number: signal.Signals, ending: bool) -> None:
    assert has_no_effect(number, ending) is (ending and number is signal.SIGHUP)
