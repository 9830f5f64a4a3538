"""Stores and APIs whose addresses hold secrets: no refusal, and no failed request, repeats one."""

from __future__ import annotations

import traceback

import pytest

from osqueue.client.transports.address import open_transport
from osqueue.client.transports.base import LostCall, call
from osqueue.errors import OsqueueError
from osqueue.stores.address import is_remote, open_store
from osqueue.stores.base import Failed, Get
from tests.support.secret_addresses import ADDRESSES, PLAIN, leaks

UNREACHABLE = (
    f"valkey://u:{PLAIN}@127.0.0.1:1/0/p",
    f"rediss://:{PLAIN}@127.0.0.1:1/0/p",
    "s3://b/p?endpoint=http://127.0.0.1:1&region=eu-west-1",
    "gs://b/p?endpoint=http://127.0.0.1:1",
    "az://c/p?endpoint=http://127.0.0.1:1",
    "http://127.0.0.1:1?auth=bearer",
    "lambda://osqueue?endpoint=http://127.0.0.1:1&region=eu-west-1",
)
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": PLAIN,
    "AWS_SESSION_TOKEN": PLAIN,
    "AZURE_STORAGE_ACCOUNT_NAME": "account",
    "AZURE_STORAGE_SAS_KEY": f"sv=2024-01-01&sig={PLAIN}",
    "GOOGLE_SERVICE_ACCOUNT_KEY": f'{{"private_key": "{PLAIN}"}}',
    "OSQUEUE_TOKEN": PLAIN,
    "HTTP_PROXY": f"http://u:{PLAIN}@127.0.0.1:1",
}


def everything_in(error: BaseException) -> str:
    """Return its text, its attributes and its traceback with all errors that led to it."""
    return f"{error} {error!r} {vars(error)} {''.join(traceback.format_exception(error))}"


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_refused_address_is_not_repeated(
    address: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    try:
        shown = repr(open_transport(address) if is_remote(address) else open_store(address))
    except OsqueueError as error:
        shown = everything_in(error)
    assert not leaks(shown)


@pytest.mark.parametrize("address", UNREACHABLE)
def test_a_failed_request_repeats_no_credentials(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    if is_remote(address):
        transport = open_transport(address)
        lost = transport.perform(call("health", path={}))
        assert isinstance(lost, LostCall)
        assert not leaks(everything_in(lost.error) + repr(transport))
    else:
        store = open_store(address)
        try:
            reply = store.perform(Get("a"))
        except OsqueueError as error:
            reply = Failed(error)
        assert isinstance(reply, Failed)
        assert not leaks(everything_in(reply.error) + repr(store.inner))
        store.close()
