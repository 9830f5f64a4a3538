"""The directory of a segment: one job is found by its key in whatever order the jobs stand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from osqueue.commit.driver import BlockingDriver
from osqueue.core.encoding import Footer, decode_footer, encode_segment
from osqueue.core.key_directory import PAGE_BYTES, blocks_of, encode_pages, page_of, wants_pages
from osqueue.core.state import JobRecord
from osqueue.errors import Damaged
from osqueue.objects.segments import find
from osqueue.stores.base import Put
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore

JOBS = 30_000
CHANCE = random.Random(7)
JOBS_BY_DUE = [JobRecord(CHANCE.randbytes(16), b"1", 1, due_ms=at + 1) for at in range(JOBS)]


@pytest.mark.parametrize("blocks", [1, 3, 700, 3_000])
def test_every_key_is_in_its_page_with_its_block(blocks: int) -> None:
    chance = random.Random(blocks)
    keys = [[chance.randbytes(16) for _ in range(chance.randrange(1, 20))] for _ in range(blocks)]
    pages = encode_pages(keys)
    for number, block in enumerate(keys):
        for key in block:
            assert number in blocks_of(key, pages[page_of(key, len(pages))])
    assert max(map(len, pages)) < 1.5 * PAGE_BYTES
    strange = [chance.randbytes(16) for _ in range(200)]
    assert sum(len(blocks_of(key, pages[page_of(key, len(pages))])) for key in strange) < 3


def test_pages_are_for_blocks_whose_ranges_of_keys_overlap() -> None:
    a, b, c, d = (bytes([at]) * 16 for at in range(4))
    assert not wants_pages([(a, a), (b, b), (c, c), (d, d)])
    assert not wants_pages([(a, b), (b, c), (c, d), (d, d)])
    assert not wants_pages([(a, d), (a, d)])
    assert wants_pages([(a, d)] * 4)


def test_a_segment_in_the_order_of_its_keys_has_no_directory() -> None:
    for jobs, paged in ((sorted(JOBS_BY_DUE, key=lambda job: job.key), False), (JOBS_BY_DUE, True)):
        data, _ = encode_segment(jobs, "segments/x")
        footer = decode_footer(data, "segments/x")
        assert isinstance(footer, Footer)
        assert bool(footer.pages) == paged


@pytest.fixture
def written(machine: Any) -> tuple[CountingStore, Callable[[bytes], Any]]:
    """A segment by due time in a store, and what finds a job in it."""
    store = CountingStore(MemoryStore(machine))
    data, span = encode_segment(JOBS_BY_DUE, "segments/x")
    store.put(Put("segments/x", data))
    driver = BlockingDriver(store, machine)
    return store, lambda key: driver.run(find("", [span], key))


def test_a_job_is_found_by_one_page_and_one_block(written: Any) -> None:
    store, found = written
    for at in (0, 1, 777, JOBS - 1):
        before, read = store.requests["get"], store.bytes_read
        place = found(JOBS_BY_DUE[at].key)
        assert place.job == JOBS_BY_DUE[at]
        assert store.requests["get"] - before == 3
        assert store.bytes_read - read < 50_000


def test_a_job_that_is_not_there_costs_a_footer_and_a_page(written: Any) -> None:
    store, found = written
    before = store.requests["get"]
    assert found(bytes([128]) * 16) is None
    assert store.requests["get"] - before == 2


def test_a_damaged_page_is_told(written: Any) -> None:
    store, found = written
    data, span = encode_segment(JOBS_BY_DUE, "segments/x")
    footer = decode_footer(data, "segments/x")
    assert isinstance(footer, Footer)
    begin = footer.blocks[-1].offset + footer.blocks[-1].length
    store.put(Put("segments/x", data[:begin] + bytes(sum(footer.pages)) + data[begin + sum(footer.pages) :]))
    with pytest.raises(Damaged):
        found(JOBS_BY_DUE[5].key)
    assert span.size == len(data)
