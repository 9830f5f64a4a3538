"""Addresses of Valkey and Redis servers: what each part means."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from osqueue.stores.address import open_store
from osqueue.stores.valkey import ValkeyStore
from osqueue.stores.valkey_place import PASSWORD_VARIABLES, PREFIX, ValkeyPlace


def place(address: str) -> ValkeyPlace:
    inner = open_store(address).inner
    assert isinstance(inner, ValkeyStore)
    return inner.at


@pytest.fixture(autouse=True)
def _no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PASSWORD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_an_address_names_server_user_database_prefix_and_replicas() -> None:
    assert place("valkey://jobs:p%40ss@cache.example.com:6380/3/some/prefix/?replicas=2") == ValkeyPlace(
        "cache.example.com", 6380, 3, "some/prefix", "jobs", "p@ss", False, 2
    )
    assert place("valkey://host") == ValkeyPlace("host", 6379, 0, PREFIX)
    assert place("valkey://[::1]:7000/").host == "::1"
    assert place("valkey://host/jobs").prefix == "jobs"
    assert place("valkey://:secret@host") == replace(place("valkey://host"), password="secret")


@pytest.mark.parametrize(("scheme", "tls"), [("redis", False), ("rediss", True), ("valkeys", True)])
def test_the_other_names_open_the_same_store(scheme: str, tls: bool) -> None:
    assert place(f"{scheme}://host/1/jobs") == replace(place("valkey://host/1/jobs"), tls=tls)


@pytest.mark.parametrize("name", PASSWORD_VARIABLES)
def test_a_password_that_the_address_lacks_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "kept outside")
    kept, given = place("valkey://jobs@host"), place("valkey://jobs:given@host")
    assert kept.get_credentials() == ("jobs", "kept outside")
    assert given.get_credentials() == ("jobs", "given")
    assert place("valkey://host").get_credentials() == ("kept outside",)
    monkeypatch.setenv(name, "renewed")
    assert kept.get_credentials() == ("jobs", "renewed")
    monkeypatch.delenv(name)
    assert place("valkey://host").get_credentials() == ()


def test_two_addresses_of_one_place_are_one_place() -> None:
    assert open_store("valkey://host").place == open_store("redis://user:x@host:6379/0?replicas=1").place
    assert open_store("valkey://host/a").place != open_store("valkey://host/b").place
