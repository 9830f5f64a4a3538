"""A remote queue against a real API on loopback: workers, the command line, and a network that breaks."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from click.testing import CliRunner, Result

from osqueue import AsyncQueue, Fail, JobFailed, LeaseLost, Queue, Rejected, Snooze, Unavailable
from osqueue.cli.app import app
from osqueue.client.transports.address import open_transport
from osqueue.stores.base import PutIfMatch, Refused
from osqueue.stores.memory import MemoryStore
from osqueue.worker.loop import Worker
from tests.support.patience import PATIENCE

FAULTS = "error_rate=0.15&lost_reply_rate=0.15"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def url(api_server: Any, store: MemoryStore) -> Iterator[str]:
    with api_server.api_server(store) as found:
        yield found


@pytest.fixture(params=["http", "lambda"])
def address(request: pytest.FixtureRequest, api_server: Any, url: str) -> str:
    """Ends so that options can be added."""
    if request.param == "http":
        return f"{url}?"
    request.getfixturevalue("aws_environment")
    return f"lambda://{api_server.PREFIX}?endpoint={url}&"


def finished(store: MemoryStore) -> Counter[str]:
    """What every job's attempts came to, read from the store itself."""
    with Queue[Any](store, "mail") as q:
        q.reap()
        return Counter(job.state for job in q.history())


# ── Workers ──────────────────────────────────────────────────────────────────
def test_a_worker_runs_its_handlers(address: str, store: MemoryStore) -> None:
    q = Queue.connect(address, "mail")
    seen: list[Any] = []
    lock = threading.Lock()

    @q.handler
    def send(job: Any) -> Any:
        with lock:
            seen.append(job.payload["n"])
        job.heartbeat()
        if job.payload["n"] == 3 and job.run == 1:
            return Snooze(0)
        if job.payload["n"] == 4:
            return Fail("no such mailbox")
        if job.payload["n"] == 5:
            raise KeyError("colour")
        return {"sent": job.payload["n"]}

    done = q.enqueue_many([{"payload": {"n": at}, "max_attempts": 1} for at in range(40)])
    with q:
        tally = q.run(concurrency=4, until_empty=True, poll=0.05, signals=False)
        assert (tally.completed, tally.failed, tally.lost) == (38, 2, 0)
        assert set(seen) == set(range(40))
        assert q.result(done[7].job_id) == {"sent": 7}
        assert {each.error for each in q.dead_letters()[0]} == {"no such mailbox", "KeyError: 'colour'"}
        with pytest.raises(JobFailed) as caught:
            q.result(done[5].job_id)
        assert (caught.value.type, caught.value.error) == ("KeyError", "'colour'")
        assert 'raise KeyError("colour")' in caught.value.traceback
    assert finished(store) == {"completed": 38, "failed": 2}


def test_a_workers_heartbeats_keep_a_lease_longer_than_it_lasts(api_server: Any, machine: Any) -> None:
    started, end = threading.Event(), threading.Event()
    with api_server.api_server(MemoryStore(machine), machine=machine) as url:
        q = Queue[Any](open_transport(url), "mail", machine=machine)

        @q.handler
        def work(job: Any) -> int:
            started.set()
            assert end.wait(PATIENCE)
            return int(job.attempt)

        job_id = q.enqueue("slow").job_id
        worker = Worker(q, concurrency=1, lease=1, signals=False)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        assert started.wait(PATIENCE)
        for _ in range(5):  # two leases long
            machine.advance(0.4)
            now = machine.now_ms()
            while round(q.status(job_id).heartbeat_at.timestamp() * 1000) < now:
                time.sleep(0.01)
        end.set()
        worker.stop()
        thread.join(PATIENCE)
        assert q.result(job_id) == 1
    assert (worker.tally.completed, worker.tally.lost) == (1, 0)


def test_a_coroutine_worker_runs_its_handlers(address: str, store: MemoryStore) -> None:
    async def main() -> Any:
        async with AsyncQueue.connect(address, "mail") as q:

            @q.handler
            async def send(job: Any) -> Any:
                await job.heartbeat()
                return job.payload * 2

            done = await asyncio.gather(*[q.enqueue(at) for at in range(20)])
            tally = await q.run(concurrency=8, until_empty=True, poll=0.05, signals=False)
            assert [await q.result(each.job_id) for each in done] == [at * 2 for at in range(20)]
            assert [job async for job in q.history()] == []
            return tally

    tally = asyncio.run(main())
    assert (tally.claimed, tally.completed) == (20, 20)
    assert finished(store) == {"completed": 20}


