"""The test kit: your handlers and your enqueues, run by the real state machine and serialiser, without waiting.

    from osqueue.testing import assert_enqueued, inline, manual

    def test_signing_up_sends_a_mail():
        with manual(app.emails) as test:          # jobs wait; nothing leaves the process
            app.sign_up("ada@example.com")
            assert_enqueued(app.emails, kind="welcome", payload={"to": "ada@example.com"})
            test.drain()                          # runs them, retries included, in virtual time

    def test_a_mail_is_sent_at_once():
        with inline(app.emails) as test:          # enqueue runs the handler
            app.sign_up("ada@example.com")
            assert test.ran[0].outcome == "completed"

While the block lasts the queue object keeps its jobs in memory and takes its time from ``test.clock``; afterwards
it is what it was before. Over an AsyncQueue ``drain``, ``run_next``, ``enqueued`` and ``assert_enqueued`` are awaited.
"""

from __future__ import annotations

from .clock import Clock
from .kit import AsyncManual, Manual, Ran
from .modes import inline, manual
from .waiting import ANY, Waiting, assert_enqueued, enqueued

__all__ = [
    "ANY",
    "AsyncManual",
    "Clock",
    "Manual",
    "Ran",
    "Waiting",
    "assert_enqueued",
    "enqueued",
    "inline",
    "manual",
]
