"""Events of what the command line commits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from osqueue import Queue
from osqueue.cli.app import app
from osqueue.cli.reap import passes
from osqueue.cli.telling import sink_of
from osqueue.events import Event, EventBridgeSink, Undelivered

ARN = "arn:aws:events:eu-west-1:123456789012:event-bus/jobs"

Run = Callable[..., Result]


class Bus:
    """Stands in for EventBridge: what was sent to which bus, and from which source."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str]] = []
        self.down = False

    def send(self, sink: EventBridgeSink, events: Sequence[Event]) -> None:
        if self.down:
            raise Undelivered("nobody there", len(events))
        self.told.extend((sink.bus, sink.source, each.name, each.cause) for each in events)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Bus:
    made = Bus()

    def send(sink: EventBridgeSink, events: Sequence[Event]) -> None:
        made.send(sink, events)

    monkeypatch.setattr(EventBridgeSink, "send", send)
    return made


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


@pytest.fixture
def run(address: str) -> Run:
    def invoke(*args: str, stdin: str | None = None, **env: str) -> Result:
        return CliRunner().invoke(app, args, input=stdin, env={"OSQUEUE_ADDRESS": address, **env})

    return invoke


def test_an_enqueue_tells_the_bus_that_the_option_names(run: Run, bus: Bus) -> None:
    run("enqueue", "emails", "1", "--events", "eventbridge:jobs")
    run("enqueue", "emails", "--events", f"eventbridge:{ARN}?source=shop.jobs", stdin="1\n2\n")
    assert bus.told == [
        ("jobs", "osqueue", "queued", "enqueue"),
        *[(ARN, "shop.jobs", "queued", "enqueue")] * 2,
    ]


def test_the_environment_names_the_bus_where_no_option_does(run: Run, bus: Bus) -> None:
    run("enqueue", "emails", "1", OSQUEUE_EVENTS="eventbridge:here")
    run("enqueue", "emails", "1", "--events", "eventbridge:there", OSQUEUE_EVENTS="eventbridge:here")
    assert [each[0] for each in bus.told] == ["here", "there"]


@pytest.mark.parametrize("queues", [("emails",), ()], ids=["one queue", "all queues"])
def test_a_reap_tells_of_the_leases_that_ended(
    run: Run, bus: Bus, address: str, queues: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    q: Queue[Any] = Queue.connect(address, "emails")
    q.enqueue(1)
    q.claim(lease=1)
    late = 10_000 + q.machine.now_ms()
    monkeypatch.setattr(type(q.machine), "now_ms", lambda machine: late)
    assert run("reap", *queues, "--events", "eventbridge:jobs").exit_code == 0
    assert bus.told == [("jobs", "osqueue", "stalled", "stalled")]


def test_a_worker_tells_of_what_its_jobs_became(
    run: Run, bus: Bus, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks_told.py").write_text(
        f"from osqueue import Queue\nq = Queue.connect({address!r}, 'emails')\n"
        "@q.handler\ndef send(job):\n    return 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    run("enqueue", "emails", "1")
    for _ in range(2):  # the second finds the sink there already
        done = run("worker", "tasks_told:q", "--until-empty", "--events", "eventbridge:jobs", "--json")
        assert done.exit_code == 0, done.stderr
    assert [each[2:] for each in bus.told] == [("processing", "claim"), ("completed", "complete")]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("claim", "emails"), ("processing", "claim")),
        (("job", "show", "emails", "a", "--cancel"), ("cancelled", "cancel")),
    ],
)
def test_whatever_commits_tells(run: Run, bus: Bus, command: tuple[str, ...], told: tuple[str, str]) -> None:
    run("enqueue", "emails", "1", "--id", "a")
    assert run(*command, "--events", "eventbridge:jobs").exit_code == 0
    assert [each[2:] for each in bus.told] == [told]


def test_a_completion_and_a_redrive_tell(run: Run, bus: Bus, address: str) -> None:
    run("enqueue", "emails", "1", "--max-attempts", "1")
    (lease,) = Queue.connect(address, "emails").claim()
    run("complete", "emails", lease.job_id, lease.token, "--fail", "no", "--events", "eventbridge:jobs")
    run("dlq", "redrive", "emails", "--events", "eventbridge:jobs")
    assert [each[2:] for each in bus.told] == [("failed", "fail"), ("queued", "redrive")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobs", "eventbridge:BUS"),
        ("sns:jobs", "eventbridge:BUS"),
        ("eventbridge:", "eventbridge:BUS"),
        ("eventbridge:jobs?sauce=x", "sauce"),
        ("eventbridge:jobs?source=a&source=b", "source"),
        ("eventbridge:jobs?source=", "source"),
        ("eventbridge:jobs?source=aws.mine", "aws."),
    ],
)
def test_a_place_for_events_that_means_nothing_is_refused_and_nothing_enqueued(
    run: Run, tmp_path: Path, text: str, says: str
) -> None:
    result = run("enqueue", "emails", "1", "--events", text)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "jobs/queues").exists()


def test_events_that_did_not_arrive_are_counted_and_the_job_is_in_all_the_same(run: Run, bus: Bus) -> None:
    bus.down = True
    result = run("enqueue", "emails", "--events", "eventbridge:jobs", stdin="1\n2\n3\n")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["enqueued"] == 3
    assert "3 events did not reach eventbridge:jobs: nobody there" in result.stderr


def test_a_loop_of_reaps_tells_as_well(bus: Bus, address: str) -> None:
    assert sink_of(None) is None
    sink = sink_of("eventbridge:jobs")
    assert sink is not None
    q: Queue[Any] = Queue.connect(address, "emails")
    q.enqueue(1, delay=0.001)
    q.machine.sleep(0.002)
    list(passes(q.store, None, 5, (sink,)))
    assert [each[2:] for each in bus.told] == [("queued", "due")]
