"""How many files a reader has to open who follows a call: measured, with a ceiling."""

from __future__ import annotations

from typing import Any

import pytest

from bench.path import FileTracer, paths
from osqueue import Queue

# One more than before ``core/ops.py`` was split, which had grown past what one file may hold; one more again since the
# search of a claim stands by itself, and two for an enqueue since lanes may be mixed and settings stand by themselves.
# One more since a head may have drop rules, which every commit asks whether there are any.
# Over HTTP one more tells in which shard a job has to be. How attempts end is written once for the caller, the function
# and the library, in a file of its own.
# Two more since each use compares the process id (``forks``), and a call's time decides about repeats
# (``commit/retry``). Two more since few writers publish: the steps that all paths of a commit share (``commit/steps``),
# and what a writer knows of publications.
CEILING = {
    "enqueue, embedded": 37,
    "complete, embedded": 34,
    "enqueue over HTTP, its caller": 17,
    "enqueue over HTTP, its function": 52,
    "complete over HTTP, its caller": 16,
    "complete over HTTP, its function": 46,
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return paths()


@pytest.mark.parametrize("call", CEILING)
def test_a_call_runs_through_no_more_files_than_it_used_to(found: dict[str, list[str]], call: str) -> None:
    files = found[call]
    assert len(files) <= CEILING[call], "\n".join(files)


def test_the_paths_that_are_measured_lead_from_the_caller_to_the_reducer(found: dict[str, list[str]]) -> None:
    assert found.keys() == CEILING.keys()
    for name, files in found.items():
        assert files[0].startswith("aws_lambda/" if name.endswith("function") else "queue/"), name
        assert ("core/reduce.py" in files) is not name.endswith("caller"), name
        assert ("client/transports/http.py" in files) is name.endswith("caller"), name


def test_a_file_is_noted_once_and_only_while_a_call_is_traced() -> None:
    tracer = FileTracer()
    q: Queue[Any] = Queue.connect("memory://", "noted")
    with tracer.installed():
        q.enqueue(1)
        assert tracer.files == []
        files = tracer.of(lambda: (q.enqueue(2), q.enqueue(3)))
        q.stats()
    assert tracer.files == []
    assert len(files) == len({*files}) > 0
    assert "objects/listing.py" not in files
