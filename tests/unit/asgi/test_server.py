"""The server and the signals that end it."""

from __future__ import annotations

import signal
from unittest.mock import Mock

import uvicorn

from osqueue.asgi.server import _Server


def test_a_second_hang_up_has_no_effect_on_a_server() -> None:
    server = _Server(uvicorn.Config(Mock(), log_config=None), Mock())
    with server.capture_signals():
        for number, at_once in ((signal.SIGHUP, False), (signal.SIGHUP, False), (signal.SIGTERM, True)):
            signal.raise_signal(number)
            assert (server.should_exit, server.force_exit) == (True, at_once)
