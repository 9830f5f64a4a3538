"""What callers, help and inspect see of methods that are made from flows."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
from typing import Any, get_type_hints

import pytest

from osqueue import AsyncLease, AsyncQueue, Lease, Queue
from osqueue.election import AsyncElection, Election
from osqueue.model.job_options import OPTIONS
from osqueue.model.settings import SETTINGS
from osqueue.queue.flow_methods import FlowMethod
from osqueue.queue.options import QueueOptions, SettingArguments, WorkerOptions
from osqueue.worker.loop import Worker

PAIRS = [(Queue, AsyncQueue), (Lease, AsyncLease), (Election, AsyncElection)]


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_every_flow_is_a_method_and_a_coroutine_method_with_the_same_parameters(
    blocking: type, asynchronous: type
) -> None:
    flows = [
        name for base in blocking.__mro__ for name, each in vars(base).items() if isinstance(each, FlowMethod)
    ]
    assert flows
    for name in flows:
        method, coroutine = getattr(blocking, name), getattr(asynchronous, name)
        assert not inspect.iscoroutinefunction(method)
        assert inspect.iscoroutinefunction(coroutine)
        assert method.__name__ == coroutine.__name__ == name
        assert parameters(method) == parameters(coroutine)
        assert "Flow[" not in str(inspect.signature(method)), name
        assert inspect.getdoc(method), name


def test_a_signature_says_what_a_call_returns() -> None:
    assert inspect.signature(Queue.enqueue).return_annotation == "Enqueued"
    assert inspect.signature(Queue.claim).return_annotation == "ClaimedLeases[Lease[T]]"
    assert inspect.signature(AsyncQueue.claim).return_annotation == "ClaimedLeases[AsyncLease[T]]"
    assert inspect.signature(Lease.complete).return_annotation == "None"
    assert Queue.enqueue.__annotations__["return"] == "Enqueued"


def test_options_are_shown_by_name() -> None:
    shown = parameters(Queue.connect("memory://", "emails").enqueue)
    assert list(shown) == ["payload", *OPTIONS]
    assert all(shown[name].default is None for name in OPTIONS)
    assert list(parameters(Queue.enqueue_and_wait)) == ["self", "payload", "timeout", *OPTIONS]
    assert set(parameters(AsyncQueue.configure)) == {"self", *SETTINGS}


@pytest.mark.parametrize("queue_class", [Queue, AsyncQueue])
def test_the_options_of_run_are_those_of_a_worker(queue_class: Any) -> None:
    """Type checkers read the one, everything else the other."""
    taken = {name: each for name, each in parameters(Worker).items() if name != "queue"}
    assert get_type_hints(WorkerOptions) == {name: get_type_hints(Worker.__init__)[name] for name in taken}
    shown = parameters(queue_class.run)
    del shown["self"]
    assert shown == taken
    assert inspect.iscoroutinefunction(queue_class.run) is (queue_class is AsyncQueue)


@pytest.mark.parametrize("queue_class", [Queue, AsyncQueue])
def test_the_options_of_connect_are_those_that_type_checkers_know(queue_class: Any) -> None:
    shown = parameters(queue_class.connect)
    assert set(shown) == {"address", "queue", "type", *QueueOptions.__annotations__}
    for name, hint in QueueOptions.__annotations__.items():
        assert shown[name].annotation == hint.__forward_arg__, name
    assert set(parameters(queue_class)) == {*shown, "store", "machine"} - {"address"}


def test_the_settings_that_type_checkers_know_are_all_there_are() -> None:
    assert set(SettingArguments.__annotations__) == set(SETTINGS)
    seconds = {
        name for name, each in SettingArguments.__annotations__.items() if "timedelta" in each.__forward_arg__
    }
    assert seconds == {name for name, each in SETTINGS.items() if each.type is float}
    for name, each in SETTINGS.items():
        known = "Mapping" if each.type is dict else each.type.__name__
        assert known in SettingArguments.__annotations__[name].__forward_arg__, name


def test_help_shows_the_methods() -> None:
    text = pydoc.render_doc(AsyncQueue, renderer=pydoc.plaintext)
    assert "Add a job. It is durable when this returns." in text
    compact = re.sub(r"[\s'|]", "", text)  # Python 3.13 breaks long signatures, 3.14 leaves out the quotes
    assert "asyncclaim(self,limit:int=1" in compact
    assert "asyncrun(self,*,concurrency:int=8" in compact


def test_a_method_s_source_is_its_flow() -> None:
    assert "def _claim(" in inspect.getsource(Queue.claim)
    assert "def run(" in inspect.getsource(Queue.run)


def test_a_wrong_argument_is_told_by_the_name_of_the_method() -> None:
    q: Any = Queue.connect("memory://", "emails")
    with pytest.raises(TypeError, match=r"^claim\(\) got an unexpected keyword argument 'limt'"):
        q.claim(limt=3)
    with pytest.raises(TypeError, match=r"^enqueue\(\) got an unexpected keyword argument 'dely'"):
        q.enqueue(1, dely=3)
    aq: Any = AsyncQueue.connect("memory://", "emails")
    with pytest.raises(TypeError, match=r"^claim\(\) got an unexpected keyword argument 'limt'"):
        asyncio.run(aq.claim(limt=3))


def test_a_subclass_keeps_the_methods_and_may_replace_one() -> None:
    class Counting(Queue[Any]):
        asked = 0

        def stats(self) -> dict[str, Any]:
            self.asked += 1
            return super().stats()

    q = Counting.connect("memory://", "emails")
    assert isinstance(q, Counting)
    q.stats()
    assert q.asked == 1
    assert Counting.claim is Queue.claim
