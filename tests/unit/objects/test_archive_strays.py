"""What other programs put among the parts of an archive is left out."""

from __future__ import annotations

import pytest

from osqueue.commit.driver import BlockingDriver
from osqueue.maintenance import strays
from osqueue.objects import archive
from osqueue.stores import base, memory
from osqueue.stores.base import Put
from osqueue.stores.memory import MemoryStore
from tests.support.machines import VirtualMachine

FOLDER = archive.folder_of("mail")
PART = f"{FOLDER}date=2026-01-02/hour=03/00-1-2.jsonl.gz"
STRAYS = (
    *(
        "/y",
        "x",
        "date=2026-01-02/x",
        "date=2026-01-02/hour=03/x.txt",
        "date=2026-01-02/hour=03//00-1-2.jsonl.gz",
    ),
    *("date=2026-01-02//x", "date=2026-1-2/hour=03/x.jsonl.gz", "_SUCCESS"),
)


@pytest.mark.parametrize("page", [1, 1_000])
def test_parts_are_found_among_strays_however_pages_fall(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    store = MemoryStore()
    for key in (PART, *(f"{FOLDER}{stray}" for stray in STRAYS)):
        store.put(Put(key, b"stray"))
    for module in (base, memory):
        monkeypatch.setattr(module, "LIST_KEYS_MAX", page)
    driver = BlockingDriver(store, VirtualMachine())
    assert driver.run(archive.parts("mail", None)) == [PART]
    assert driver.run(archive.parts("mail", None, PART)) == []


def test_the_doctor_names_what_other_programs_put_there() -> None:
    store = MemoryStore()
    driver = BlockingDriver(store, VirtualMachine())
    store.put(Put("queues/mail", b""))
    store.put(Put(PART, b"part"))
    assert driver.run(strays.examine_register()) == driver.run(strays.examine("mail")) == []
    for key in ("queues//x", f"{FOLDER}/y"):
        store.put(Put(key, b"stray"))
    (at_register,) = driver.run(strays.examine_register())
    (in_archive,) = driver.run(strays.examine("mail"))
    assert (at_register.level, at_register.queue) == ("warning", None)
    assert (in_archive.level, in_archive.queue) == ("warning", "mail")
    assert "1 objects of other programs, such as 'queues//x'" in at_register.found
    assert f"1 objects of other programs, such as '{FOLDER}/y'" in in_archive.found
