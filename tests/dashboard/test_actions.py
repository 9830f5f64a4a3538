"""What an operator does on the page, and what becomes of it in the queue."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from osqueue import Queue
from tests.dashboard.conftest import Served

Pages = Callable[..., Page]
_names = count(1)
LETTERS = 10_000
OTHERS = 3


@pytest.fixture
def queue(server: Served) -> Queue[Any]:
    return server.queue(f"queue-{next(_names)}")


def at(queue: Queue[Any], tab: str = "") -> str:
    return f"#/q/{queue.name}/{tab}"


def dead(queue: Queue[Any], count: int, error: str) -> None:
    queue.enqueue_many([{"payload": n, "max_attempts": 1} for n in range(count)])
    while leases := list(queue.claim(limit=1_000, worker="w")):
        queue.fail_many([{"job_id": each.job_id, "token": each.token, "error": error} for each in leases])


# ── A queue ──────────────────────────────────────────────────────────────────
def test_a_queue_is_paused_and_resumed(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue(1)
    found = page(at(queue))
    found.get_by_role("button", name="Pause").click()
    found.get_by_role("button", name="Resume").wait_for()
    assert queue.stats()["paused"]
    found.get_by_role("button", name="Resume").click()
    found.get_by_role("button", name="Pause").wait_for()
    assert not queue.stats()["paused"]


def test_a_pause_says_when_it_ends(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue(1, kind="mail")
    queue.pause(for_=3_600)
    queue.pause(kind="mail", for_=7_200)
    found = page(at(queue))
    expect(found.get_by_role("heading", level=1)).to_contain_text("paused, goes on in")
    expect(found.get_by_role("row", name="mail")).to_contain_text("paused, goes on in")


def test_what_waits_is_cancelled_after_the_number_was_said(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue_many([{"payload": n} for n in range(12)])
    queue.claim(limit=2, worker="w")
    found = page(at(queue))
    found.get_by_role("button", name="Cancel all").click()
    dialog = found.get_by_role("dialog")
    expect(dialog).to_contain_text("10 jobs will be cancelled for good, and the workers of 2 running jobs")
    dialog.get_by_role("button", name="Leave it").click()
    expect(dialog).to_have_count(0)
    assert queue.stats()["queued"] == 10
    found.get_by_role("button", name="Cancel all").click()
    found.get_by_role("button", name="Cancel 12 jobs").click()
    expect(found.get_by_text("10 jobs cancelled, 2 asked to stop.")).to_be_visible()
    assert queue.stats()["counters"]["cancelled"] == 10


def test_settings_are_changed_and_refusals_are_said(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue(1)
    found = page(at(queue, "settings"))
    found.get_by_label("Running at once", exact=True).fill("7")
    found.get_by_label("Rate", exact=True).fill("100/min")
    found.get_by_label("Keep results").fill("2 h")
    found.get_by_role("button", name="Change max_running, rate, result_ttl").click()
    expect(found.get_by_text("max_running, rate, result_ttl changed.")).to_be_visible()
    settings = queue.stats()["settings"]
    assert (settings["max_running"], settings["rate"], settings["result_ttl"]) == (7, [100, 60.0], 7_200.0)
    found.get_by_label("Attempts").fill("-3")
    found.get_by_role("button", name="Change max_attempts").click()
    expect(found.locator(".toast.bad")).to_contain_text("max_attempts: -3")
    found.locator(".toast.bad").get_by_role("button", name="Dismiss").click()
    found.get_by_label("Keep dead letters").fill("soon")
    found.get_by_role("button", name="Change").click()
    expect(found.locator(".toast.bad")).to_contain_text("“soon” is no length of time")
    found.get_by_role("button", name="Put back").click()
    found.get_by_label("Rate", exact=True).fill("")
    found.get_by_label("Attempts").fill("4")
    found.get_by_role("button", name="Change").click()
    expect(found.get_by_role("button", name="Nothing changed")).to_be_visible()
    settings = queue.stats()["settings"]
    assert (settings["max_attempts"], settings["rate"]) == (4, None)


def test_a_kind_is_set_up_changed_paused_and_dropped(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue_many([{"payload": n, "kind": "mail"} for n in range(3)])
    found = page(at(queue))
    found.get_by_role("button", name="Set up a kind").click()
    dialog = found.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Save")).to_be_disabled()
    dialog.get_by_label("Kind", exact=True).fill("mail")
    dialog.get_by_label("Running at once").fill("2")
    dialog.get_by_label("Rate", exact=True).fill("10/s")
    dialog.get_by_label("Run within").fill("5 min")
    dialog.get_by_role("button", name="Save").click()
    line = found.get_by_role("region", name="Limits and kinds").get_by_role("row", name="mail")
    expect(line).to_contain_text("run within 5 min")
    own = {"max_running": 2, "rate": [10, 1.0], "run_within": 300.0}
    assert queue.stats()["settings"]["kinds"] == {"mail": own}

    line.get_by_role("button", name="Settings").click()
    expect(dialog.get_by_label("Attempts")).to_have_attribute("placeholder", "queue: 3")
    dialog.get_by_label("Rate", exact=True).fill("")  # as the queue says
    dialog.get_by_label("Priority").fill("10")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("priority: 10")
    dialog.get_by_label("Priority").fill("1")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    assert queue.stats()["settings"]["kinds"] == {
        "mail": {"max_running": 2, "run_within": 300.0, "priority": 1}
    }

    line.get_by_role("button", name="Pause").click()
    expect(line.get_by_text("paused")).to_be_visible()
    assert list(queue.claim(worker="w")) == []
    line.get_by_role("button", name="Resume").click()
    line.get_by_role("button", name="Settings").click()
    dialog.get_by_role("button", name="Drop its settings").click()
    expect(dialog).to_have_count(0)
    assert queue.stats()["settings"]["kinds"] == {}


def test_groups_are_paused_limited_and_cancelled(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue_many([{"payload": n, "group": f"order-{n % 2}"} for n in range(8)])
    queue.claim(worker="w")
    found = page(at(queue, "groups"))
    group = found.get_by_role("row", name="order-0")
    group.get_by_role("button", name="Pause").click()
    group.get_by_role("button", name="Resume").click()
    group.get_by_role("button", name="Pause").wait_for()

    # One that neither runs nor is held is found by its name.
    expect(found.get_by_role("row", name="order-1")).to_have_count(0)
    found.get_by_label("Group", exact=True).fill("order-1")
    group = found.get_by_role("row", name="order-1")
    group.get_by_role("button", name="Limits").click()
    dialog = found.get_by_role("dialog")
    expect(dialog.get_by_label("Running at once")).to_have_attribute("placeholder", "queue: 1")
    dialog.get_by_label("Running at once").fill("3")
    dialog.get_by_label("Rate").fill("10/min")
    dialog.get_by_role("button", name="Save").click()
    expect(group.locator("[data-name=own]")).to_have_text("running at once 3, rate 10/min")
    assert queue.stats()["groups"] == {"order-1": {"running": 3, "rate": [10, 60.0]}}
    group.get_by_role("button", name="Limits").click()
    dialog.get_by_label("Rate").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    assert queue.stats()["groups"] == {"order-1": {"running": 3}}

    group.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel 4 jobs").click()
    expect(found.get_by_text("4 jobs cancelled, 0 asked to stop.")).to_be_visible()
    assert queue.stats()["queued"] == 3
    group.get_by_role("link", name="order-1").click()
    expect(found.get_by_label("Group", exact=True)).to_have_value("order-1")


def test_jobs_like_those_that_are_shown_are_cancelled(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue_many([{"payload": n, "kind": "a" if n % 3 else "b"} for n in range(9)])
    found = page(at(queue, "jobs?kind=a"))
    expect(found.locator("table.jobs tbody tr")).to_have_count(6)
    found.get_by_role("button", name="Cancel all like these").click()
    found.get_by_role("button", name="Cancel 6 jobs").click()
    expect(found.get_by_text("6 jobs cancelled, 0 asked to stop.")).to_be_visible()
    assert queue.stats()["queued"] == 3


def test_a_batch_is_sealed_and_cancelled(queue: Queue[Any], page: Pages) -> None:
    batch = queue.open_batch("import").batch_id
    queue.enqueue_many([{"payload": n, "batch": batch} for n in range(4)])
    found = page(at(queue, "batches"))
    card = found.locator(".batch")
    card.get_by_role("button", name="Seal").click()
    found.get_by_role("button", name="Seal 1 batch").click()
    expect(card.locator(".mark")).to_have_text("sealed")
    card.get_by_role("button", name="Cancel").click()
    dialog = found.get_by_role("dialog")
    expect(dialog).to_contain_text("4 jobs will be cancelled for good")
    dialog.get_by_role("button", name="Cancel 4 jobs").click()
    expect(card.locator(".mark")).to_have_text("over")
    expect(card).to_contain_text("4 cancelled")
    assert queue.batch_status(batch).cancelled == 4


def test_a_schedule_is_paused_resumed_and_run(queue: Queue[Any], page: Pages) -> None:
    queue.schedule("nightly", "0 3 * * *", {"all": True})
    found = page(at(queue, "schedules"))
    line = found.get_by_role("row", name="nightly")
    line.get_by_role("button", name="Pause").click()
    line.get_by_role("button", name="Resume").click()
    line.get_by_role("button", name="Pause").wait_for()
    line.get_by_role("button", name="Run now").click()
    found.get_by_role("button", name="Enqueue 1 job").click()
    expect(found.get_by_text("1 job of nightly is enqueued.")).to_be_visible()
    assert queue.stats()["queued"] == 1


# ── A job ────────────────────────────────────────────────────────────────────
def test_a_job_is_run_now_and_cancelled(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue(1, id="later", delay=3_600)
    found = page(at(queue, "job/later"))
    found.get_by_role("button", name="Run now").click()
    expect(found.locator("header.job .mark")).to_have_text("waiting")
    found.get_by_role("button", name="Cancel", exact=True).click()
    found.get_by_role("button", name="Cancel 1 job").click()
    expect(found.locator("header.job .mark")).to_have_text("cancelled")
    assert queue.status("later").state == "cancelled"


def test_a_dead_job_is_redriven(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue(1, id="unlucky")
    queue.claim(worker="w")[0].fail("ValueError: no", retry=False)
    found = page(at(queue, "job/unlucky"))
    expect(found.locator("header.job .mark")).to_have_text("dead")
    found.get_by_role("button", name="Redrive").click()
    found.get_by_role("button", name="Redrive 1 job").click()
    expect(found.locator("header.job .mark")).to_have_text("waiting")


def test_a_job_is_erased(queue: Queue[Any], page: Pages) -> None:
    queue.enqueue({"secret": 1}, id="letter")
    found = page(at(queue, "job/letter"))
    found.get_by_role("button", name="Erase").click()
    found.get_by_role("button", name="Erase 1 job").click()
    expect(found.get_by_text("1 job is erased.")).to_be_visible()
    assert queue.stats()["queued"] == 0


# ── Dead letters ─────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def many(server: Served) -> Queue[Any]:
    """A queue with 10,000 dead letters of one error, and a few of another."""
    beside = server.beside("graveyard")
    dead(beside, LETTERS, "ConnectionError: connection to smtp-7 refused")
    dead(beside, OTHERS, "KeyError: 'customer'")
    return server.queue("graveyard")


def test_ten_thousand_dead_letters_are_grouped_redriven_and_erased(many: Queue[Any], page: Pages) -> None:
    found = page(at(many, "dead"))
    expect(found.get_by_text("10,003 dead letters of 2 errors")).to_be_visible()
    first = found.get_by_role("listitem").filter(has_text="refused")
    expect(first.locator(".count")).to_have_text("10,000")

    # Their jobs come page by page.
    first.get_by_role("button", name="Show jobs").click()
    expect(first.get_by_role("row")).to_have_count(51)
    first.get_by_role("button", name="More").click()
    expect(first.get_by_role("row")).to_have_count(101)
    first.get_by_role("button", name="Hide jobs").click()

    # A few are erased, and the others stay.
    rare = found.get_by_role("listitem").filter(has_text="KeyError")
    rare.get_by_role("button", name="Erase").click()
    dialog = found.get_by_role("dialog")
    expect(dialog).to_contain_text("3 dead letters of graveyard will be erased")
    dialog.get_by_role("button", name="Erase 3 jobs").click()
    expect(found.get_by_text("3 jobs erased.")).to_be_visible()
    expect(rare).to_have_count(0)
    assert many.stats()["failed"] == LETTERS

    # And all that are left are queued again.
    found.get_by_role("button", name="Redrive all").click()
    expect(dialog).to_contain_text("10,000 dead letters")
    dialog.get_by_role("button", name="Redrive 10,000 jobs").click()
    expect(found.get_by_text("10,000 jobs queued again.")).to_be_visible()
    expect(found.get_by_text("No dead letters.")).to_be_visible()
    assert many.stats()["queued"] == LETTERS


def test_those_of_one_error_are_redriven_and_the_others_stay(queue: Queue[Any], page: Pages) -> None:
    dead(queue, 4, "ValueError: odd")
    dead(queue, 2, "KeyError: even")
    found = page(at(queue, "dead"))
    found.get_by_role("listitem").filter(has_text="odd").get_by_role("button", name="Redrive").click()
    found.get_by_role("button", name="Redrive 4 jobs").click()
    expect(found.get_by_text("4 jobs queued again.")).to_be_visible()
    expect(found.get_by_text("2 dead letters of 1 error")).to_be_visible()


def test_an_action_that_is_refused_says_why_and_can_be_tried_again(queue: Queue[Any], page: Pages) -> None:
    dead(queue, 1, "ValueError: odd")
    found = page(at(queue, "dead"))
    found.get_by_role("button", name="Redrive all").click()
    refusal = '{"error": {"code": "throttled", "message": "too many at once."}}'
    found.route("**/redrive", lambda route: route.fulfill(status=429, body=refusal))
    found.get_by_role("button", name="Redrive 1 job").click()
    expect(found.get_by_role("dialog").get_by_role("alert")).to_have_text("too many at once.")
    found.unroute("**/redrive")
    found.get_by_role("button", name="Redrive 1 job").click()
    expect(found.get_by_text("1 job queued again.")).to_be_visible()
