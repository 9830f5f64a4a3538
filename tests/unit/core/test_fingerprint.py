"""Which errors are the same error."""

from __future__ import annotations

import pytest

from osqueue.core.fingerprint import CHARS, error_of, fingerprint, last_error, normalised
from osqueue.core.state import PastAttempt


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("user 17 not found in '/srv/a.db'", "user <n> not found in <text>"),
        ("connection to 10.0.0.1:5432 refused after 1.5s", "connection to <n> refused after <n>s"),
        ("GET https://a.example/c?d=1 -> 503", "GET <url> -> <n>"),
        ("at 0xdeadbeef, commit deadbeef12", "at <hex>, commit <hex>"),
        ("job 01890a5d-ac96-774b-bcce-b302099a8057 is gone", "job <uuid> is gone"),
        ("mail to ada@example.com bounced", "mail to <email> bounced"),
        ("/var/log/x.log: No such file", "<path>: No such file"),
        ("C:\\Users\\ada\\x.txt is locked", "<path> is locked"),
        ("2030-01-31T08:00:00Z is too late", "<time> is too late"),
        ('bad "a \\" b" here', "bad <text> here"),
        ("it can't be and/or isn't", "it can't be and/or isn't"),
        ("two\n  lines", "two lines"),
        ("", ""),
    ],
)
def test_what_differs_between_two_occurrences_is_left_out(message: str, expected: str) -> None:
    assert normalised(message) == expected


def test_a_fingerprint_is_short_stable_and_tells_types_apart() -> None:
    mark = fingerprint("ValueError", "row 7 is bad")
    assert mark == fingerprint("ValueError", "row 8 is bad") == "49c7cd58"
    assert len(mark) == CHARS
    assert mark != fingerprint("KeyError", "row 7 is bad")
    assert mark != fingerprint("ValueError", "row 7 is good")


def test_words_that_look_like_hexadecimal_are_words() -> None:
    assert normalised("defaced facade added") == "defaced facade added"


def test_half_a_surrogate_pair_has_a_fingerprint() -> None:
    assert len(fingerprint("", "\udc80")) == CHARS


def test_all_leases_that_ran_out_are_one_error() -> None:
    one = PastAttempt(1, "a", 0, 1, "stalled")
    other = PastAttempt(2, "b", 5, 9, "stalled")
    assert error_of(one) == error_of(other)


def test_a_job_died_of_its_last_failure_whatever_came_after() -> None:
    history = (
        PastAttempt(1, "a", 0, 1, "failed", "first"),
        PastAttempt(2, "a", 2, 3, "failed", "second", "OSError"),
        PastAttempt(3, "a", 4, 5, "released"),
    )
    assert last_error(history) == ("OSError", "second")
    assert last_error(()) == ("", "")
