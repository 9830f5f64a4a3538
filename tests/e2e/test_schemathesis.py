"""The server against its own contract: requests made up from openapi.json, good and bad ones.

Whatever is asked, the answer is one that the contract names: no 5xx, the right content type, a body of the schema.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pytest
import schemathesis

from osqueue.errors import Rejected
from osqueue.server.app import Api, ApiRequest
from osqueue.server.reading import pairs_of
from tests.support.made_up import OPERATIONS, made_up, unsaid

EXAMPLES = 12  # of each operation
DEADLINE_S = 1.1  # nobody waits for longer than a tenth of a second
PATIENT_S = 30.0


def wsgi(api: Api) -> Any:
    """An Api as a WSGI application."""

    def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        path = environ.get("REQUEST_URI") or environ["RAW_URI"]
        try:
            query = pairs_of(environ.get("QUERY_STRING", ""))
        except Rejected:
            query = (("?", "?"),)
        method, where = environ["REQUEST_METHOD"], path.partition("?")[0]
        response = api.answer(ApiRequest(method, where, query, body, DEADLINE_S))
        if response.code == "timeout":  # the machine was busy: this one may take its time
            response = api.answer(ApiRequest(method, where, query, body, PATIENT_S))
        start(f"{response.status} .", list(response.headers.items()))
        return io.BytesIO(response.body)

    return application


@pytest.fixture(scope="module")
def contract() -> Any:
    """The contract, as the API itself returns it."""
    return schemathesis.openapi.from_wsgi("/openapi.json", wsgi(Api("memory://")))


# Requests are made up by the process that runs a test: at collection, each process would make up all of them.
schema = schemathesis.pytest.from_fixture("contract")


def keeps_the_contract(name: str) -> Any:
    """A test of one operation. Each has a name of its own, so that workers can share them out."""

    @schema.include(operation_id=name).parametrize()
    @made_up(EXAMPLES)
    def test(case: Any) -> None:
        case.call_and_validate(excluded_checks=unsaid(name))

    return test


for _name in OPERATIONS:
    globals()[f"test_{_name}_keeps_the_contract"] = keeps_the_contract(_name)
