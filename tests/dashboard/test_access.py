"""The page for everybody: on a phone, by keyboard, to a screen reader, in both themes, and with fewer rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from osqueue.asgi.tokens import digest_of
from tests.dashboard.conftest import Opener, Served, broken_rules, scroll_width, served
from tests.support.at_work import until

Pages = Callable[..., Page]
PLACES = {  # with something that is there when the page is
    "#/": "table.queues tbody tr",
    "#/q/mail": ".chart canvas",
    "#/q/mail/jobs": "table.jobs tbody tr",
    "#/q/mail/job/order-42": ".timeline li",
    "#/q/mail/dead": ".death",
    "#/q/mail/batches": ".batch",
    "#/q/mail/groups": "table tbody tr",
    "#/q/mail/schedules": "table tbody tr",
    "#/q/mail/settings": ".settings input",
}
LONG = "a-name-without-any-place-to-break-it-that-is-as-long-as-somebody-may-choose"


@pytest.fixture(scope="module", autouse=True)
def furnished(server: Served) -> None:
    """Queues with something on every page, some of it long."""
    queue = server.queue("mail")
    queue.enqueue({"text": LONG * 9}, id="order-42", kind=LONG[:60], group=LONG, delay=600)
    queue.enqueue_many([{"payload": n, "group": "g", "headers": {LONG[:40]: LONG * 3}} for n in range(5)])
    queue.enqueue_many([{"payload": n, "kind": "mail"} for n in range(5)])
    queue.claim(worker="w")[0].fail(LONG * 3, retry=False)
    queue.claim(limit=2, worker=LONG)
    queue.configure(max_running=10, rate=(100, 60), kinds={LONG[:60]: {"max_running": 3, "priority": 1}})
    queue.configure_group(LONG, running=2, rate=(10, 60))
    queue.open_batch(LONG[:60], on_complete={"kind": LONG[:60], "payload": 1})
    with queue.batch("sealed") as batch:
        batch.enqueue(1)
    queue.schedule(LONG[:60], "0 3 * * *", 1, tz="America/Argentina/Buenos_Aires")
    server.queue(LONG[:60]).enqueue_many([{"payload": n} for n in range(100)])
    server.queue(LONG[:60]).pause()


@pytest.mark.parametrize("place", PLACES)
def test_a_phone_scrolls_in_one_direction_alone(page: Pages, place: str) -> None:
    found = page(place, phone=True)
    found.locator(PLACES[place]).first.wait_for()
    assert scroll_width(found) <= 390


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing(page: Pages, place: str, dark: bool) -> None:
    found = page(place, dark=dark)
    found.locator(PLACES[place]).first.wait_for()
    assert broken_rules(found) == {}


@pytest.mark.parametrize(
    ("place", "button"),
    [("dead", "Redrive all"), ("", "Set up a kind"), ("groups", "Limits"), ("batches", "Seal")],
)
def test_axe_finds_nothing_in_dialogs(page: Pages, place: str, button: str) -> None:
    found = page(f"#/q/mail/{place}", phone=True)
    found.get_by_role("button", name=button).first.click()
    found.get_by_role("dialog").wait_for()
    assert broken_rules(found) == {}
    assert scroll_width(found) <= 390


def test_the_tab_that_is_shown_is_in_sight_on_a_phone(page: Pages) -> None:
    found = page("#/q/mail/settings", phone=True)
    expect(found.get_by_role("link", name="Settings", exact=True)).to_be_in_viewport()


def test_all_of_it_is_reached_by_keys(server: Served, page: Pages) -> None:
    found = page()
    found.get_by_role("link", name="mail", exact=True).wait_for()
    keys = found.keyboard
    keys.press("/")
    keys.type("mai")
    keys.press("Enter")
    expect(found.get_by_role("heading", level=1)).to_have_text("mail")
    keys.press("2")
    found.locator("table.jobs tbody tr").first.wait_for()
    keys.press("j")
    keys.press("j")
    expect(found.locator("table.jobs tbody a").nth(1)).to_be_focused()
    keys.press("k")
    keys.press("Enter")
    found.locator(".timeline").wait_for()
    keys.press("Escape")
    expect(found.locator(".timeline")).to_have_count(0)
    keys.press("3")
    redrive = found.get_by_role("button", name="Redrive all")
    redrive.focus()
    keys.press("Enter")
    dialog = found.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert found.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    keys.press("Escape")
    expect(dialog).to_have_count(0)
    expect(redrive).to_be_focused()  # where it was before
    keys.press("?")
    expect(dialog).to_contain_text("all queues")
    keys.press("Escape")
    keys.press("g")
    found.locator("table.queues").wait_for()
    keys.press("j")
    expect(found.locator("a.row").first).to_be_focused()


def test_the_first_key_leads_past_the_frame(page: Pages) -> None:
    found = page("#/q/mail")
    found.locator(".chart").first.wait_for()
    found.keyboard.press("Tab")
    expect(found.get_by_role("link", name="Skip to the content")).to_be_focused()
    found.keyboard.press("Enter")
    found.keyboard.press("Tab")
    expect(found.get_by_role("button", name="Pause").first).to_be_focused()


# ── Rights ───────────────────────────────────────────────────────────────────
ACTIONS = [
    "Pause",
    "Cancel all…",
    "Cancel all like these…",
    "Set up a kind…",
    "Limits…",
    "Seal…",
    "Cancel…",
    "Redrive all",
    "Erase all",
    "Redrive",
    "Erase",
    "Cancel",
    "Run now",
]


def test_who_may_only_read_sees_no_actions(tmp_path: Path, opened: Opener) -> None:
    with served(tmp_path, "dashboard", "--read-only") as server:
        queue = server.beside("mail")
        queue.enqueue(1, id="order-42", delay=60)
        queue.enqueue(2)
        queue.claim(worker="w")[0].fail("ValueError: no", retry=False)
        queue.open_batch("open")
        queue.configure_group("customer-7", running=2)
        for place in (
            *("#/q/mail", "#/q/mail/dead", "#/q/mail/job/order-42"),
            *("#/q/mail/batches", "#/q/mail/groups"),
        ):
            found = opened(server.url, place)
            found.locator(PLACES[place]).first.wait_for()
            expect(found.get_by_text("read only")).to_be_visible()
            for action in ACTIONS:
                assert found.get_by_role("button", name=action, exact=True).count() == 0, (place, action)
        found = opened(server.url, "#/q/mail/settings")
        expect(found.locator(".settings input").first).not_to_be_editable()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    rows = [("reader", "read", '["mail"]'), ("boss", "operate", '["*"]')]
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        "".join(
            f'[[token]]\nname = "{name}"\nsha256 = "{digest_of(name)}"\nroles = ["{role}"]\nqueues = {queues}\n'
            for name, role, queues in rows
        )
    )
    with served(tmp_path, "serve", "--tokens", str(tokens)) as server:
        yield server


def test_a_token_is_asked_for_and_its_holder_sees_what_it_covers(guarded: Served, opened: Opener) -> None:
    guarded.beside("mail").enqueue(1)
    guarded.beside("secret").enqueue(1)
    found = opened(guarded.url)
    field = found.get_by_label("Token")
    field.fill("wrong")
    field.press("Enter")
    expect(found.get_by_role("alert")).to_contain_text("not known")
    assert broken_rules(found) == {}
    field.fill("reader")
    field.press("Enter")
    expect(found.get_by_role("link", name="mail", exact=True)).to_be_visible()
    expect(found.get_by_role("link", name="secret")).to_have_count(0)
    found.get_by_role("link", name="mail", exact=True).click()
    found.locator(".chart").first.wait_for()
    expect(found.get_by_role("button", name="Pause")).to_have_count(0)
    found.reload()  # the tab still knows it
    found.locator(".chart").first.wait_for()
    found.get_by_role("button", name="leave").click()
    field.fill("boss")
    field.press("Enter")
    expect(found.get_by_role("button", name="Pause")).to_be_visible()
    found.keyboard.press("g")
    expect(found.get_by_role("link", name="secret")).to_be_visible()


def answered(guarded: Served, status: int) -> None:
    """Until the boss's token is answered so: the file is read again after a while."""
    with httpx.Client(base_url=guarded.url, headers={"authorization": "Bearer boss"}) as client:
        until(lambda: client.get("/dashboard/me").status_code == status)


def test_what_is_typed_outlives_a_token(guarded: Served, opened: Opener) -> None:
    guarded.beside("mail").enqueue(1)
    found = opened(guarded.url, "#/q/mail/settings")
    token = found.get_by_label("Token")
    token.fill("boss")
    token.press("Enter")
    field = found.get_by_label("Running at once", exact=True)
    field.fill("7")
    tokens = guarded.folder / "tokens.toml"
    known = tokens.read_text()
    tokens.write_text(known.replace(digest_of("boss"), digest_of("chief")))
    answered(guarded, 401)
    change = found.get_by_role("button", name="Change max_running")
    change.click()
    expect(token).to_be_focused()
    assert broken_rules(found) == {}
    found.keyboard.press("Escape")
    found.keyboard.press("Escape")
    expect(token).to_be_visible()
    tokens.write_text(known)
    answered(guarded, 200)
    token.fill("boss")
    token.press("Enter")
    expect(token).to_have_count(0)
    expect(field).to_have_value("7")
    change.click()
    expect(found.get_by_text("max_running changed.")).to_be_visible()
