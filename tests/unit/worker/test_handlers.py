"""Handlers as they are registered: what cannot be called with a job is refused before it burns attempts."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue
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
