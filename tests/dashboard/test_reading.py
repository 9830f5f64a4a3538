"""What the page tells of jobs, and that it shows what people wrote as they wrote it, and runs none of it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Served

Pages = Callable[..., Page]
SCRIPT = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>\'"`${window.hacked=1}'


def test_a_job_tells_its_story_and_its_contents_when_asked(server: Served, page: Pages) -> None:
    queue = server.queue("stories")
    queue.enqueue({"to": "ada", "lines": [1, 2]}, id="order-42", kind="receipt", headers={"trace": "abc"})
    queue.claim(worker="worker-1")[0].fail("ValueError: first", retry_in=0)
    queue.claim(worker="worker-2")[0].complete({"sent": True})
    found = page("#/q/stories/jobs")
    found.get_by_role("link", name="order-42").click()
    expect(found.locator("header.job .mark")).to_have_text("completed")
    expect(found.locator(".timeline li.failed")).to_have_count(1)
    expect(found.locator(".timeline li.completed")).to_have_count(1)
    story = found.get_by_role("region", name="Why")
    expect(story).to_contain_text("ValueError: first")
    expect(story).to_contain_text("worker-2")
    expect(found.get_by_role("region", name="Facts")).to_contain_text("trace")
    found.get_by_role("button", name="Show payload and result").click()
    expect(found.get_by_label("Result")).to_contain_text('"sent": true')
    expect(found.get_by_text("No payload: ")).to_contain_text("a job that is over keeps none")
    queue.enqueue({"to": "ada"}, id="order-43")
    found.goto(f"{server.url}/#/q/stories/job/order-43")
    found.get_by_role("button", name="Show payload and result").click()
    expect(found.get_by_label("Payload")).to_contain_text('"to": "ada"')


def test_jobs_are_filtered(server: Served, page: Pages) -> None:
    queue = server.queue("filters")
    queue.enqueue(1, kind="red", id="one", group="g-1", headers={"tenant": "acme"})
    job = queue.enqueue(2, kind="blue", id="two", delay=600).job_id
    queue.enqueue(3, kind="blue", id="three", priority=0)
    queue.claim(worker="worker-7")
    found = page("#/q/filters/jobs")
    rows = found.locator("table.jobs tbody tr")
    expect(rows).to_have_count(3)
    for label, value, id in [
        ("Kind", "red", "one"),
        ("Id", "two", "two"),
        ("Worker", "worker-7", "three"),
        ("Header", "tenant=acme", "one"),
        ("Header", "tenant", "one"),
        ("Group", "g-1", "one"),
    ]:
        field = found.get_by_label(label, exact=True)
        field.fill(value)
        field.press("Enter")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text(id)
        field.fill("")
        field.press("Enter")
        expect(rows).to_have_count(3)
    states = found.get_by_role("navigation", name="States")
    expect(states.get_by_role("link", name="running")).to_have_text("running1")
    states.get_by_role("link", name="scheduled").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("two")
    found.reload()  # the address tells the filter
    expect(states.get_by_role("link", name="scheduled")).to_have_attribute("aria-current", "page")
    expect(rows).to_have_count(1)
    found.get_by_label("Id", exact=True).fill(job or "")
    found.get_by_label("Id", exact=True).press("Enter")
    expect(found.get_by_role("heading", name="two")).to_be_visible()


def test_what_is_typed_stays_while_news_comes(server: Served, page: Pages) -> None:
    queue = server.queue("typing")
    queue.enqueue(1)
    found = page("#/q/typing/jobs")
    waiting = found.get_by_role("link", name="waiting")
    expect(waiting).to_have_text("waiting1")
    found.get_by_label("Group", exact=True).fill("half a wo")
    queue.enqueue(2)
    expect(waiting).to_have_text("waiting2")
    expect(found.get_by_label("Group", exact=True)).to_have_value("half a wo")


def test_a_rare_job_is_looked_for_further_when_asked(server: Served, page: Pages) -> None:
    queue = server.beside("haystack")
    queue.enqueue_many([{"payload": n} for n in range(45_000)])
    queue.enqueue("needle", id="needle", headers={"tenant": "acme"})
    found = page("#/q/haystack/jobs?header=tenant%3Dacme")
    expect(found.get_by_text("None found so far.")).to_be_visible()
    told = found.locator(".more [role=status]")
    expect(told).to_have_text("0 jobs found; looked at 20,000 of about 45,001 jobs")
    found.get_by_role("button", name="Look further").click()
    expect(found.locator("table.jobs tbody tr")).to_contain_text("needle")
    expect(found.locator(".more")).to_have_count(0)  # nothing is left to look at
    found.get_by_role("link", name="Show all jobs again").click()
    expect(found.locator("table.jobs tbody tr")).to_have_count(50)


def test_many_jobs_come_page_by_page(server: Served, page: Pages) -> None:
    server.beside("pages").enqueue_many([{"payload": n} for n in range(120)])
    found = page("#/q/pages/jobs")
    rows = found.locator("table.jobs tbody tr")
    expect(rows).to_have_count(50)
    found.get_by_role("button", name="More jobs").click()
    expect(rows).to_have_count(100)
    found.get_by_role("button", name="More jobs").click()
    expect(rows).to_have_count(120)
    expect(found.get_by_role("button", name="More jobs")).to_have_count(0)


def test_a_job_or_a_queue_that_is_not_there_is_said_not_to_be(server: Served, page: Pages) -> None:
    server.queue("there").enqueue(1)
    expect(page("#/q/there/job/none").get_by_role("alert")).to_contain_text("none")
    expect(page("#/q/nowhere").get_by_text("There is no queue nowhere here.")).to_be_visible()


def test_limits_and_workers_are_shown_with_what_is_used(server: Served, page: Pages) -> None:
    queue = server.queue("limited")
    queue.enqueue_many([{"payload": n, "kind": "mail"} for n in range(9)])
    queue.configure(max_running=4, kinds={"mail": {"max_running": 3}})
    queue.claim(limit=2, worker="worker-1")
    found = page("#/q/limited")
    limits = found.get_by_role("region", name="Limits and kinds")
    expect(limits.get_by_role("meter", name="Running of the queue")).to_have_attribute(
        "aria-valuetext", "2 of 4"
    )
    expect(limits.get_by_role("meter", name="Running of mail")).to_have_attribute("aria-valuetext", "2 of 3")
    worker = found.get_by_role("region", name="Workers").get_by_role("row", name="worker-1")
    expect(worker.get_by_role("cell").first).to_have_text("2")
    worker.get_by_role("link").click()
    expect(found.locator("table.jobs tbody tr")).to_have_count(2)


def test_nothing_that_people_wrote_is_run(server: Served, page: Pages) -> None:
    queue = server.queue("hostile")
    text = SCRIPT[:60]
    for n in range(4):
        queue.enqueue(
            {SCRIPT: [SCRIPT]}, id=f"{text}{n}", kind=text, group=f"{text}{n}", headers={"x-note": SCRIPT}
        )
    queue.claim(worker=SCRIPT[:100])[0].fail(f"{SCRIPT}: {SCRIPT}", retry=False)
    queue.claim(worker=SCRIPT[:100])[0].fail(SCRIPT, retry_in=600)
    done = queue.claim(worker=SCRIPT[:100])[0]
    done.heartbeat()
    queue.open_batch(text, on_complete={"kind": text, "payload": 1})
    queue.configure(kinds={text: {"max_running": 3}}, groups={f"{text}3": {"paused": True}})
    found = page("#/q/hostile")
    expect(found.get_by_role("region", name="Limits and kinds")).to_contain_text(text)
    expect(found.get_by_role("region", name="Groups")).to_contain_text(text)
    expect(found.get_by_role("region", name="Workers")).to_contain_text(SCRIPT[:100])
    found.goto(f"{server.url}/#/q/hostile/groups")
    expect(found.get_by_role("table")).to_contain_text(f"{text}3")
    found.goto(f"{server.url}/#/q/hostile/batches")
    expect(found.locator(".batch")).to_contain_text(text)
    found.goto(f"{server.url}/#/q/hostile/dead")
    expect(found.get_by_role("listitem").filter(has_text="<img")).to_have_count(1)
    found.get_by_role("button", name="Show jobs").click()
    expect(found.get_by_role("table")).to_contain_text(SCRIPT)
    found.goto(f"{server.url}/#/q/hostile/jobs")
    rows = found.locator("table.jobs tbody tr")
    expect(rows).to_have_count(4)
    for at in range(4):
        rows.nth(at).get_by_role("link").click()
        found.get_by_role("button", name="Show payload").click()
        expect(found.get_by_label("Payload")).to_contain_text("onerror")
        found.go_back()
        expect(rows).to_have_count(4)
    assert found.evaluate("window.hacked") is None
    assert found.locator("img, script:not([src])").count() == 0


def test_batches_tell_how_far_they_are(server: Served, page: Pages) -> None:
    queue = server.queue("batches")
    found = page("#/q/batches/batches")
    expect(found.get_by_text("There is no queue batches here.")).to_be_visible()
    with queue.batch("import", on_complete={"kind": "report", "payload": 1}) as batch:
        batch.enqueue_many([{"payload": n, "max_attempts": 1} for n in range(5)])
    one, two, *_ = queue.claim(limit=2, worker="w")
    one.complete()
    two.fail("ValueError: no")
    found = page("#/q/batches/batches")
    card = found.locator(".batch")
    expect(card).to_contain_text("import")
    expect(card).to_contain_text("When all have ended comes a job of kind report.")
    expect(card.get_by_role("meter")).to_have_attribute("aria-valuetext", "2 of 5 jobs have ended")
    for told in ("2 of 5 ended", "3 left", "1 completed", "1 dead", "0 cancelled"):
        expect(card).to_contain_text(told)
    card.get_by_role("link", name="1 dead").click()
    expect(found.locator("table.jobs tbody tr")).to_have_count(1)
    found.get_by_role("link", name="all", exact=True).click()
    expect(found.locator("table.jobs tbody tr")).to_have_count(5)
    found.get_by_role("link", name="Show all jobs again").click()
    expect(found.get_by_label("Batch", exact=True)).to_have_count(0)
