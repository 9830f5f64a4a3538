"""Handlers as they are registered: what cannot be called with a job is refused before it burns attempts."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Rejected, limits
from osqueue.stores.memory import MemoryStore


@pytest.fixture(params=[Queue, AsyncQueue])
def q(request: pytest.FixtureRequest) -> Any:
    return request.param(MemoryStore(), "mail")


def nothing() -> None: ...


def two(job: Any, mailer: Any) -> None: ...


async def nothing_async() -> None: ...


def named(*, job: Any) -> None: ...


class Method:
    def send(self) -> None: ...

    def __call__(self, job: Any, mailer: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (nothing, r"handler nothing\(\)"),
        (two, r"handler two\(job: 'Any', mailer: 'Any'\)"),
        (nothing_async, r"handler nothing_async\(\)"),
        (named, r"handler named\("),
        (Method().send, r"handler Method.send\(\)"),
        (Method(), r"handler Method\("),
        (lambda: None, "handler .*<lambda>"),
    ],
)
@pytest.mark.parametrize("kind", [None, "welcome"])
def test_a_handler_of_the_wrong_arity_is_refused_by_name(q: Any, handler: Any, says: str, kind: Any) -> None:
    with pytest.raises(TypeError, match=says) as caught:
        q.handler(kind=kind)(handler)
    assert "it is called with one argument, the job" in str(caught.value)
    assert "def handler(job)" in str(caught.value)


def with_default(job: Any, mailer: Any = None) -> None: ...


class Good:
    def __call__(self, job: Any) -> None: ...

    def send(self, job: Any) -> None: ...

    @classmethod
    def shared(cls, job: Any) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        with_default,
        lambda *jobs: None,
        functools.partial(two, mailer=1),
        Good(),
        Good().send,
        Good.shared,
        print,
        int,
    ],
)
def test_whatever_takes_a_job_is_registered(q: Any, handler: Any) -> None:
    assert q.handler(handler) is handler


def test_a_handler_of_a_batch_is_called_with_one_list(q: Any) -> None:
    with pytest.raises(TypeError, match=r"one argument, the list of jobs .* def handler\(jobs\)"):
        q.handler(kind="row", batch=10)(two)
    assert q.handler(kind="row", batch=10)(with_default) is with_default


@pytest.mark.parametrize(
    ("field", "fits", "past"),
    [
        ("batch", (1, limits.HANDLER_BATCH_MAX), (0, limits.HANDLER_BATCH_MAX + 1, 1.5, True, "10")),
        ("concurrency", (1, limits.HANDLER_CONCURRENCY_MAX), (0, limits.HANDLER_CONCURRENCY_MAX + 1, "1")),
        (
            "within",
            (0, 0.5, limits.HANDLER_WITHIN_MS_MAX / 1000),
            (-1, limits.HANDLER_WITHIN_MS_MAX / 1000 + 1, "2"),
        ),
    ],
)
def test_options_have_bounds_and_are_refused_by_name(q: Any, field: str, fits: Any, past: Any) -> None:
    more = {"batch": 10} if field == "within" else {}
    for at, value in enumerate(fits):
        q.handler(kind=f"kind {at}", **{**more, field: value})(with_default)
    for value in past:
        with pytest.raises(Rejected, match=f"^{field}: ") as caught:
            q.handler(kind="refused", **{**more, field: value})(with_default)
        assert caught.value.field == field
    q.handler(kind="refused")(with_default)  # what was refused left nothing


def test_a_wait_needs_a_batch_and_time_to_spare(q: Any) -> None:
    with pytest.raises(Rejected, match="Say batch, too"):
        q.handler(kind="row", within=2)(with_default)
    with pytest.raises(Rejected, match="its time runs while it waits"):
        q.handler(kind="row", batch=10, within=2, run_within=2)(with_default)


@pytest.mark.parametrize("options", [{"batch": 10}, {"concurrency": 1}])
@pytest.mark.parametrize("first", [True, False])
def test_a_handler_of_any_kind_goes_with_no_claims_apart(q: Any, options: Any, first: bool) -> None:
    handlers: list[dict[str, Any]] = [{}, {"kind": "row", **options}]
    one, other = handlers if first else handlers[::-1]
    q.handler(**one)(with_default)
    with pytest.raises(Rejected, match="kind='' is jobs without") as caught:
        q.handler(**other)(with_default)
    assert caught.value.field == "kind"


def test_alone_it_may_take_batches_and_beside_them_jobs_without_a_kind(q: Any) -> None:
    q.handler(batch=10, concurrency=2)(with_default)
    ((rule, kinds),) = q.handlers.lines()
    assert (rule.batch, rule.places.most, kinds) == (10, 2, None)


def test_what_is_claimed_together(q: Any) -> None:
    q.handler(kind="")(with_default)
    q.handler(kind="mail", run_within=5)(with_default)
    assert q.handlers.lines() == [(None, ("", "mail"))]
    q.handler(kind="row", batch=10)(with_default)
    q.handler(kind="gpu", concurrency=1)(with_default)
    lines = q.handlers.lines()
    assert [kinds for _, kinds in lines] == [("row",), ("gpu",), ("", "mail")]
    assert [rule is None for rule, _ in lines] == [False, False, True]
