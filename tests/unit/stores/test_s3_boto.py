"""Connections of boto3 to S3."""

from __future__ import annotations

import boto3
import pytest

from osqueue.clock import IdleTime
from osqueue.limits import HTTP_IDLE_MS_MAX
from osqueue.stores.base import Get, Missing
from osqueue.stores.s3_boto import BotoStore
from tests.support.gcs_server import gcs_server
from tests.support.light_s3 import LightS3
from tests.support.machines import VirtualMachine
from tests.support.s3_server import ENVIRONMENT
from tests.support.silent_relay import relaying_to


def test_connections_that_were_idle_for_too_long_are_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    machine = VirtualMachine()
    with gcs_server(LightS3) as server, relaying_to(server.endpoint) as relay:
        server.buckets["some-bucket"] = {}
        store = BotoStore(boto3.session.Session(), "some-bucket", endpoint=relay.endpoint)
        store._idle = IdleTime(machine)
        for seconds in (0, 1, HTTP_IDLE_MS_MAX / 1000):
            machine.advance(seconds)
            assert store.perform(Get("a")) == Missing()
        store.close()
    assert [each.connection for each in relay.requests] == [0, 0, 1]
