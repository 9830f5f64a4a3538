"""Who works on a queue: what its page shows of the workers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from osqueue import Queue
from tests.dashboard.conftest import Served, broken_rules, scroll_width
from tests.support.at_work import until

Pages = Callable[..., Page]
SCRIPT = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>'
LONG = "a-name-without-any-place-to-break-it-that-is-as-long-as-somebody-may-choose"
_numbers = count(1)


@pytest.fixture
def queue(server: Served) -> Queue[Any]:
    queue = server.queue(f"worked-{next(_numbers)}")
    queue.enqueue_many([{"payload": n} for n in range(9)])
    return queue


def says(server: Served, queue: Queue[Any], id: str, **entry: Any) -> None:
    """A worker says that it is there."""
    with httpx.Client(base_url=server.url) as client:
        told = client.put(f"/v1/queues/{queue.name}/workers/{id}", json=entry)
    assert told.status_code == 204


def lose(server: Served, queue: Queue[Any], id: str, **entry: Any) -> None:
    """One says so, and nothing more for three seconds."""
    says(server, queue, id, every=1, **entry)
    until(lambda: any(each.id == id and each.state == "lost" for each in queue.workers()))


def workers(found: Page) -> Locator:
    return found.get_by_role("region", name="Workers")


def test_workers_are_shown_with_what_they_say_and_hold_the_lost_ones_first(
    server: Served, queue: Queue[Any], page: Pages
) -> None:
    lose(server, queue, "w-lost", name="mailer-3", host="ip-10-0-0-3", concurrency=4)
    says(
        server,
        queue,
        "w-1",
        name="mailer-1",
        host="ip-10-0-0-1",
        version="1.4.2",
        concurrency=8,
        kinds=["letter", "parcel"],
        uptime=7_200,
    )
    says(server, queue, "w-2", name="mailer-2", draining=True, concurrency=2)
    queue.claim(limit=3, worker="mailer-1")
    queue.claim(worker="by hand")
    found = page(f"#/q/{queue.name}")
    rows = workers(found).locator("tbody tr")
    expect(rows.locator("th a")).to_have_text(["mailer-3", "mailer-1", "mailer-2", "by hand"])
    expect(rows.locator(".mark")).to_have_text(["lost", "running", "draining", "unregistered"])
    expect(rows.locator("[data-name=holds]")).to_have_text(["0 of 4", "3 of 8", "0 of 2", "1"])
    for told in ("letter, parcel", "on ip-10-0-0-1", "1.4.2"):
        expect(rows.nth(1).get_by_role("rowheader")).to_contain_text(told)
    expect(rows.nth(1).locator("[data-name=since]")).to_have_text("2 h ago")
    expect(rows.nth(2).get_by_role("rowheader")).to_contain_text("any kind")
    expect(workers(found)).to_contain_text("1 lost, 1 running, 1 draining, 1 unregistered")
    expect(found.get_by_label("What needs attention")).to_contain_text("1 worker is lost")
    bad = found.evaluate("getComputedStyle(document.querySelector('.mark.lost')).color")
    expect(rows.nth(0).locator("th a")).to_have_css("color", bad)

    # What they hold follows at once, by their jobs.
    queue.claim(limit=2, worker="mailer-2")
    expect(rows.nth(2).locator("[data-name=holds]")).to_have_text("2 of 2")
    rows.nth(2).get_by_role("link").click()
    expect(found.locator("table.jobs tbody tr")).to_have_count(2)


def test_workers_of_one_name_are_lines_of_their_own_and_hold_together(
    server: Served, queue: Queue[Any], page: Pages
) -> None:
    says(server, queue, "w-1", name="mailer", concurrency=8)
    says(server, queue, "w-2", name="mailer", concurrency=8)
    queue.claim(limit=3, worker="mailer")
    found = page(f"#/q/{queue.name}")
    expect(workers(found).locator("[data-name=holds]")).to_have_text(["3 together", "3 together"])


def test_jobs_that_nobody_takes_are_said_so(server: Served, queue: Queue[Any], page: Pages) -> None:
    found = page(f"#/q/{queue.name}")
    expect(workers(found)).to_contain_text("Nobody works on it, and 9 jobs wait.")
    expect(found.get_by_label("What needs attention")).to_contain_text("nobody works on it")
    queue.claim(worker="by hand")
    expect(workers(found).get_by_role("row", name="by hand")).to_be_visible()
    expect(found.get_by_text("obody works on it")).to_have_count(0)


@pytest.mark.parametrize("state", ["there", "pushed", "paused", "empty"])
def test_where_somebody_is_there_or_nothing_waits_nothing_is_said(
    server: Served, queue: Queue[Any], page: Pages, state: str
) -> None:
    if state == "there":
        says(server, queue, "w-1", name="mailer")
    elif state == "pushed":
        queue.configure(consumers={"mailer": {"target": "mailer"}})
    elif state == "paused":
        queue.pause()
    else:
        queue.cancel_many()
    found = page(f"#/q/{queue.name}")
    expect(workers(found)).to_contain_text("mailer" if state == "there" else "Nobody is there.")
    expect(found.get_by_text("obody works on it")).to_have_count(0)


def test_of_many_workers_twenty_are_shown_until_somebody_wants_all(
    server: Served, queue: Queue[Any], page: Pages
) -> None:
    for at in range(25):
        says(server, queue, f"w-{at}", name=f"mailer-{at:02}")
    found = page(f"#/q/{queue.name}")
    rows = workers(found).locator("tbody tr")
    expect(rows).to_have_count(20)
    found.get_by_role("button", name="Show all 25 workers").click()
    expect(rows).to_have_count(25)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_long_and_hostile_names_are_text_that_all_can_read(
    server: Served, queue: Queue[Any], page: Pages, phone: bool, dark: bool
) -> None:
    kinds = [SCRIPT[:60], *(f"{LONG[:50]}-{n}" for n in range(6))]
    lose(server, queue, "lost", name=LONG, host=LONG, version=SCRIPT, concurrency=4)
    says(server, queue, "hostile", name=SCRIPT, host=SCRIPT, version=SCRIPT, kinds=kinds, concurrency=3)
    says(server, queue, "drains", name=LONG[:40], draining=True)
    queue.claim(limit=3, worker=SCRIPT)
    queue.claim(worker=f"{SCRIPT} by hand")
    found = page(f"#/q/{queue.name}", phone=phone, dark=dark)
    expect(workers(found).locator("th a")).to_have_text([LONG, SCRIPT, LONG[:40], f"{SCRIPT} by hand"])
    expect(workers(found)).to_contain_text("3 more")
    assert found.evaluate("window.hacked") is None
    assert found.locator("img, script:not([src])").count() == 0
    assert broken_rules(found) == {}
    assert scroll_width(found) <= found.viewport_size["width"]  # type: ignore[index]
    cut = "each => each.scrollWidth > each.clientWidth + 1 || each.getBoundingClientRect().right > innerWidth"
    assert workers(found).locator("tbody :is(th, td)").evaluate_all(f"all => all.filter({cut}).length") == 0