# ── A network that breaks ────────────────────────────────────────────────────
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_enqueues_whose_calls_fail_or_lose_their_answers_make_each_job_once(
    address: str, store: MemoryStore, seed: int
) -> None:
    with Queue.connect(f"{address}{FAULTS}&seed={seed}", "mail") as q:
        with ThreadPoolExecutor(4) as threads:
            done = list(threads.map(q.enqueue, range(40)))
            done += list(threads.map(lambda at: q.enqueue(at, id=f"id {at % 5}"), range(40, 50)))
        done += q.enqueue_many([{"payload": at} for at in range(50, 90)])
    assert Counter(each.status for each in done) == {"queued": 85, "duplicate": 5}
    with Queue[Any](store, "mail") as q:
        found = Counter(lease.payload for lease in q.claim(1_000))
        assert q.claim() == []
    assert set(found.values()) == {1}
    assert set(range(40)) | set(range(50, 90)) <= set(found)
    assert sum(found.values()) == 85


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_whose_calls_fail_or_lose_their_answers_end_every_job_once(
    url: str, store: MemoryStore, seed: int
) -> None:
    with Queue[Any](store, "mail") as q:
        q.enqueue_many([{"payload": at, "max_attempts": 100} for at in range(60)])
    ran: Counter[int] = Counter()
    lock = threading.Lock()

    def work(number: int) -> Any:
        with Queue.connect(f"{url}?{FAULTS}&seed={seed * 10 + number}", "mail") as q:

            @q.handler
            def run(job: Any) -> None:
                with lock:
                    ran[job.payload] += 1

            return q.run(concurrency=4, lease=1, until_empty=True, poll=0.05, signals=False)

    while sum(finished(store).values()) < 60:  # what a lost claim leased comes back when the lease ends
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(work, range(3)))
    assert finished(store) == {"completed": 60}
    assert set(ran) == set(range(60))
    with Queue[Any](store, "mail") as q:
        counters = q.stats()["counters"]
    assert (counters["enqueued"], counters["completed"]) == (60, 60)


class Contended(MemoryStore):
    """The head's writes lose their races while the test says so."""

    busy = 0

    def put_if_match(self, request: PutIfMatch) -> Any:
        if self.busy > 0 and request.key.endswith("/head"):
            self.busy -= 1
            return Refused()
        return super().put_if_match(request)


def test_an_enqueue_under_contention_is_still_one_job(api_server: Any) -> None:
    store = Contended()
    with api_server.api_server(store) as url, Queue.connect(url, "mail", timeout=PATIENCE) as q:
        q.enqueue(0)
        store.busy = 5
        assert q.enqueue(1).status == "queued"
        assert sorted(lease.payload for lease in q.claim(9)) == [0, 1]


