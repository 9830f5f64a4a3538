"""Leader election over every store: among threads and processes there is one leader for each term."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from osqueue.clock import MACHINE, Machine
from osqueue.election.blocking import Election
from osqueue.stores.address import open_store
from osqueue.stores.base import Found, Get, Store, StoreReply, StoreRequest
from osqueue.stores.wrapped import WrappedStore
from tests.support.patience import PATIENCE

RACERS = 6
TERMS_EACH = 3
PROCESSES = 3
PAUSE_S = 0.002
STALE_AFTER_S = 600.0  # a process may stand still for a while, and nobody is replaced for it
TWO_HOURS_MS = 7_200_000

STORES = ("memory", "file", "s3")


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address that names the same place for everybody."""
    kind: str = request.param
    if kind == "memory":
        return f"memory://{tmp_path.name}"
    if kind == "file":
        return f"file://{tmp_path}/store"
    endpoint, bucket = request.getfixturevalue("s3_endpoint"), request.getfixturevalue("s3_bucket")
    return f"s3://{bucket}/some/prefix?endpoint={endpoint}"


def elected(election: Election) -> int:
    """Campaign until elected; the term."""
    deadline = MACHINE.monotonic() + PATIENCE
    while election.campaign() != "elected":
        assert MACHINE.monotonic() < deadline
        MACHINE.sleep(PAUSE_S * MACHINE.uniform())
    assert election.fence is not None
    return election.fence


def lead_some_terms(address: str, times: int) -> list[int]:
    """Be elected and resign, several times."""
    election = Election.connect(address, "reports", stale_after=STALE_AFTER_S)
    terms = []
    for _ in range(times):
        terms.append(elected(election))
        assert election.campaign() == "already_leader"
        assert election.resign()
    return terms


def test_of_many_candidates_that_start_together_exactly_one_is_elected(address: str) -> None:
    start = threading.Barrier(RACERS, timeout=PATIENCE)

    def run(_: int) -> tuple[str, Election]:
        election = Election.connect(address, "reports", stale_after=STALE_AFTER_S)
        start.wait()
        return election.campaign(), election

    with ThreadPoolExecutor(RACERS) as pool:
        ended = list(pool.map(run, range(RACERS)))
    standings = [standing for standing, _ in ended]
    assert standings.count("elected") == 1
    assert set(standings) <= {"elected", "other_leader", "conflict"}
    assert [election.is_leader for _, election in ended] == [each == "elected" for each in standings]
    again = [election.campaign() for _, election in ended]
    assert sorted(again) == ["already_leader", *["other_leader"] * (RACERS - 1)]


def test_racing_threads_lead_one_at_a_time_and_each_term_is_new(address: str) -> None:
    inside: list[int] = []  # candidates that lead at this moment
    terms: list[int] = []  # in the order they were led

    def run(name: int) -> None:
        election = Election.connect(address, "reports", stale_after=STALE_AFTER_S)
        for _ in range(TERMS_EACH):
            term = elected(election)
            inside.append(name)
            assert inside == [name]
            terms.append(term)
            inside.remove(name)
            assert election.resign()

    with ThreadPoolExecutor(RACERS) as pool:
        list(pool.map(run, range(RACERS)))
    assert len(terms) == RACERS * TERMS_EACH
    assert terms == sorted(set(terms))


def in_process(address: str, result: Any) -> None:
    result.put(lead_some_terms(address, TERMS_EACH))


def test_racing_processes_never_share_a_term(address: str) -> None:
    if address.startswith("memory"):
        pytest.skip("another process has another memory")
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    processes = [
        context.Process(target=in_process, args=(address, result), daemon=True) for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    answers = [result.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
    assert all(terms == sorted(terms) for terms in answers)
    terms = [term for each in answers for term in each]
    assert sorted(terms) == list(range(1, PROCESSES * TERMS_EACH + 1))


class Aged(WrappedStore):
    """Tells of the record that it was written some time earlier than it was."""

    def __init__(self, inner: Store, earlier_ms: int) -> None:
        super().__init__(inner)
        self.earlier_ms = earlier_ms

    def perform(self, request: StoreRequest) -> StoreReply:
        reply = self.inner.perform(request)
        if isinstance(reply, Found) and isinstance(request, Get) and request.key == "elections/reports":
            return msgspec.structs.replace(reply, modified_ms=reply.modified_ms - self.earlier_ms)
        return reply

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


class Skewed(Machine):
    """A machine with a wrong wall clock."""

    def __init__(self, off_ms: int) -> None:
        self.off_ms = off_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.off_ms


@pytest.mark.parametrize("off_ms", [-TWO_HOURS_MS, 0, TWO_HOURS_MS])
@pytest.mark.parametrize(("silent_ms", "standing"), [(300_000, "other_leader"), (1_800_000, "elected")])
def test_who_looks_once_is_told_by_the_stores_clock_whatever_its_own_says(
    address: str, silent_ms: int, standing: str, off_ms: int
) -> None:
    ada = Election.connect(address, "reports", "ada", stale_after=STALE_AFTER_S)
    assert ada.campaign() == "elected"
    aged, machine = Aged(open_store(address), silent_ms), Skewed(off_ms)
    looks_once = Election(aged, "reports", "bob", stale_after=STALE_AFTER_S, machine=machine)
    assert looks_once.campaign() == standing
    assert looks_once.fence == (2 if standing == "elected" else None)


def test_a_silent_leader_is_replaced_by_whoever_watched_it(address: str) -> None:
    clocks = [Shifting(), Shifting()]
    ada, bob = (
        Election(
            open_store(address), "reports", f"candidate-{at}", stale_after=STALE_AFTER_S, machine=machine
        )
        for at, machine in enumerate(clocks)
    )
    assert (ada.campaign(), bob.campaign()) == ("elected", "other_leader")
    for machine in clocks:
        machine.passed_s = STALE_AFTER_S * 0.95
    assert (ada.is_leader, bob.campaign()) == (False, "other_leader")
    for machine in clocks:
        machine.passed_s = STALE_AFTER_S
    assert (bob.campaign(), bob.fence) == ("elected", 2)
    assert ada.campaign() == "other_leader"


class Shifting(Machine):
    """A monotonic clock that goes on when a test says so."""

    passed_s = 0.0

    def monotonic(self) -> float:
        return self.passed_s
