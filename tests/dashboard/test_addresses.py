"""The page of whatever an address names: a bucket, a server, functions invoked directly, and the deployed bundle as it
runs on this machine. What an operator does there once through all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from osqueue import Queue
from osqueue.devstack import Stack
from tests.dashboard.conftest import Opener, served
from tests.support.patience import PATIENCE


@pytest.fixture(params=["s3", "serve", "lambda", "dev"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as running:
        if request.param == "s3":
            endpoint, bucket = request.getfixturevalue("s3_endpoint"), request.getfixturevalue("s3_bucket")
            yield f"s3://{bucket}/some/prefix?endpoint={endpoint}"
        elif request.param == "serve":
            yield running.enter_context(served(tmp_path, "serve")).url
        elif request.param == "lambda":
            request.getfixturevalue("aws_environment")
            server = request.getfixturevalue("api_server")
            url = running.enter_context(server.api_server(f"memory://{tmp_path}"))
            yield f"lambda://{server.PREFIX}?endpoint={url}"
        else:
            store = f"file://{tmp_path}/deployed"
            yield running.enter_context(
                Stack(store, processes=1, schedule_seconds=0, patience_s=PATIENCE)
            ).url


def furnished(address: str) -> Queue[Any]:
    queue: Queue[Any] = Queue.connect(address, "mail")
    with queue.batch("letters") as batch:
        batch.enqueue({"to": "ada"}, id="letter", headers={"tenant": "acme"})
        batch.enqueue({"to": "bob"})
    queue.enqueue({"to": "eve"}, id="grouped", group="customer-7", delay=600)
    queue.enqueue({"to": "mallory"}, id="unlucky", kind="risky", max_attempts=1, priority=0)
    queue.claim(kinds=["risky"], worker="w")[0].fail("ValueError: no")
    return queue


def test_what_is_at_an_address_is_shown_and_changed(address: str, tmp_path: Path, opened: Opener) -> None:
    queue = furnished(address)
    with served(tmp_path / "page", address=address) as server:
        found = opened(server.url)
        line = found.get_by_role("row", name="mail")
        expect(line.locator("[data-name=waiting]")).to_have_text("3")
        expect(line.locator("[data-name=dead]")).to_have_text("1")
        line.get_by_role("link", name="mail", exact=True).click()
        found.locator(".chart").first.wait_for()
        expect(found.locator("footer")).to_contain_text(
            "a day" if address.startswith("s3:") else "API requests"
        )
        found.get_by_role("button", name="Pause", exact=True).click()
        expect(found.get_by_role("button", name="Resume")).to_be_visible()
        assert queue.stats()["paused"]
        tour(found)
    assert queue.stats()["settings"]["kinds"] == {"risky": {"max_attempts": 5}}
    assert queue.stats()["groups"] == {"customer-7": {"running": 2}}
    assert (queue.stats()["failed"], queue.stats()["queued"]) == (0, 1)


def tour(found: Page) -> None:
    """Jobs by a header, one of them, its batch, its group; then the dead letter and its kind."""
    found.get_by_role("link", name="Jobs").click()
    header = found.get_by_label("Header")
    header.fill("tenant=acme")
    header.press("Enter")
    rows = found.locator("table.jobs tbody tr")
    expect(rows).to_have_count(1)
    rows.get_by_role("link", name="letter").click()
    found.get_by_role("button", name="Show payload").click()
    expect(found.get_by_label("Payload")).to_contain_text('"to": "ada"')

    found.get_by_role("link", name="Batches").click()
    expect(found.locator(".batch")).to_contain_text("0 of 2 ended")
    found.locator(".batch").get_by_role("button", name="Cancel").click()
    found.get_by_role("dialog").get_by_role("button", name="Cancel 2 jobs").click()
    expect(found.locator(".batch .mark")).to_have_text("over")

    found.get_by_role("link", name="Groups").click()
    found.get_by_label("Group", exact=True).fill("customer-7")
    found.get_by_role("row", name="customer-7").get_by_role("button", name="Limits").click()
    found.get_by_role("dialog").get_by_label("Running at once").fill("2")
    found.get_by_role("button", name="Save").click()
    expect(found.get_by_text("The limits of customer-7 are changed.")).to_be_visible()

    found.get_by_role("link", name="Dead letters").click()
    found.get_by_role("button", name="Redrive all").click()
    found.get_by_role("button", name="Redrive 1 job").click()
    expect(found.get_by_text("1 job queued again.")).to_be_visible()

    found.get_by_role("link", name="Now").click()
    found.get_by_role("button", name="Set up a kind").click()
    found.get_by_role("dialog").get_by_label("Kind").fill("risky")
    found.get_by_role("dialog").get_by_label("Attempts").fill("5")
    found.get_by_role("button", name="Save").click()
    expect(found.get_by_role("row", name="risky")).to_contain_text("attempts 5")
