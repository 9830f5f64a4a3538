"""Payloads and tracebacks on the command line, and fields that are masked."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.cli.contents import MASK, masked
from tests.support.commands import Run, answer

PAYLOAD = {"to": "ada", "auth": [{"Password": "x", "user": "ada"}]}
MASKED = {"to": "ada", "auth": [{"Password": MASK, "user": "ada"}]}


@pytest.fixture
def job(q: Queue[Any]) -> str:
    found = str(q.enqueue(PAYLOAD, id="order-7", max_attempts=1).job_id)
    (lease,) = q.claim()
    try:
        raise OSError("mailbox full")
    except OSError as error:
        lease.fail(error)
    return found


def test_a_job_is_shown_with_its_payload_and_traceback_on_request(run: Run, job: str) -> None:
    found = answer(run("job", "emails", job, "--payload", "--traceback", "--redact", "password"))
    assert found["payload"] == MASKED
    assert found["traceback"].endswith("OSError: mailbox full\n")
    bare = answer(run("job", "emails", job))
    assert not {"payload", "traceback", "left_out"} & bare.keys()


def test_so_are_dead_letters(run: Run, job: str) -> None:
    page = answer(run("dlq", "ls", "emails", "--payload", "--traceback", "--redact", "PASSWORD"))
    (letter,) = page["dead_letters"]
    assert (letter["job_id"], letter["payload"]) == (job, MASKED)
    assert "OSError: mailbox full" in letter["traceback"]


@pytest.mark.usefixtures("terminal")
def test_people_read_the_traceback_line_by_line(run: Run, job: str) -> None:
    for command in (("job", "emails", job), ("dlq", "ls", "emails")):
        lines = run(*command, "--payload", "--traceback", "--redact", "password").stdout.splitlines()
        assert lines[-1].startswith("OSError: mailbox full")
        assert any("Traceback" in line for line in lines)
        assert MASK in "\n".join(lines)
        assert '"x"' not in "\n".join(lines)


@pytest.mark.usefixtures("terminal")
def test_people_hear_what_cannot_be_given(run: Run, q: Queue[Any]) -> None:
    job = str(q.enqueue(1).job_id)
    q.claim()[0].complete()
    said = run("job", "emails", job, "--payload", "--traceback").stderr
    assert "no payload: a job that is over keeps none." in said
    assert "no traceback" in said


def test_a_mask_needs_a_payload_that_is_shown(run: Run, job: str) -> None:
    done = run("job", "emails", job, "--redact", "password")
    assert (done.exit_code, "add --payload" in done.stderr) == (2, True)


def test_a_cancel_of_a_dead_letter_is_a_conflict(run: Run, job: str) -> None:
    done = run("job", "emails", job, "--cancel")
    assert (done.exit_code, "it is failed already" in done.stderr) == (1, True)


@pytest.mark.parametrize("value", [1, "password", None, [1, "password"]])
def test_what_has_no_fields_stays_as_it_is(value: Any) -> None:
    assert masked(value, {"password"}) == value
