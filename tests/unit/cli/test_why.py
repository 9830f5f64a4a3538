"""``osqueue why``: a job's story, for people and for scripts."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from tests.support.commands import Run, answer, dead


def test_why_tells_the_story(run: Run, q: Queue[Any]) -> None:
    done = q.enqueue({"to": "ada"}, id="order-7")
    q.claim(worker="w1")[0].fail("mailbox full", retry_in=60)
    story = answer(run("why", "emails", "order-7"))
    assert (story["job_id"], story["state"], story["source"]) == (done.job_id, "failing", "queue")
    assert [step["what"].partition(":")[0] for step in story["steps"]][1:] == ["lease 1", "lease 1"]
    assert story["now"].startswith("waiting for retry until")
    assert story["next"].startswith("attempt 2 of 3")


def test_why_is_text_for_people_with_nothing_a_terminal_acts_upon(
    run: Run, q: Queue[Any], terminal: None
) -> None:
    (job_id,) = dead(q, "x")
    q.redrive()
    q.claim()[0].fail("\x1b[31mred\nand more")
    text = run("why", "emails", job_id).stdout
    assert "\\x1b[31mred and more" in text
    assert "\x1b" not in text
    assert text.startswith(f"job {job_id} of queue emails: failed\n")
    assert "\nnow:  a dead letter since" in text
    assert "\nnext: kept until" in text


def test_why_knows_what_only_the_archive_knows_and_says_what_nobody_knows(run: Run, q: Queue[Any]) -> None:
    (job_id,) = dead(q, "x")
    other = f"{job_id[:-3]}{int(job_id[-3], 16) ^ 1:x}{job_id[-2:]}"  # never its own
    result = run("why", "emails", other)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "neither the queue nor its archive knows it" in result.stderr
    assert "no queue 'mails'" in run("why", "mails", job_id).stderr
