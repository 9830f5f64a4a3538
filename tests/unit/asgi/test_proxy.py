"""The dashboard of an API elsewhere: its requests go there, and its answers come back as they are."""

from __future__ import annotations

import asyncio
import json

import pytest

from osqueue.asgi.proxy import ApiProxy
from osqueue.asgi.tokens import Identity
from osqueue.client.transports.address import open_transport
from osqueue.server.app import ApiRequest, ApiResponse
from tests.support.api_server import api_server


def answer(url: str, *request: object, **more: object) -> ApiResponse:
    async def run() -> ApiResponse:
        proxy = ApiProxy(open_transport(url))
        try:
            return await proxy.answer(ApiRequest(*request, **more))  # type: ignore[arg-type]
        finally:
            await proxy.close()

    return asyncio.run(run())


def test_a_job_goes_there_and_is_seen_from_here() -> None:
    with api_server("memory://") as url:
        job = b'{"payload": {"to": "ada"}, "id": "order/7 \xc3\xa9"}'
        assert answer(url, "POST", "/v1/queues/mail/jobs", body=job).status == 200
        for id in ("order%2F7%20%C3%A9", "~b3JkZXIvNyDDqQ"):
            told = answer(url, "GET", f"/v1/queues/mail/jobs/{id}", (("include", "payload"),))
            assert json.loads(told.body)["payload"] == {"to": "ada"}


def test_faults_come_as_they_are() -> None:
    with api_server("memory://") as url:
        told = answer(url, "GET", "/v1/queues/mail/jobs/none")
        assert (told.status, json.loads(told.body)["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(("method", "path"), [("GET", "/nope"), ("PUT", "/v1/queues/mail/jobs")])
def test_what_is_no_operation_goes_nowhere(method: str, path: str) -> None:
    assert answer("http://127.0.0.1:1", method, path).status == 404


def test_an_api_that_is_gone_is_said_to_be() -> None:
    told = answer("http://127.0.0.1:1", "GET", "/v1/queues/mail")
    assert told.status == 503
    assert "cannot be reached" in json.loads(told.body)["error"]["message"]


def test_what_may_not_be_done_is_refused_here() -> None:
    reader = Identity(read_only=True)
    told = answer("http://127.0.0.1:1", "POST", "/v1/queues/mail/redrive", permit=reader.permit)
    assert told.status == 403


def test_a_server_that_only_reads_asks_the_api_for_no_events() -> None:
    reader = Identity(read_only=True)
    told = answer("http://127.0.0.1:1", "GET", "/v1/queues/mail/events", permit=reader.permit)
    assert (told.status, told.code) == (403, "forbidden")
