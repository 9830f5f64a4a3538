"""The handlers that travel with the library are those that are deployed."""

from __future__ import annotations

import pytest

from osqueue.aws_lambda import Function, handlers
from osqueue.contract.functions import FUNCTIONS, HANDLERS
from tests.support.functions_at_work import environment, load

NAMES = [each.name for each in FUNCTIONS]


@pytest.fixture(autouse=True)
def _around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment("memory://").items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", NAMES)
def test_every_function_has_the_handler_that_is_deployed(name: str) -> None:
    here, deployed = getattr(handlers, name), load(name)
    assert type(here) is type(deployed) is Function
    assert here.name == deployed.name == name


def test_the_table_names_their_module() -> None:
    assert handlers.__name__ == HANDLERS


def test_what_is_no_function_has_no_handler() -> None:
    with pytest.raises(AttributeError, match=f"no function hello; there are {', '.join(NAMES)}"):
        handlers.hello  # noqa: B018 - to ask is the test
