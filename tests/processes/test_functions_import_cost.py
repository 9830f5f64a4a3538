"""What a function's cold start loads: told by its modules, not by a stop-watch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from osqueue.contract.functions import FUNCTIONS
from osqueue.contract.operations import ROUTES
from osqueue.contract.work import WORK
from tests.support.functions_at_work import environment
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

RUNTIME = ("awslambdaric.bootstrap",)
# Of no use to a handler: SDKs, event loops, what consumers are given, terminals, Spark, models, other clients of HTTP.
HEAVY = {
    *(
        "asyncio",
        "aws_lambda_powertools",
        "boto3",
        "botocore.client",
        "click",
        "http.client",
        "multiprocessing",
        "osqueue.cli",
        "osqueue.devstack",
    ),
    *(
        "osqueue.client.call",
        "simulation",
        "osqueue.worker.loop",
        "opentelemetry",
        "osqueue.otel",
        "pydantic",
        "pyspark",
        "rich",
        "urllib.request",
    ),
    "urllib3",
}
# How many modules a handler may load beside those that the runtime loads. Who needs one more says why in the commit.
MODULES_MAX = 253
WORK_MODULES_MAX = 216  # of those that jobs come and go by, which load no row of operators

LOAD = """
import importlib, importlib.util, json, sys
before = set(sys.modules)
for name in {modules!r}:
    importlib.import_module(name)
if {handler!r}:
    spec = importlib.util.spec_from_file_location("handler", {handler!r})
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@cache
def loaded(*modules: str, handler: str = "", store: str = "file:///nowhere") -> frozenset[str]:
    """Every module that a fresh interpreter loads for these, or for a handler."""
    place = str(ROOT / "functions" / handler / "handler.py") if handler else ""
    answer = subprocess.run(
        [sys.executable, "-c", LOAD.format(modules=modules, handler=place)],
        env={**os.environ, **environment(store)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return frozenset(json.loads(answer.stdout))


@pytest.mark.parametrize("name", [each.name for each in FUNCTIONS])
@pytest.mark.parametrize("store", ["memory://", "s3://bucket/prefix?region=eu-west-1"])
def test_a_cold_start_loads_nothing_heavy(name: str, store: str) -> None:
    assert loaded(handler=name, store=store) & HEAVY == set()


@pytest.mark.parametrize("name", [each.name for each in FUNCTIONS])
def test_a_cold_start_loads_little_beside_the_runtime(name: str) -> None:
    ours, theirs = loaded(handler=name, store="memory://"), loaded(*RUNTIME)
    most = WORK_MODULES_MAX if name in ("enqueue", "claim", "complete") else MODULES_MAX
    assert len(ours - theirs) <= most, sorted(ours - theirs)


def test_a_handler_loads_what_its_routes_need_and_no_more() -> None:
    operators = {"osqueue.operations.purge", "osqueue.contract.operations", "osqueue.model.settings"}
    assert operators <= loaded(handler="queues", store="memory://")
    for name in ("enqueue", "claim", "complete"):
        assert not operators & loaded(handler=name, store="memory://")


def test_rows_that_stand_alone_are_all_rows_of_their_functions() -> None:
    alone = {route.function for route in WORK}
    assert [route for route in ROUTES if route.function in alone] == list(WORK)


EVALUATED = """
import collections, io, json, sys, threading
found = collections.Counter()

def look(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        for each in frame.f_locals["obj"].__mro__:
            texts = [text for text in vars(each).get("__annotations__", {{}}).values() if isinstance(text, str)]
            if texts and each.__module__.startswith("osqueue"):
                found[each.__module__] += len(texts)

sys.setprofile(look)
threading.setprofile(look)
from bench.handlers_worker import called, loaded
handler, out = loaded({path!r}), sys.stdout
sys.stdout = io.StringIO()
called(handler, "jobs", {{"payload": 1}})
sys.stdout = out
print(json.dumps(found))
"""
TEXTS_MAX = (
    13  # of follow-ups, which name themselves and what reads them, and of a job that names its cancellation
)


def test_types_of_what_is_decoded_are_not_compiled_from_text_at_each_start() -> None:
    """msgspec asks for them, and each text is compiled anew in each process: 600 were a tenth of a cold start."""
    path = str(ROOT / "functions/enqueue/handler.py")
    answer = subprocess.run(
        [sys.executable, "-c", EVALUATED.format(path=path)],
        env={**os.environ, **environment("memory://"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    found = json.loads(answer.stdout.splitlines()[-1])  # the function's log stands before it
    assert sum(found.values()) <= TEXTS_MAX, found
