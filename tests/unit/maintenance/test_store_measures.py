"""What requests to a store take: times by the machine's clock, and money by list prices."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue.commit.driver import BlockingDriver
from osqueue.errors import Unavailable
from osqueue.maintenance.store_measures import SAMPLES_MAX, latencies, percentile, polling
from osqueue.maintenance.store_probes import OK, WARNING
from osqueue.stores.base import Failed, List, StoreReply, StoreRequest
from osqueue.stores.faulty import SlowStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.prices import EXPRESS, STANDARD, prices_at
from osqueue.stores.wrapped import WrappedStore


class RefusesLists(WrappedStore):
    def perform(self, request: StoreRequest) -> StoreReply:
        refused = Failed(Unavailable("the store refuses: access denied.", permanent=True))
        return refused if isinstance(request, List) else self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def test_each_kind_of_request_is_timed_and_its_objects_are_removed(machine: Any) -> None:
    inner = MemoryStore(machine)
    found = BlockingDriver(SlowStore(inner, 10, machine), machine).run(latencies(machine))
    assert len(found) == 6
    assert {(each.level, each.found) for each in found} == {
        (OK, f"p50 10.00 ms, p99 10.00 ms, of {SAMPLES_MAX} requests")
    }
    assert {tuple(each.figures.items()) for each in found} == {(("p50_ms", 10.0), ("p99_ms", 10.0))}
    assert inner.list(List("")).keys == ()


def test_of_a_slow_store_fewer_are_timed(machine: Any) -> None:
    found = BlockingDriver(SlowStore(MemoryStore(machine), 400, machine), machine).run(latencies(machine))
    assert {each.found.rpartition(", ")[2] for each in found} == {"of 3 requests"}


def test_a_request_that_fails_is_told_and_the_others_are_timed(machine: Any) -> None:
    found = BlockingDriver(RefusesLists(MemoryStore(machine)), machine).run(latencies(machine))
    (warning,) = [each for each in found if each.level == WARNING]
    assert (warning.check, warning.found) == ("latency: list", "the store refuses: access denied.")
    assert len(found) == 6


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7.0], 50, 7.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([*map(float, range(1, 101))], 99, 99.0),
        ([1.0, 9.0], 99, 9.0),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percent: int, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_looking_for_jobs_costs_what_reads_cost() -> None:
    often, seldom = polling("s3://bucket/prefix")
    assert often.figures == {"reads_a_month": 2_628_000, "dollars_a_month": round(2.628 * STANDARD.get, 4)}
    assert often.found.endswith("makes 2,628,000 reads a month: $1.05 (S3 Standard)")
    assert seldom.figures["dollars_a_month"] == pytest.approx(0.1051)
    free, _ = polling("file:///var/lib/jobs")
    assert free.found.endswith("they cost no money here")
    google, _ = polling("gs://bucket/prefix")
    assert google.found.endswith("$1.05 (Google Cloud Storage, one region)")
    untold, _ = polling("az://container/prefix")
    assert "no money" not in untold.found


def test_a_directory_bucket_has_prices_of_its_own() -> None:
    addresses = ("s3://jobs--use1-az4--x-s3", "S3://jobs--use1-az4--x-s3/a?region=us-east-1")
    assert {prices_at(each) for each in addresses} == {EXPRESS}
    assert prices_at("s3://jobs/a--x-s3") == STANDARD
