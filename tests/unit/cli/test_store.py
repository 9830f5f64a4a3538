"""``osqueue store check``: findings and figures, the same lines from the doctor, and nothing left behind."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from osqueue import Queue
from osqueue.stores.address import open_store
from osqueue.stores.base import List, Put, PutIfMatch, Refused, Store, Written
from osqueue.stores.file import FileStore
from tests.support.commands import Run

KINDS = ("put_if_absent", "get", "put", "put_if_match", "list", "delete")


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_sound_store_is_measured_and_nothing_is_left_in_it(run: Run, address: str) -> None:
    result = run("store", "check")
    assert result.exit_code == 0, result.stderr
    found = lines(result.stdout)
    assert {each["level"] for each in found} == {"ok"}
    assert f"{len(found)} ok, 0 warning, 0 trouble" in result.stderr
    named = {each["check"]: each for each in found}
    assert {"store: order", "store: race", "store: threads", "clock", "polling"} <= named.keys()
    for kind in KINDS:
        figures = named[f"latency: {kind}"]["figures"]
        assert 0 <= figures["p50_ms"] <= figures["p99_ms"]
    assert open_store(address).list(List("")).keys == ()


def test_the_doctor_of_an_address_prints_the_same_lines(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)

    def checks(*command: str) -> list[str]:
        return [each["check"] for each in lines(run(*command).stdout) if each["queue"] is None]

    alone = checks("store", "check")
    assert len(alone) > 20
    assert checks("doctor") == alone
    promises = [each for each in alone if not re.match(r"latency|polling|store: threads", each)]
    assert checks("doctor", "emails") == promises


def test_a_person_reads_lines(run: Run, terminal: None) -> None:
    said = run("store", "check").stdout
    assert re.search(
        r"^ok +store: threads: 4 at once made 20 writes of one object, and none is lost$", said, re.M
    )
    assert re.search(r"^ok +latency: get: p50 [\d.]+ ms, p99 [\d.]+ ms, of 3 requests$", said, re.M)
    assert re.search(r"^ok +polling: .* 2,628,000 reads a month: they cost no money here$", said, re.M)


def test_a_store_in_trouble_is_told_by_the_exit_code_and_not_measured(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(self: Store, request: PutIfMatch) -> Written | Refused:
        return self.put(Put(request.key, request.body))

    monkeypatch.setattr(FileStore, "put_if_match", write)
    monkeypatch.setattr(FileStore, "perform", Store.perform)
    result = run("store", "check")
    assert result.exit_code == 1
    found = lines(result.stdout)
    assert {each["check"] for each in found if each["level"] == "trouble"} >= {"store: compare-and-swap"}
    assert not [each for each in found if each["check"].startswith("latency")]


def test_what_is_no_store_is_refused(run: Run) -> None:
    assert run("store", "check", "memory://").exit_code == 2
    assert run("store", "check", "https://example.com").exit_code == 2
