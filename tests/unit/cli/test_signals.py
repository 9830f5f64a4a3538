"""Commands that wait to be ended: a signal ends the wait wherever it arrives, and the handlers go back."""

from __future__ import annotations

import signal
import socket
import threading
import time

from osqueue.cli.signals import ended_by


def test_a_signal_ends_the_wait_whichever_thread_the_system_hands_it_to() -> None:
    def tell() -> None:
        time.sleep(0.2)  # until the main thread sleeps
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with ended_by(signal.SIGTERM) as ending:
        threading.Thread(target=tell).start()
        assert ending.wait(60)


def test_a_signal_before_the_wait_ends_it_at_once() -> None:
    with ended_by(signal.SIGTERM, signal.SIGINT) as ending:
        assert not ending.is_set()
        signal.raise_signal(signal.SIGINT)
        assert ending.is_set()
        assert ending.wait()
        assert ending.wait(0), "it stays asked for"


def test_other_signals_and_the_time_do_not_ask_for_the_end() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with ended_by(signal.SIGTERM) as ending:
            signal.raise_signal(signal.SIGUSR1)  # before the wait, and most likely once more in it
            later = threading.Timer(0.05, signal.raise_signal, [signal.SIGUSR1])
            later.start()
            assert not ending.wait(0.3)
            later.join()
            assert not ending.wait(0)
        assert heard == [signal.SIGUSR1] * 2
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_first_signal_ends_and_the_second_does_what_it_did_before() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with ended_by(signal.SIGTERM):
            signal.raise_signal(signal.SIGTERM)
            assert heard == []
            signal.raise_signal(signal.SIGTERM)
            assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_second_hang_up_does_nothing_until_the_wait_is_over() -> None:
    heard: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda number, frame: heard.append(number)) for number in numbers]
    try:
        with ended_by(*numbers) as ending:
            signal.raise_signal(signal.SIGHUP)
            assert ending.is_set()
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert heard == [signal.SIGTERM, signal.SIGHUP]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_the_handlers_go_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    wakes = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakes)
    with ended_by(signal.SIGTERM, signal.SIGINT):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert signal.set_wakeup_fd(wakes) == wakes


def test_a_file_with_something_to_read_ends_the_wait_but_asks_for_no_end() -> None:
    ear, bell = socket.socketpair()
    with ear, bell, ended_by(signal.SIGTERM) as ending:
        bell.send(b"!")
        assert not ending.wait(None, ear.fileno())
        signal.raise_signal(signal.SIGTERM)
        assert ending.wait(None, ear.fileno())
