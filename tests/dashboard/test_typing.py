"""What somebody types stays, whatever the page is told meanwhile.

The page's clock stands still in these tests: no frame and no timer comes between two keys, as on the slowest machine.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from osqueue import Queue
from tests.dashboard.conftest import Opener, Served, served

Pages = Callable[..., Page]
_numbers = count(1)
AHEAD_S = 5  # the page's clock stops there: later than its now, earlier than it takes silence for the end of a stream
FORMS = {  # what leads to each from the page of a queue, and a field of it
    "settings": (["Settings"], "Keep results"),
    "filters": (["Jobs"], "Header"),
    "a group's name": (["Groups"], "Group"),
    "a kind": (["Set up a kind…"], "Rate"),
    "a group's limits": (["Groups", "Limits…"], "Rate"),
}


def dead(queue: Queue[Any]) -> None:
    queue.claim(worker="w")[0].fail("ValueError: no", retry=False)


def shown(found: Page, dead: int) -> None:
    """The page has heard of that many dead letters."""
    expect(found.locator(".tabs .badge")).to_have_text(str(dead))


@pytest.fixture
def queue(server: Served) -> Queue[Any]:
    """One with three jobs that wait, and a dead one."""
    queue = server.queue(f"typing-{next(_numbers)}")
    queue.enqueue_many([{"payload": n} for n in range(4)])
    queue.configure_group("g", running=2)
    queue.schedule("nightly", "0 3 * * *", 1)
    dead(queue)
    return queue


@pytest.fixture
def stopped(queue: Queue[Any], page: Pages) -> Page:
    """The page of the queue when all is there that does not wait for a click: no frame and no timer comes any more."""
    found = page(f"#/q/{queue.name}", own_clock=True)
    found.locator(".chart canvas").first.wait_for()
    shown(found, dead=1)
    found.clock.pause_at(found.evaluate("Date.now()") / 1_000 + AHEAD_S)
    return found


def press(found: Page, *names: str) -> None:
    """Press them, one after another."""
    for name in names:
        found.locator("main").get_by_text(name, exact=True).first.dispatch_event("click")


@pytest.mark.parametrize("form", FORMS)
def test_all_that_is_typed_at_once_stays(queue: Queue[Any], stopped: Page, form: str) -> None:
    found = stopped
    way, label = FORMS[form]
    press(found, *way)
    found.get_by_label(label, exact=True).wait_for()
    fields = found.locator("input:visible" if found.locator("dialog").count() == 0 else "dialog input")
    many = fields.count()
    for at in reversed(range(many)):
        fields.nth(at).fill(f"{at + 1}0")
    dead(queue)
    shown(found, dead=2)
    found.clock.resume()
    dead(queue)
    shown(found, dead=3)
    for at in range(many):
        expect(fields.nth(at)).to_have_value(f"{at + 1}0")


def test_a_filter_that_is_typed_at_once_is_looked_for(queue: Queue[Any], stopped: Page) -> None:
    queue.enqueue(1, kind="mail", headers={"tenant": "acme"})
    queue.enqueue(1, kind="mail")
    found = stopped
    press(found, "Jobs")
    for label, value in [("Header", "tenant=acme"), ("Kind", "mail")]:
        found.get_by_label(label, exact=True).fill(value)
        found.get_by_label(label, exact=True).press("Enter")
    found.clock.resume()
    expect(found.locator("table.jobs tbody tr")).to_have_count(1)
    expect(found.get_by_label("Header")).to_have_value("tenant=acme")
    expect(found.get_by_label("Kind", exact=True)).to_have_value("mail")
    found.get_by_role("link", name="Show all jobs again").click()
    expect(found.get_by_label("Header")).to_have_value("")
    expect(found.locator("table.jobs tbody tr")).to_have_count(6)


def test_keys_go_into_the_dialog_that_was_asked_for(stopped: Page) -> None:
    found = stopped
    press(found, "Set up a kind…")
    found.keyboard.type("4g")  # elsewhere these are keys of the page
    expect(found.get_by_role("dialog").get_by_label("Kind", exact=True)).to_have_value("4g")


def test_what_is_typed_while_settings_are_saved_stays(queue: Queue[Any], page: Pages) -> None:
    found = page(f"#/q/{queue.name}/settings")
    saving: list[Route] = []

    def hold(route: Route) -> None:
        saving.append(route)

    found.route("**/v1/queues/*", hold)
    found.get_by_label("Running at once", exact=True).fill("7")
    found.get_by_label("Attempts").fill("4")
    with found.expect_request("**/v1/queues/*"):
        found.get_by_role("button", name="Change max_running, max_attempts").click()
    found.get_by_label("Attempts").fill("5")
    found.get_by_label("Burst", exact=True).fill("3")
    saving[0].continue_()
    expect(found.get_by_role("button", name="Change burst, max_attempts")).to_be_visible()
    assert (queue.stats()["settings"]["max_running"], queue.stats()["settings"]["max_attempts"]) == (7, 4)
    expect(found.get_by_label("Attempts")).to_have_value("5")


def test_a_dialog_outlives_the_server(tmp_path: Path, opened: Opener) -> None:
    with served(tmp_path) as server:
        queue = server.queue("mail")
        queue.enqueue_many([{"payload": n} for n in range(2)])
        found = opened(server.url, "#/q/mail")
        found.get_by_role("button", name="Set up a kind").click()
        field = found.get_by_label("Kind", exact=True)
        field.fill("half a wo")
        server.end(signal.SIGKILL)
        expect(found.locator(".banner")).to_be_visible()
        expect(field).to_have_value("half a wo")
        server.start()
        dead(queue)
        shown(found, dead=1)
        expect(found.locator(".banner")).to_have_count(0)
        expect(field).to_have_value("half a wo")


def test_a_question_stays_when_what_it_is_about_goes(queue: Queue[Any], page: Pages) -> None:
    found = page(f"#/q/{queue.name}/schedules")
    found.get_by_role("button", name="Run now").click()
    queue.unschedule("nightly")
    expect(found.get_by_role("row", name="nightly", include_hidden=True)).to_have_count(0)
    expect(found.get_by_role("dialog")).to_contain_text("Run nightly now?")
    found.get_by_role("button", name="Enqueue 1 job").click()
    expect(found.get_by_role("dialog").get_by_role("alert")).to_contain_text("nightly")
