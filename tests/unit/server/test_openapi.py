"""The contract that is served, checked in and printed is one, and says what the server does."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from osqueue import limits
from osqueue.contract.error_codes import STATUS
from osqueue.contract.examples import EXAMPLES
from osqueue.contract.operations import BY_NAME, ROUTES
from osqueue.contract.schemas import NewJob
from osqueue.server.openapi import COMMON, FIELDS, OWN, document, text
from tests.support.caller import Caller
from tests.support.places import ROOT

DOCUMENT = json.loads(json.dumps(document()))


def operation(name: str) -> Any:
    route = BY_NAME[name]
    return DOCUMENT["paths"][route.path][route.method.lower()]


def test_the_file_is_what_the_tables_say() -> None:
    """Byte for byte: neither the interpreter nor the seed of its hashes may change it."""
    assert (ROOT / "openapi.json").read_text(encoding="utf-8") == text()


def test_the_server_gives_it_out() -> None:
    assert Caller().get("/openapi.json").body == DOCUMENT


def test_every_route_is_there_and_nothing_else() -> None:
    there = {(path, method.upper()) for path, each in DOCUMENT["paths"].items() for method in each}
    assert there == {(route.path, route.method) for route in ROUTES}
    assert all(operation(route.name)["operationId"] == route.name for route in ROUTES)


def test_every_parameter_of_a_path_is_described() -> None:
    for route in ROUTES:
        told = [each["name"] for each in operation(route.name)["parameters"] if each["in"] == "path"]
        assert told == re.findall(r"{(\w+)}", route.path), route.name


def test_every_reference_leads_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            mine = [value["$ref"]] if "$ref" in value else []
            return mine + [found for each in value.values() for found in references(each)]
        return [found for each in value for found in references(each)] if isinstance(value, list) else []

    found = set(references(DOCUMENT))
    assert found
    for reference in found:
        place: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_every_status_the_server_may_answer_is_named() -> None:
    assert set(STATUS.values()) <= {*COMMON, *OWN}
    for route in ROUTES:
        named = {int(status) for status in operation(route.name)["responses"]}
        assert {*COMMON, *route.faults} <= named


def test_what_the_gateway_says_itself_is_told_beside_what_the_functions_say() -> None:
    components = DOCUMENT["components"]
    told = {
        int(name.removeprefix("Status")): each["content"]["application/json"]["schema"]
        for name, each in components["responses"].items()
    }
    failure, message = ({"$ref": f"#/components/schemas/{name}"} for name in ("Failure", "Message"))
    assert {status for status, schema in told.items() if schema == {"oneOf": [failure, message]}} == {
        *(401, 403, 404, 413, 429, 500, 503)
    }
    assert all(schema == failure for schema in told.values() if "oneOf" not in schema)
    assert components["schemas"]["Message"]["required"] == ["message"]
    assert "direct invocation" in components["responses"]["Status405"]["description"]


def test_what_becomes_of_a_drawn_job_id_is_said_where_it_is_given() -> None:
    said = DOCUMENT["components"]["schemas"]["NewJob"]["properties"]["job_id"]
    branches = [said, *said.get("anyOf", ())]
    assert any("last byte" in each.get("description", "") for each in branches)


def test_what_is_said_of_fields_is_said_of_fields_there_are() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name, fields in FIELDS.items():
        assert fields.keys() <= schemas[name]["properties"].keys()


def test_items_of_batches_have_schemas_and_limits() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name, field, item in (
        ("NewJobs", "jobs", "NewJob"),
        ("Endings", "completions", "Ending"),
        ("HeartbeatRequest", "leases", "Held"),
    ):
        form = schemas[name]["properties"][field]
        assert form["items"] == {"$ref": f"#/components/schemas/{item}"}
        assert form["maxItems"] == limits.ITEMS_PER_REQUEST_MAX
    assert schemas["NewJob"]["properties"].keys() == set(NewJob.__struct_fields__)
    assert schemas["NewJob"]["additionalProperties"] is False


@pytest.mark.parametrize("name", [name for name, (request, _) in EXAMPLES.items() if request is not None])
def test_the_examples_of_requests_are_accepted(name: str) -> None:
    caller, route = Caller(), BY_NAME[name]
    job = caller.ask("POST", "/v1/queues/emails/jobs", EXAMPLES["enqueue"][0]).body["job_id"]
    caller.ask("PUT", "/v1/queues/emails/schedules/nightly", EXAMPLES["put_schedule"][0])
    batch = caller.ask("POST", "/v1/queues/emails/batches", {}).body["batch_id"]
    caller.ask("PUT", "/v1/pacers/stripe", EXAMPLES["put_pacer"][0])
    path = route.path.format(
        pacer="stripe",
        queue="emails",
        id=job,
        schedule="nightly",
        group="customer-7",
        batch=batch,
        worker="w-1",
    )
    assert caller.ask(route.method, path, EXAMPLES[name][0]).status in (200, 204)


def test_every_request_and_most_answers_have_an_example() -> None:
    assert {route.name for route in ROUTES if route.request is not None} <= EXAMPLES.keys()
