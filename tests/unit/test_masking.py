"""Addresses that are printed: each secret is masked wherever it stands in them."""

from __future__ import annotations

import pytest

from osqueue.errors import shown
from osqueue.masking import printable, without_secrets
from osqueue.stores.address import open_store
from tests.support.secret_addresses import ADDRESSES, PLAIN, QUOTED, leaks


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("options", [True, False])
def test_a_printable_address_holds_no_secret(address: str, options: bool) -> None:
    assert not leaks(printable(address, options=options))
    assert not leaks(without_secrets(f"cannot open '{address}': it is closed. ({address})"))
    assert not leaks(shown([address]))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("file:///var/lib/jobs?fsync=off", "file:///var/lib/jobs?fsync=off"),
        ("s3://bucket/prefix@v2?region=eu-west-1", "s3://bucket/prefix@v2?region=eu-west-1"),
        ("s3://b?endpoint=http://127.0.0.1:9000", "s3://b?endpoint=http://127.0.0.1:9000"),
        ("s3://b/p?archive=s3%3A%2F%2Fa%2Fp", "s3://b/p?archive=s3://a/p"),
        ("valkey://u:pw@[::1]:6379/0/p?replicas=2", "valkey://***@[::1]:6379/0/p?replicas=2"),
        ("rediss://:pw@host", "rediss://***@host"),
        ("https://u:pw@host/prod?auth=bearer&token=pw", "https://***@host/prod?auth=bearer&token=***"),
        ("s3://b?archive=valkey://:pw@host/0&seed=7", "s3://b?archive=valkey://***@host/0&seed=7"),
        ("s3://b?archive=valkey%3A%2F%2F%3Apw%40h%3Fx%3Dpw", "s3://b?archive=valkey://***@h%3Fx%3D***"),
        ("s3://b?region=local", "s3://b?region=local"),
        ("s3://b?region=my/password", "s3://b?region=***"),
        ("valkey://user:123#rest@h", "valkey://***"),
        ("memory://", "memory://"),
        ("valkey://:pa/ss@host", "valkey://***"),
        ("valkey://u:1?2@host", "valkey://***"),
        ("valkey://u:1/2@host", "valkey://***"),
        ("valkey://ho st/0", "valkey://***"),
        ("s3://b\n/p", "s3://***"),
        ("password", "***"),
        (":pw@host", "***"),
    ],
)
def test_a_printable_address_keeps_what_is_harmless(address: str, expected: str) -> None:
    assert printable(address) == expected


@pytest.mark.parametrize("address", QUOTED)
def test_a_printable_address_ends_a_secret_at_no_mark(address: str) -> None:
    assert not leaks(printable(address))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job to:bob@x.de failed", "job to:bob@x.de failed"),
        ("mailto:bob@example.com", "mailto:bob@example.com"),
        ("user:password@x.de", "***"),
        ("to:password@host:6379", "***"),
        ("into:bob@x.de", "***"),
        ("extra argument (valkey://:pw@h/0)", "extra argument (valkey://***@h/0)"),
    ],
)
def test_a_text_keeps_mail_addresses_and_brackets(text: str, expected: str) -> None:
    assert without_secrets(text) == expected


def test_an_address_within_addresses_without_end_is_masked() -> None:
    address = "s3://b?archive=" * 3_000 + "valkey://:pw@h"
    assert "pw" not in printable(address)


def test_a_text_keeps_all_but_its_addresses() -> None:
    text = "see https://docs.example/a, valkey://:pw@h:1/0; nothing else: 7 % 3 = 1"
    assert without_secrets(text) == "see https://docs.example/a, valkey://***@h:1/0; nothing else: 7 % 3 = 1"


def test_the_repr_of_an_open_store_holds_no_secret() -> None:
    store = open_store(f"valkey://user:{PLAIN}@127.0.0.1:1/0/x")
    assert not leaks(repr(store) + repr(store.inner) + repr(vars(store.inner)))
