"""All queues at a glance, in a browser."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Opener, Served, served

# What a page shows is waited for; none of these waits is a time that something has to keep.
Pages = Callable[..., Page]


def test_an_empty_store_says_so_and_the_first_job_comes_by_itself(tmp_path: Path, opened: Opener) -> None:
    with served(tmp_path) as server:
        page = opened(server.url)
        expect(page.get_by_text("No queues here yet")).to_be_visible()
        server.queue("mail").enqueue({"to": "ada"})
        expect(page.get_by_role("link", name="mail", exact=True)).to_be_visible()


def test_numbers_of_each_queue_change_by_themselves(server: Served, page: Pages) -> None:
    queue = server.queue("numbers")
    queue.enqueue_many([{"payload": n} for n in range(1_284)])
    found = page()
    line = found.get_by_role("row", name="numbers")
    expect(line.locator("[data-name=waiting]")).to_contain_text("1,284")
    leases = queue.claim(limit=3, worker="w")
    expect(line.locator("[data-name=running]")).to_have_text("3")
    for lease in leases:
        lease.fail("ValueError: no", retry=False)
    expect(line.locator("[data-name=dead]")).to_have_text("3")
    expect(line.locator("[data-name=waiting]")).to_contain_text("1,281")


def test_what_other_processes_commit_is_seen(server: Served, page: Pages) -> None:
    server.beside("elsewhere").enqueue({"n": 1})
    found = page("#/q/elsewhere")
    waiting = found.locator(".figure", has_text="Waiting").locator("strong")
    expect(waiting).to_have_text("1")
    server.beside("elsewhere").enqueue_many([{"payload": n} for n in range(41)])
    expect(waiting).to_have_text("42")


def test_queues_are_sorted_and_found(server: Served, page: Pages) -> None:
    server.queue("aaa").enqueue(1)
    server.queue("zzz").enqueue_many([{"payload": n} for n in range(5_000)])
    found = page()
    names = found.locator("tbody th a")
    expect(names.first).to_have_text("aaa")
    found.get_by_role("button", name="Waiting").click()
    expect(names.first).to_have_text("zzz")
    found.get_by_role("searchbox").fill("aa")
    expect(names).to_have_count(1)
    expect(names).to_have_text("aaa")
    found.get_by_role("searchbox").fill("nothing like it")
    expect(found.get_by_text("No queue has")).to_be_visible()


def test_what_is_wrong_is_said_in_words(server: Served, page: Pages) -> None:
    queue = server.queue("resting")
    queue.enqueue_many([{"payload": n} for n in range(7)])
    queue.pause()
    found = page()
    expect(found.get_by_label("What needs attention")).to_contain_text("resting paused with 7 jobs waiting")


def test_a_server_that_dies_is_said_to_and_all_goes_on_when_it_is_back(
    tmp_path: Path, opened: Opener
) -> None:
    with served(tmp_path) as server:
        queue = server.queue("mail")
        queue.enqueue(1)
        page = opened(server.url)
        waiting = page.get_by_role("row", name="mail").locator("[data-name=waiting]")
        expect(waiting).to_have_text("1")
        server.end(signal.SIGKILL)
        expect(page.get_by_role("alert")).to_contain_text("The server does not answer. Trying again")
        expect(waiting).to_have_text("1")  # what was seen last
        server.start()
        queue.enqueue(2)
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(waiting).to_have_text("2")


def test_requests_to_the_store_are_counted_and_shown(server: Served, page: Pages) -> None:
    expect(page().get_by_text("store requests")).to_be_visible()


def test_a_queue_that_cannot_be_read_says_so_on_its_page(tmp_path: Path, opened: Opener) -> None:
    with served(tmp_path) as server:
        server.beside("mail").enqueue(1)
        server.beside("torn").enqueue(1)
        (head,) = (tmp_path / "store").glob("*/torn/0/head")
        head.write_bytes(b"no head")
        found = opened(server.url, "#/q/torn")
        expect(found.get_by_label("What needs attention")).to_be_visible()
        found.get_by_role("link", name="Settings").click()
        expect(found.get_by_role("main")).to_contain_text("Reading…")
        found.get_by_role("link", name="All queues", exact=True).click()
        expect(found.get_by_role("row", name="mail").locator("[data-name=waiting]")).to_have_text("1")
