"""``osqueue serve`` against the contract, over HTTP: requests made up from openapi.json, good and bad ones.

``test_schemathesis`` asks the API itself; here a process answers, with all that lies between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis

from osqueue.contract.functions import WAIT_S_MAX
from tests.support.made_up import OPERATIONS, made_up, unsaid
from tests.support.patience import PATIENCE
from tests.support.places import ROOT
from tests.support.serve_process import serving

EXAMPLES = 6  # of each operation
SHORT_S = 0.05  # nobody waits for longer


@pytest.fixture(scope="module")
def contract() -> Any:
    """The contract, from the repository."""
    return schemathesis.openapi.from_path(ROOT / "openapi.json")


# Requests are made up by the process that runs a test: at collection, each process would make up all of them.
schema = schemathesis.pytest.from_fixture("contract")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a server answers."""
    with serving("memory://", "--log-level", "error") as server:
        yield server.url
        assert server.end() == 0
        assert not server.log


def in_a_hurry(case: Any) -> None:
    """Waits that are allowed are short ones."""
    for part in (case.query, case.body):
        with suppress(AttributeError, TypeError, ValueError, KeyError):  # it has none, or what is no time
            if 0 < float(part["wait"]) <= WAIT_S_MAX:
                part["wait"] = SHORT_S


def says_when_to_come_again(context: Any, response: Any, case: Any) -> None:
    """The one answer of a server in trouble is 503, with Retry-After."""
    assert response.status_code < 500 or (response.status_code == 503 and "retry-after" in response.headers)


def keeps_the_contract(name: str) -> Any:
    """A test of one operation."""

    @schema.include(operation_id=name).parametrize()
    @made_up(EXAMPLES)
    def test(case: Any, url: str) -> None:
        in_a_hurry(case)
        response = case.call(base_url=url, timeout=PATIENCE)
        if response.status_code == 431:  # so much query that it was not read
            return
        case.validate_response(
            response,
            excluded_checks=[*unsaid(name), schemathesis.checks.not_a_server_error],
            additional_checks=[says_when_to_come_again],
        )

    return test


for _name in OPERATIONS:
    globals()[f"test_{_name}_keeps_the_contract"] = keeps_the_contract(_name)
