"""Which signals end a process in order, and which of them have no effect while it ends."""

from __future__ import annotations

import signal


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a process. SIGHUP ends none that ``nohup`` started."""
    both = (signal.SIGTERM, signal.SIGINT)
    return both if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*both, signal.SIGHUP)


def has_no_effect(number: int, ending: bool) -> bool:
    """Return whether a signal has no effect, given whether the process is ending: then SIGHUP has none.

    A second SIGTERM or SIGINT ends a process at once. A closed terminal sends SIGHUP twice, from the shell and from the
    kernel, so a second SIGHUP asks for nothing more than the first.
    """
    return ending and number == signal.SIGHUP
