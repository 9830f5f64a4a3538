"""The pipeline's operations review on a telephone: whatever it tells can be read there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from osqueue.pipeline.report.model import DAY_MS, HOUR_MS, Point, Quantiles, QueueSection, Totals
from osqueue.pipeline.report.page import page as drawn
from tests.dashboard.conftest import PHONE, scroll_width
from tests.pipeline.made_report import HOSTILE, OCTOBER_MS, a_queue, a_report, a_week_before

Opener = Callable[..., Page]
LONG = Quantiles(750_000, 45_296_000, 99 * HOUR_MS, 400 * HOUR_MS)  # with two units each: 12 h 35 min
LONG_NAME = "thumbnails-of-the-largest-customers-in-every-region-of-the-world"

# What is on the page, unfolded, and reaches beyond the window or is wider than what it lies in.
CUT = """() => [...document.body.querySelectorAll("*")]
  .filter(each => each.checkVisibility() && !each.closest("caption, .hits") && !each.closest("details > :not(summary)"))
  .filter(each => {
    const box = each.getBoundingClientRect();
    const hides = !(each instanceof SVGElement) && getComputedStyle(each).overflowX !== "visible";
    return box.right > innerWidth + 0.5 || box.left < -0.5 || hides && each.scrollWidth > each.clientWidth;
  })
  .map(each => `${each.tagName} ${each.className.baseVal ?? each.className}: ${each.textContent.slice(0, 60)}`)"""


def a_large_queue(name: str) -> QueueSection:
    """One with long names, long waits and millions of jobs."""
    queue = a_queue(name, error=HOSTILE * 3, worker="a-worker-of-a-long-name-" * 3)
    points = tuple(
        Point(OCTOBER_MS + n * HOUR_MS, *(1_234_567,) * 5, 2_345_678, 1_000_000, 3_456_789, LONG)
        for n in range(168)
    )
    totals = Totals(*(9_876_543,) * 7, 9_876_543, 8_000_000, LONG, LONG, LONG)
    return replace(queue, totals=totals, points=points, runs=queue.runs, week=queue.week)


@pytest.fixture
def review(opened: Opener, tmp_path: Path) -> Page:
    queues = a_large_queue("emails"), a_large_queue(LONG_NAME)
    report = a_report(*queues, span_ms=7 * DAY_MS)
    before = a_week_before("emails", f"{LONG_NAME}-that-ended")
    path = tmp_path / "review.html"
    path.write_text(drawn(replace(report, before=before, others=((f"{LONG_NAME}-2", queues[0].totals),))))
    return opened(f"file://{tmp_path}", path.name, phone=True)


def test_nothing_of_a_review_is_cut_off_on_a_telephone(review: Page) -> None:
    expect(review.get_by_role("heading", name="Worst hours").first).to_be_visible()
    expect(review.get_by_role("heading", name="Against the period before")).to_be_visible()
    assert review.evaluate(CUT) == []
    assert scroll_width(review) <= PHONE["width"]


def test_the_numbers_behind_a_plot_scroll_by_themselves(review: Page) -> None:
    review.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    expect(review.get_by_role("region", name="Wait before the start").first).to_be_visible()
    assert scroll_width(review) <= PHONE["width"]
