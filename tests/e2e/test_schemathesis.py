"""The server against its own contract: requests made up from openapi.json, good and bad ones.

Whatever is asked, the answer is one that the contract names: no 5xx, the right content type, a body of the schema.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from osqueue.contract.operations import ROUTES
from osqueue.errors import Rejected
from osqueue.server.app import Api, ApiRequest
from osqueue.server.reading import pairs_of

EXAMPLES = 12  # of each operation
DEADLINE_S = 1.1  # nobody waits for longer than a tenth of a second
PATIENT_S = 30.0
BATCHES = {
    "enqueue",
    "complete",
    "turn",
    "heartbeat",
}  # a bad item of theirs fails alone, so the request succeeds


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


API = Api("memory://")
schema = schemathesis.openapi.from_wsgi("/openapi.json", wsgi(API))


def keeps_the_contract(name: str) -> Any:
    """A test of one operation. Each has a name of its own, so that workers can share them out."""

    @schema.include(operation_id=name).parametrize()
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def test(case: Any) -> None:
        # What the schema cannot say (printable text, either a delay or a time) may be refused all the same.
        excluded = [positive_data_acceptance]
        if name in BATCHES:
            excluded.append(negative_data_rejection)
        case.call_and_validate(excluded_checks=excluded)

    return test


for _route in ROUTES:
    if _route.name != "openapi":  # the contract does not ask for itself
        globals()[f"test_{_route.name}_keeps_the_contract"] = keeps_the_contract(_route.name)
