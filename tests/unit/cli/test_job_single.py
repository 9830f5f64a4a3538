"""``osqueue job``: one job is shown, its result read and kept, its content purged."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from tests.support.commands import Run, answer


def test_a_job_is_shown_with_or_without_the_word(run: Run, q: Queue[Any]) -> None:
    done = q.enqueue(1, id="order-7")
    assert answer(run("job", "emails", "order-7")) == answer(run("job", "show", "emails", str(done.job_id)))
    assert run("job").exit_code == 2 or "Usage" in run("job").stdout
    assert "show" in run("job", "--help").stdout


@pytest.mark.usefixtures("terminal")
def test_people_see_how_far_it_is(run: Run, q: Queue[Any]) -> None:
    job_id = str(q.enqueue(1, start_within=600).job_id)
    q.claim()[0].heartbeat(progress=0.4, note="page 40 of 100")
    shown = run("job", "emails", job_id).stdout
    assert "40%" in shown
    assert "page 40 of 100" in shown
    assert "start by" in shown


def test_a_result_is_read_and_kept_longer(run: Run, q: Queue[Any]) -> None:
    done = q.enqueue(1, result_ttl=60)
    result = run("job", "result", "emails", str(done.job_id))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: not_finished:")
    q.claim()[0].complete({"sent": True})
    assert answer(run("job", "result", "emails", str(done.job_id))) == {"sent": True}
    told = answer(run("job", "ttl", "emails", str(done.job_id), "2d"))
    assert told == {"job_id": done.job_id, "result_ttl": 172_800}
    found = q.status(str(done.job_id))
    assert found is not None
    assert found.expires_at is not None
    assert found.finished_at is not None
    assert (found.expires_at - found.finished_at).days == 2
    assert run("job", "ttl", "emails", str(done.job_id), "31d").exit_code == 2
    assert "no queue 'mails'" in run("job", "result", "mails", "x").stderr


def test_a_job_is_purged_only_when_it_is_meant(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1, id="order-7")
    result = run("job", "purge", "emails", "order-7")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    told = answer(run("job", "purge", "emails", "order-7", "--yes"))
    assert (told["purged"], told["cancelled"], told["ids"], told["left"]) == (1, 1, 1, [])
    assert q.status("order-7") is None
    assert run("job", "purge", "emails", "order-7", "--yes").exit_code == 1
    q.enqueue(1, id="order-8")
    q.claim()
    assert run("job", "purge", "emails", "order-8", "--yes").stderr.startswith("error: conflict:")