def test_an_api_that_comes_up_late_is_waited_for(machine: Any) -> None:
    with socket.socket() as taken:  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        transport = open_transport(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with Queue[Any](transport, "mail", machine=machine, timeout=1) as q:
            with pytest.raises(Unavailable, match="no connection"):
                q.claim()
            assert q.requests["post"] > 1  # nothing was sent, so even a claim is tried again


@pytest.mark.parametrize("name", ["\ud800", "x\udfff"])
def test_text_that_cannot_be_sent_is_rejected_by_name(address: str, name: str) -> None:
    with Queue.connect(address, "mail") as q:
        for ask in (lambda: q.jobs(cursor=name), lambda: q.dead_letters(cursor=name)):
            with pytest.raises(Rejected) as caught:
                ask()
            assert caught.value.field == "cursor"


# ── Many ─────────────────────────────────────────────────────────────────────
def test_2500_jobs_go_in_by_three_calls_and_come_out_in_order(address: str) -> None:
    with Queue.connect(address, "mail") as q:
        done = q.enqueue_many([{"payload": at} for at in range(2_500)])
        assert {each.status for each in done} == {"queued"}
        assert q.requests["post"] == 3
        found: list[Any] = []
        while leases := q.claim(1_000):
            found += [lease.payload for lease in leases]
            assert all(each.ok for each in q.complete_many(leases))
        assert found == list(range(2_500))


def test_a_forks_child_uses_the_queue_as_well(url: str) -> None:
    with Queue.connect(url, "mail") as q:
        q.enqueue("parent")
        child = os.fork()
        if not child:
            try:
                q.enqueue("child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        q.enqueue("parent again")
        assert sorted(lease.payload for lease in q.claim(9)) == ["child", "parent", "parent again"]


def test_typed_payloads_arrive_as_their_type(url: str) -> None:
    from datetime import UTC, datetime

    with Queue.connect(url, "mail", serializer="msgpack", type=dict[str, datetime]) as q:
        moment = datetime(2030, 1, 31, tzinfo=UTC)
        q.enqueue({"at": moment})
        (lease,) = q.claim()
        assert lease.payload == {"at": moment}
        lease.complete(b"\xff\x00")
        assert q.result(lease.job_id) == b"\xff\x00"
        with pytest.raises(LeaseLost):
            lease.fail("late")


# ── The command line ─────────────────────────────────────────────────────────
def run(*args: str, stdin: str | None = None, code: int = 0, **env: str) -> Result:
    result = CliRunner().invoke(
        app, args, input=stdin, env={"OSQUEUE_ADDRESS": None, "OSQUEUE_EVENTS": None, **env}
    )
    assert result.exit_code == code, result.output
    return result


def answers(*args: str, **how: Any) -> list[Any]:
    return [json.loads(line) for line in run(*args, **how).stdout.splitlines()]


def answer(*args: str, **how: Any) -> Any:
    (found,) = answers(*args, **how)
    return found


def test_commands_work_over_direct_invocations(aws_environment: None, api_server: Any, url: str) -> None:
    at = f"lambda://{api_server.PREFIX}?endpoint={url}"
    assert answer("enqueue", at, "emails", "[1]")["status"] == "queued"
    assert answer("claim", "emails", OSQUEUE_ADDRESS=at)["payload"] == [1]
    assert answer("queue", "ls", at)["processing"] == 1


def test_every_command_that_makes_sense_works_over_an_api(url: str) -> None:
    at = url
    assert run("queue", "ls", at).stderr == "no queues at this address\n"
    assert (
        answer("enqueue", at, "emails", '{"to": "ada"}', "--id", "a/b", "--kind", "k")["status"] == "queued"
    )
    lines = "".join(f"{number}\n" for number in range(2_100))
    summary = answer("enqueue", at, "emails", "--file", "-", stdin=lines)
    assert (summary["enqueued"], summary["rejected"]) == (2_100, 0)
    assert answer("queue", "ls", at, "--names") == {"queue": "emails"}
    assert answer("queue", "ls", at)["queued"] == 2_101
    assert answer("queue", "stats", at, "emails")["queued"] == 2_101
    lease = answer("claim", at, "emails", "--kind", "k")
    assert lease["payload"] == {"to": "ada"}
    assert "leased by" in answer("why", at, "emails", "a/b")["now"]
    assert answer("complete", at, "emails", lease["job_id"], lease["token"], "--result", "[1]")["ok"]
    assert answer("job", "result", at, "emails", "a/b") == [1]
    assert answer("job", at, "emails", "a/b")["state"] == "completed"
    assert answer("job", "ttl", at, "emails", "a/b", "2h")["result_ttl"] == 7_200
    assert answer("enqueue", at, "emails", "0", "--id", "a/b", "--wait", "5s") == [1]
    (first, second) = answers("claim", at, "emails", "--limit", "2")
    outcomes = "".join(json.dumps({**each, "error": "disk 7 full"}) + "\n" for each in (first, second))
    assert [each["code"] for each in answers("complete", at, "emails", stdin=outcomes)] == ["failing"] * 2
    assert answer("queue", "configure", at, "emails", "--backoff-base", "0.001s")["backoff_base"] == 0.001
    assert answer("queue", "pause", at, "emails")["paused"]
    assert "paused" in run("claim", at, "emails").stderr
    assert not answer("queue", "resume", at, "emails")["paused"]
    assert len(answer("queue", "jobs", at, "emails", "--limit", "5")["jobs"]) == 5
    dead = answer("claim", at, "emails")
    assert answer("job", "show", at, "emails", dead["job_id"], "--cancel")["cancel"] == "processing"
    assert answer("complete", at, "emails", dead["job_id"], dead["token"], "--release")["ok"]
    assert answer("dlq", "ls", at, "emails") == {"dead_letters": [], "cursor": None}
    assert answer("dlq", "redrive", at, "emails", "--dry-run")["would_redrive"] == 0
    assert answer("dlq", "purge", at, "emails")["would_purge"] == 0
    assert answer("reap", at)["queue"] == "emails"
    assert answer("reap", at, "emails")["queue"] == "emails"
    assert answer("job", "purge", at, "emails", "a/b", "--yes")["purged"] == 1


def test_what_needs_the_store_says_so_and_what_is_not_there_is_named(url: str) -> None:
    answer("enqueue", url, "emails", "1")
    for args in (
        ("doctor", url),
        ("doctor", url, "emails"),
        ("archive", "ls", url, "emails"),
        ("archive", "cat", url, "emails"),
        ("archive", "query", url, "emails"),
        ("bench", url),
        ("reap", url, "--every", "60s"),
    ):
        told = json.loads(run(*args, "--json", code=2).stderr.splitlines()[-1])["error"]
        assert told["code"] == "not_supported", args
        assert "s3://bucket/prefix" in told["message"]
    told = run("queue", "stats", url, "emial", code=1).stderr
    assert "There are: emails." in told
    told = run("enqueue", url, "emails", "1", "--events", "eventbridge:jobs", code=2).stderr
    assert "EventBridge" in told
    assert run("job", "result", url, "emails", "nobody", code=1).stderr.startswith("error: not_found")
    assert run("queue", "ls", "https://127.0.0.1:1?auth=none", "--timeout", "0.2s", code=3)


def test_an_import_of_lines_that_breaks_off_says_where_to_go_on(url: str, monkeypatch: Any) -> None:
    from osqueue.client.transports.http import HttpTransport

    send, sent = HttpTransport.send, []

    def breaks(self: Any, call: Any) -> Any:
        sent.append(call)
        if len(sent) == 3:
            raise Unavailable("it ends here", permanent=True)
        return send(self, call)

    monkeypatch.setattr(HttpTransport, "send", breaks)
    lines = "".join(f"{number}\n" for number in range(3_000))
    result = run("enqueue", url, "emails", "--file", "-", stdin=lines, code=3)
    assert "Lines up to 2,000 are enqueued" in result.stderr
    assert "--from-line 2001" in result.stderr
