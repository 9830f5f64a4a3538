"""A page that never answers ends a test, and the next one gets another browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Error

from tests.dashboard.conftest import Browsers


def test_a_page_that_never_answers_ends_the_test_and_the_next_has_a_browser(browsers: Browsers) -> None:
    with browsers.limited(seconds=2) as browser, pytest.raises(Error, match="closed"):
        browser.new_page().evaluate("() => { for (;;) {} }")  # has no limit of its own
    with browsers.limited(seconds=60) as browser:
        assert browser.new_page().evaluate("1 + 1") == 2
