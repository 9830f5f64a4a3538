"""Every argument of every public method, with values that no caller means: accepted, or refused by its name."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from osqueue import OsqueueError, Queue, Rejected
from osqueue.election import Election
from osqueue.model.job_options import OPTIONS
from osqueue.model.schedule import JOB_OPTIONS
from osqueue.pacer import Pacer
from osqueue.queue.base import QueueBase
from osqueue.queue.flow_methods import FlowMethod
from osqueue.queue.lease import LeaseBase
from osqueue.queue.options import GroupArguments, JobFilterArguments, SettingArguments
from osqueue.stores.memory import MemoryStore
from tests.support.in_process import InProcess


class NotATime(datetime):
    """A datetime that has no moment, as NaT of pandas."""

    def utcoffset(self) -> timedelta:
        raise ValueError("NaTType does not support utcoffset")

    def timestamp(self) -> float:
        raise ValueError("NaTType does not support timestamp")

    def __repr__(self) -> str:
        return "NaT"


class Whole:
    """A whole number that is not an int, as int64 of numpy."""

    def __index__(self) -> int:
        return 1

    def __int__(self) -> int:
        return 1


class Column:
    """An array of numpy: it compares to an array, and has no truth value."""

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    def __eq__(self, other: object) -> Any:
        return self


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Word(enum.Enum):
    A = "a"


class Text(str, enum.Enum):  # noqa: UP042 - as callers write it
    A = "a"


def deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


ODD = {
    "NaT": NotATime(2026, 1, 1),
    "NaN": float("nan"),
    "infinity": float("inf"),
    "a huge number": 10**400,
    "a negative number": -1,
    "a naive time": datetime(2026, 1, 1),  # noqa: DTZ001 - it is what is tried
    "the first time": datetime.min.replace(tzinfo=UTC),
    "the last time": datetime.max.replace(tzinfo=UTC),
    "a date": date(2026, 1, 1),
    "the longest duration": timedelta.max,
    "a whole number of numpy": Whole(),
    "an array": Column(),
    "a decimal": Decimal("1.5"),
    "a signalling NaN": Decimal("sNaN"),
    "a fraction": Fraction(1, 3),
    "an enum": Word.A,
    "a text enum": Text.A,
    "bytes": b"\xff",
    "half a surrogate": "\ud800",
    "an empty text": "",
    "a long text": "x" * 200_000,
    "an object": object(),
    "an unprintable object": Unprintable(),
    "a list of lists": [[1]],
    "a list of NaT": [NotATime(2026, 1, 1)],
    "a list of mappings": [{}],
    "a mapping of numbers": {1: 2},
    "an empty mapping": {},
    "a pair of NaN": (float("nan"), float("nan")),
    "a function": len,
    "a class": int,
    "true": True,
    "a deep list": deep(5_000),
}
PLACES = {"a store": MemoryStore, "an API": lambda: InProcess(MemoryStore())}
NEEDED = {
    "job_id": "unknown", "job_ids": ["unknown"], "jobs": [], "items": [], "name": "n", "ttl": 5, "payload": 1,
    "timeout": 0.001, "group": "g", "seconds": 1, "error": "failed",
}  # fmt: skip
NEEDED_BY = {"purge": {"jobs": "unknown"}, "schedule": {"cron": "@daily"}}
MORE = {
    "enqueue": OPTIONS,
    "enqueue_and_wait": OPTIONS,
    "schedule": JOB_OPTIONS,
    "configure": SettingArguments.__annotations__,
    "configure_group": GroupArguments.__annotations__,
    "jobs": JobFilterArguments.__annotations__,
}
# The name of an item, where it is not the name of the list.
ITEM = {"kinds": "kind", "jobs": "job_id", "job_ids": "job_id"}


def methods(cls: type) -> list[str]:
    return [name for name in dir(cls) if isinstance(getattr(cls, name), FlowMethod)]


def arguments(cls: type, method: str) -> tuple[list[str], dict[str, Any]]:
    """Return the names that a method takes, and values for those that it needs."""
    parameters = [
        each
        for each in list(inspect.signature(getattr(cls, method).flow).parameters.values())[1:]
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    needed = {
        each.name: NEEDED[each.name]
        for each in parameters
        if (each.default is each.empty or each.name == "timeout") and each.name in NEEDED
    }
    return [*(each.name for each in parameters), *MORE.get(method, ())], needed | NEEDED_BY.get(method, {})


def refusals(
    call: Callable[..., Any], names: list[str], needed: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """Call with each odd value for each name; yield what came of it. Only an OsqueueError may be raised."""
    for name in names:
        for odd, value in ODD.items():
            wished = {**needed, name: value}
            positional = [wished.pop("group")] if "configure_group" in call.__name__ else []
            try:
                found = call(*positional, **wished)
            except OsqueueError as error:
                found = error
            except Exception as error:
                raise AssertionError(f"{name}={odd}: {type(error).__name__}: {error}") from error
            if isinstance(found, Rejected):
                assert name in found.message or ITEM.get(name, name) in found.message, (name, odd, found)
            yield name, odd, found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("method", methods(QueueBase))
def test_an_odd_argument_is_accepted_or_refused_by_its_name(method: str, place: str) -> None:
    with Queue(PLACES[place](), "q", timeout=2) as q:
        results = [found for _, _, found in refusals(getattr(q, method), *arguments(QueueBase, method))]
        if method == "enqueue":
            accepted = [
                each for each in results if not isinstance(each, OsqueueError) and each.status == "queued"
            ]
            assert q.stats()["counters"]["enqueued"] == len(accepted)
            assert len(accepted) < len(results)


@pytest.mark.parametrize("method", methods(LeaseBase))
def test_an_odd_argument_of_a_lease_is_accepted_or_refused_by_its_name(method: str) -> None:
    with Queue(MemoryStore(), "q", timeout=2) as q:

        def call(**wished: Any) -> Any:
            q.enqueue(1)
            (lease,) = q.claim() or [None]
            return lease and getattr(lease, method)(**wished)

        names, needed = arguments(LeaseBase, method)
        assert len(list(refusals(call, names, needed))) == len(ODD) * len(names)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("option", ["payload", *OPTIONS])
def test_an_odd_item_of_enqueue_many_fails_alone(option: str, place: str) -> None:
    with Queue(PLACES[place](), "q", timeout=2) as q:
        results = q.enqueue_many(
            [*({"payload": 1, option: odd} for odd in ODD.values()), {"payload": 2}, *ODD.values()]
        )
        for odd, done in zip(ODD, results, strict=False):
            assert done.error is None or option in done.error.message, (odd, done.error)
        assert [done.status for done in results[len(ODD) :]] == ["queued", *["rejected"] * len(ODD)]
        assert q.stats()["counters"]["enqueued"] == sum(done.status == "queued" for done in results)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("method", "field"),
    [
        *((method, field) for method in ("complete", "fail", "heartbeat", "release") for field in ("job_id", "token")),
        ("complete", "result"), ("fail", "error"), ("heartbeat", "progress"), ("heartbeat", "note"),
    ],
)  # fmt: skip
def test_an_odd_item_about_a_lease_fails_alone(method: str, field: str, place: str) -> None:
    with Queue(PLACES[place](), "q", timeout=2) as q:
        q.enqueue_many([{"payload": 1}] * (len(ODD) + 1))
        *leases, last = q.claim(limit=len(ODD) + 1)
        items: list[Any] = [
            {"job_id": lease.job_id, "token": lease.token, field: odd}
            for lease, odd in zip(leases, ODD.values(), strict=True)
        ]
        items += ODD.values()
        items.append({"job_id": last.job_id, "token": last.token, "error": "x"})
        done = getattr(q, f"{method}_many")(items)
        assert done[-1].ok
        assert not any(each.ok for each in done[len(ODD) : -1])
        if field in ("job_id", "token"):
            assert not any(each.ok for each in done[: len(ODD)])


@pytest.mark.parametrize("name", ["interval", "burst", "if_exists"])
def test_an_odd_argument_of_a_pacer_is_accepted_or_refused_by_its_name(name: str) -> None:
    pacer = Pacer(MemoryStore(), "p")
    assert len(list(refusals(pacer.create, [name], {"interval": 1}))) == len(ODD)


@pytest.mark.parametrize("name", ["grace", "max_ahead", "timeout", "name"])
def test_an_odd_option_of_a_pacer_is_accepted_or_refused_by_its_name(name: str) -> None:
    found = refusals(lambda **wished: Pacer(MemoryStore(), **wished), [name], {"name": "p"})
    assert len(list(found)) == len(ODD)


@pytest.mark.parametrize("name", ["candidate", "stale_after", "heartbeat", "name"])
def test_an_odd_option_of_an_election_is_accepted_or_refused_by_its_name(name: str) -> None:
    found = refusals(lambda **wished: Election(MemoryStore(), **wished), [name], {"name": "e"})
    assert len(list(found)) == len(ODD)


@pytest.mark.parametrize("name", ["timeout", "window", "queue", "serializer", "result_serializer"])
def test_an_odd_option_of_a_queue_is_accepted_or_refused_by_its_name(name: str) -> None:
    found = refusals(lambda **wished: Queue(MemoryStore(), **wished), [name], {"queue": "q"})
    assert len(list(found)) == len(ODD)
