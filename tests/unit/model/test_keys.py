"""Job keys: UUIDs that sort by time and name their shard."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from osqueue.clock import Machine
from osqueue.errors import Rejected
from osqueue.model.keys import KeySource, drawn_ms, job_id, key_of, keys_of_request, shard_of


def test_a_key_is_a_uuid_of_version_seven(machine: Any) -> None:
    (key,) = KeySource(machine).draw(3)
    found = UUID(bytes=key)
    assert (found.version, found.variant) == (7, "specified in RFC 4122")
    assert (drawn_ms(key), shard_of(key)) == (machine.time_ms, 3)
    assert job_id(key) == str(found)


@pytest.mark.parametrize("shard", [0, 1, 63])
def test_a_key_names_its_shard(machine: Any, shard: int) -> None:
    assert {shard_of(key) for key in KeySource(machine).draw(shard, 50)} == {shard}


def test_keys_increase_within_one_millisecond_and_far_beyond_its_counter(machine: Any) -> None:
    source = KeySource(machine)
    keys = [*source.draw(0, 5_000), *source.draw(0, 5_000), *source.draw(1)]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_keys_increase_when_the_clock_goes_back(machine: Any) -> None:
    source = KeySource(machine)
    before = source.draw(0)
    machine.advance(-3_600)
    assert source.draw(0) > before


def test_threads_draw_different_keys() -> None:
    source = KeySource(Machine())
    with ThreadPoolExecutor(8) as pool:
        drawn = [key for keys in pool.map(lambda _: source.draw(0, 200), range(40)) for key in keys]
    assert len(set(drawn)) == 8_000


def test_two_processes_with_one_clock_draw_different_keys(new_machine: Any) -> None:
    assert KeySource(new_machine(1)).draw(0) != KeySource(new_machine(2)).draw(0)


def test_an_id_survives_the_round_trip(machine: Any) -> None:
    for key in KeySource(machine).draw(5, 100):
        assert key_of(job_id(key)) == key


WITH_SPACES = "01 90 00-0000-7000-8000-000000000000"  # of the right length, and only 15 bytes


@pytest.mark.parametrize(
    "text", ["", "x", "1234", None, 5, b"x" * 16, ["a"], "0" * 33, object(), WITH_SPACES]
)
def test_what_is_no_job_id_is_refused_with_the_remedy(text: Any) -> None:
    with pytest.raises(Rejected, match="job_id that enqueue answered") as caught:
        key_of(text)
    assert caught.value.field == "job_id"


def test_the_keys_of_a_request_follow_from_its_id_and_its_moment() -> None:
    keys = keys_of_request("a-request", 1_900_000_000_000, 1_000)
    assert keys == keys_of_request("a-request", 1_900_000_000_000, 1_000) == sorted(set(keys))
    assert {drawn_ms(key) for key in keys} == {1_900_000_000_000}
    assert all(UUID(bytes=key).version == 7 for key in keys)
    assert len({shard_of(key) for key in keys}) == 1
    assert not {*keys} & {*keys_of_request("another", 1_900_000_000_000, 1_000)}
    assert (
        len({shard_of(keys_of_request(str(n), 0, 1)[0]) for n in range(1_000)}) > 200
    )  # they fill the shards
