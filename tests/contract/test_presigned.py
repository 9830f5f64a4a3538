"""Large contents past the functions of an API over S3: the bytes go to the bucket and come from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from osqueue import Queue
from osqueue.client.transports.base import ApiAnswer, ApiCall, CallOutcome, Transfer, Transport, path_of
from osqueue.client.transports.transfers import Carrier
from osqueue.clock import MACHINE
from osqueue.server.answers import ANSWER_BYTES_MAX
from osqueue.server.app import Api, ApiRequest
from osqueue.stores.address import open_store
from tests.support.caller import JOBS, QUEUE, Caller

LARGE = b'"%s"' % (b"x" * 5_000_000)
DIGEST = hashlib.sha256(LARGE).hexdigest()


class Functions(Transport):
    """The API of a deployment: no more passes through it than through Lambda. Its transfers are remembered."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self.api = api
        self.carrier = Carrier(MACHINE)
        self.transfers: list[Transfer] = []

    @property
    def place(self) -> object:
        return self

    def carry(self, transfer: Transfer) -> CallOutcome:
        self.transfers.append(transfer)
        return self.carrier.carry(transfer)

    def send(self, call: ApiCall) -> CallOutcome:
        answer = self.api.answer(ApiRequest(call.route.method, path_of(call), call.query, call.body))
        assert len(call.body) < 1_000
        return ApiAnswer(answer.status, answer.body)

    def close(self) -> None:
        self.carrier.close()


@pytest.fixture
def api(s3_bucket: str, s3_endpoint: str) -> Iterator[Api]:
    api = Api(open_store(f"s3://{s3_bucket}/some/prefix?endpoint={s3_endpoint}"))
    yield api
    api.close()


@pytest.fixture
def caller(api: Api) -> Caller:
    return Caller(api)


@pytest.mark.parametrize("size", [1_000_000, 5_000_000])
def test_the_bytes_go_to_the_bucket_and_come_from_it(api: Api, size: int) -> None:
    functions = Functions(api)
    with Queue[Any](functions, "mail") as q:
        done = q.enqueue("p" * size)
        q.handler(lambda job: job.payload.replace("p", "r"))
        q.run(until_empty=True, poll=0.01, signals=False)
        assert q.result(done.job_id) == "r" * size
    in_answers = size < ANSWER_BYTES_MAX
    methods = ["PUT", "PUT"] if in_answers else ["PUT", "GET", "PUT", "GET"]
    assert [each.method for each in functions.transfers] == methods
    assert all("X-Amz-Signature=" in each.url for each in functions.transfers)


def test_callers_without_the_library_do_the_same_with_plain_http(caller: Caller) -> None:
    place = caller.post(f"{QUEUE}/uploads", {"bytes": len(LARGE), "sha256": DIGEST}).body
    sent = urllib3.request("PUT", place["url"], body=LARGE, headers=place["headers"], retries=False)
    assert sent.status == 200
    assert caller.post(JOBS, {"upload": place["upload"], "codec": "json"}).body["status"] == "queued"
    (job,) = caller.post(f"{QUEUE}/claims").body["jobs"]
    told = job["downloads"]["payload"]
    got = urllib3.request("GET", told["url"], headers=told["headers"], retries=False)
    assert (got.status, got.data) == (206, LARGE)
