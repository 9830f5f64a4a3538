"""Callers over an API: real queue objects over real servers, and between them a network that loses and repeats calls.

A call may be lost on its way, or its answer; it may come late, or twice, to another server than the first time. What
the library repeats by itself comes on top of that. Each payload is unlike any other, so that a job that came in twice
is seen, and each claim names a worker of its own, so that it is seen what a call was granted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from osqueue.client.transports.base import ApiAnswer, ApiCall, CallOutcome, LostCall, Transport, path_of
from osqueue.contract.route import Repeat
from osqueue.core.state import COMPLETED
from osqueue.errors import LeaseLost, OsqueueError, Timeout, Unavailable
from osqueue.events import CallbackSink, Event
from osqueue.model.job import Done
from osqueue.model.keys import key_of
from osqueue.operations.claims import claim_of
from osqueue.queue.blocking import Queue
from osqueue.queue.lease import Lease
from osqueue.server.app import Api, ApiRequest, ApiResponse

from .fibers import Host, ThreadedMachine, VirtualStore, running
from .ledger import Violation
from .machine import source
from .stories import Stories

if TYPE_CHECKING:
    from .run import Run

WAY_SECONDS = 0.01  # of a call, and of its answer
RESULT_TTL_SECONDS = 900.0  # longer than any call is late
LATE_SECONDS_MAX = 120.0


class Servers:
    """The API: processes that come and go."""

    def __init__(self, run: Run, count: int) -> None:
        self.run = run
        self.world = run.world
        self.apis = [self._server(at, 0) for at in range(count)]

    def _server(self, at: int, life: int) -> tuple[Host, Api]:
        host = Host(self.world, self.run.network.send)
        machine = self.run.machine(f"server{at}.{life}", ThreadedMachine)
        self.run.hosts.append(host)

        def died() -> None:
            self.apis[at] = self._server(at, life + 1)

        host.died = died
        return host, Api(VirtualStore(host), machine=machine, sinks=(CallbackSink(_heard),))

    def deliver(self, request: ApiRequest, answer: Callable[[ApiResponse], None]) -> None:
        """A call arrives at one of them."""
        host, api = self.apis[int(self.world.chance.random() * len(self.apis))]
        if host.alive:
            host.run(lambda: self._serve(api, request, answer))

    def _serve(self, api: Api, request: ApiRequest, answer: Callable[[ApiResponse], None]) -> None:
        response = api.answer(request)
        if response.code == "internal":
            raise Violation(f"the server failed: {request.method} {request.path}")
        answer(response)


class VirtualTransport(Transport):
    """The way to the servers."""

    def __init__(self, servers: Servers, machine: ThreadedMachine) -> None:
        super().__init__(machine)
        self.servers = servers
        self.world = servers.world

    @property
    def place(self) -> object:
        return self.servers

    def send(self, call: ApiCall) -> CallOutcome:
        fiber = running()
        assert fiber is not None, "only threads block"
        request = ApiRequest(call.route.method, path_of(call), call.query, call.body)
        reply: CallOutcome = fiber.wait(partial(self._send, call, request))
        return reply

    def _send(self, call: ApiCall, request: ApiRequest, wake: Callable[[Any], None]) -> None:
        world, chance = self.world, self.world.chance
        faults = world.faults
        world.after(call.timeout or 30.0, partial(wake, LostCall(Timeout("no answer came in time"))))

        broken = LostCall(Unavailable("the connection broke"))

        def breaks(kind: str) -> bool:
            """Nothing comes back; half of the time that is heard at once."""
            if not world.happens(kind, faults.relay):
                return False
            if chance.random() < 0.5:
                world.after(WAY_SECONDS, partial(wake, broken))
            return True

        def answered(response: ApiResponse) -> None:
            if not breaks("answer lost"):
                world.after(WAY_SECONDS, partial(wake, ApiAnswer(response.status, response.body)))

        def ignored(response: ApiResponse) -> None:
            """Nobody waits for it."""

        arrive = partial(self.servers.deliver, request)
        # A claim that comes twice leases twice, whoever sent it twice: the library does not.
        twice = call.route.repeat is Repeat.ALWAYS
        if breaks("call lost"):
            return
        if twice and breaks("call late"):
            world.after(chance.random() ** 2 * LATE_SECONDS_MAX, partial(arrive, ignored))
            return
        world.after(WAY_SECONDS, partial(arrive, answered))
        if twice and world.happens("call twice", faults.relay):
            world.after(chance.random() ** 4 * LATE_SECONDS_MAX, partial(arrive, ignored))


class Remotes:
    """Everybody who calls, and what they were told."""

    def __init__(self, run: Run, callers: int, servers: int) -> None:
        self.run = run
        self.stories: Stories = run.invariants.stories
        self.servers = Servers(run, servers)
        self.host = Host(run.world, run.network.send)
        run.hosts.append(self.host)
        self.tags: set[str] = set()  # of payloads that somebody sent
        self.promised: set[bytes] = set()  # jobs that somebody was told of
        self.tokens: set[str] = set()  # leases that somebody was told of
        self.callers = callers

    def begin(self) -> None:
        """All of them begin."""
        for at in range(self.callers):
            caller = RemoteCaller(self, f"remote{at}")
            self.host.run(caller.body, self.run.world.chance.random() * 2)

    # ── What is checked ──────────────────────────────────────────────────────
    def enqueued(self, tag: str, job_id: str | None) -> None:
        """Somebody was told that a job is in the queue."""
        key = key_of(job_id or "")
        known = self.stories.accepted.get(key)
        if known is None or _tag(known.payload) != tag:
            raise Violation(f"{tag} was told of {job_id}, which is no job of its own")
        self.promised.add(key)
        if len(found := self.jobs_of(tag)) != 1:
            raise Violation(f"{tag} came in {len(found)} times")

    def jobs_of(self, *tags: str) -> set[bytes]:
        """The jobs that came in with these payloads."""
        return {key for key, each in self.stories.accepted.items() if _tag(each.payload) in tags}

    def claimed(self, worker: str, leases: list[Lease[Any]]) -> None:
        """A claim was answered: with all that it was granted."""
        told = {each.token for each in leases}
        if told & self.tokens:
            raise Violation(f"{worker} was given a lease that another claim was given")
        self.tokens |= told
        state = self.run.invariants.state
        held = {each.token for each in state.leases.values() if each.worker == worker} if state else set()
        if held - told:
            raise Violation(f"{worker} holds {len(held - told)} leases that it was not told of")

    def ended(self, lease: Lease[Any], *, lost: bool) -> None:
        """A completion was answered."""
        won = any(
            each.row.token == lease.token and each.row.state == COMPLETED
            for each in self.stories.versions.get(lease.key, ())
        )
        if won == lost:
            told = "that its lease was lost" if lost else "that it had won"
            raise Violation(f"the worker of {lease.job_id} was told {told}, and it was not so")

    def account(self) -> tuple[set[bytes], set[bytes]]:
        """The jobs that were promised, and those that may be there."""
        possible = self.jobs_of(*self.tags)
        if len({_tag(self.stories.accepted[key].payload) for key in possible}) != len(possible):
            raise Violation("a job that was enqueued over the API came in twice")
        return self.promised, possible


class RemoteCaller:
    """One who brings jobs and works on them."""

    def __init__(self, remotes: Remotes, name: str) -> None:
        self.remotes = remotes
        self.name = name
        run = remotes.run
        self.clients = run.profile.clients
        self.dice = source(run.world.seed, "remote", name)
        self.machine = run.machine(name, ThreadedMachine)
        assert isinstance(self.machine, ThreadedMachine)
        self.queue: Queue[Any] = Queue(
            VirtualTransport(remotes.servers, self.machine), run.invariants.queue, machine=self.machine
        )
        self.count = 0

    def body(self) -> None:
        """One call after the other."""
        for _ in range(self.clients.rounds):
            self.machine.sleep(self.dice.expovariate(1 / self.clients.pause_seconds))
            try:
                (self.enqueue if self.dice.random() < 0.5 else self.work)()
            except (Timeout, Unavailable):
                continue
            except OsqueueError as error:
                raise Violation(f"{self.name} was told {type(error).__name__}: {error}") from error
        self.remotes.run.book.producing -= 1

    def enqueue(self) -> None:
        """One job or several, small ones and large ones."""
        items = [self.item() for _ in range(self.dice.choice((1, 1, 3)))]
        tags = [each["payload"]["tag"] for each in items]
        if len(items) == 1:
            self.remotes.enqueued(tags[0], self.queue.enqueue(**items[0]).job_id)
            return
        for tag, done in zip(tags, self.queue.enqueue_many(items), strict=True):
            if done.status == "queued":
                self.remotes.enqueued(tag, done.job_id)
            elif not isinstance(done.error, Timeout | Unavailable):
                raise Violation(f"{tag} was told {done.status}: {done.error}")

    def item(self) -> dict[str, Any]:
        """A job unlike any other."""
        self.count += 1
        tag = f"{self.name}/{self.count}"
        self.remotes.tags.add(tag)
        payload = {"tag": tag, "pad": "x" * self.dice.choice((0, 100))}
        return {"payload": payload, "result_ttl": RESULT_TTL_SECONDS}

    def work(self) -> None:
        """Claim, and say how it ended: all in one call with the next claim, or one by one."""
        worker = self.worker()
        leases: list[Lease[Any]] = self.queue.claim(
            self.dice.choice((1, 3)), worker=worker, lease=self.dice.choice((5, 60))
        )
        self.remotes.claimed(worker, leases)
        while leases and self.dice.random() < 0.5:
            leases = self.turn(leases)
        for lease in leases:
            self.machine.sleep(self.dice.choice((0.0, 0.1, 2.0)))
            roll = self.dice.random()
            try:
                if roll < 0.8:
                    self.complete(lease)
                elif roll < 0.9:
                    lease.fail("no luck", retry_in=0)
                else:
                    lease.release()
            except LeaseLost:
                continue

    def worker(self) -> str:
        """A name for one claim."""
        self.count += 1
        return f"{self.name}-{self.count}"

    def turn(self, leases: list[Lease[Any]]) -> list[Lease[Any]]:
        """Complete all of them and claim the next ones, as a worker does."""
        self.machine.sleep(self.dice.choice((0.0, 0.1, 2.0)))
        flows, worker = self.queue._flows, self.worker()
        result = flows.encode_result("x" * self.dice.choice((3, 100)))
        endings = [flows.completion(lease.key, lease.token, result) for lease in leases]
        wish = claim_of(self.dice.choice((1, 3)), worker, self.dice.choice((5, 60)), None)
        done, (claimed,) = self.queue._run(flows.turn(endings, [wish]))
        for lease, told in zip(leases, done, strict=True):
            if isinstance(told, Done) and told.code != "stale":  # which says that nobody knows
                self.remotes.ended(lease, lost=not told.ok)
        for each in (*done, claimed):
            if isinstance(each, Exception) and not isinstance(each, Timeout | Unavailable):
                raise each
        if isinstance(claimed, Exception):
            return []
        found = [Lease[Any](self.queue, each) for each in claimed.leases]
        self.remotes.claimed(worker, found)
        return found

    def complete(self, lease: Lease[Any]) -> None:
        """Complete, and hear whether that was in time; say it again where nothing was heard."""
        result = "x" * self.dice.choice((3, 100))
        for left in (1, 0):
            try:
                lease.complete(result)
            except LeaseLost:
                self.remotes.ended(lease, lost=True)
                raise
            except (Timeout, Unavailable):
                if not left:
                    raise
                self.machine.sleep(self.dice.choice((1.0, 20.0)))
            else:
                self.remotes.ended(lease, lost=False)
                return


def _heard(event: Event) -> None:
    """Somebody listens, so servers note what their commits do; the checks read it."""


class _Tagged(msgspec.Struct):
    tag: str = ""


def _tag(payload: bytes) -> str:
    try:
        return msgspec.json.decode(payload, type=_Tagged).tag
    except msgspec.DecodeError:
        return ""
