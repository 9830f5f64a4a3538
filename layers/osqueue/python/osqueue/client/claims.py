"""Claims over an API, and what workers say of the jobs they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from .. import limits
from ..commit.effects import AwaitNews, Sleep
from ..contract.error_codes import error_of
from ..contract.functions import PAYLOAD_BYTES_MAX
from ..contract.schemas import (
    CompletionResults,
    Ending,
    Endings,
    ErrorDetails,
    HeartbeatRequest,
    HeartbeatResults,
    Held,
    ItemResult,
    Leased,
    Leases,
    NewClaim,
    NewTurn,
    TurnClaim,
)
from ..core.job_ops import ClaimJobs, Completion, FailedAttempt, LeaseBeat
from ..core.state import JobRecord, LeaseRecord, Links
from ..errors import Damaged, OsqueueError, Timeout, Unavailable
from ..model import validation
from ..model.fields import moment
from ..model.job import Done
from ..model.job_options import columns_viewed
from ..model.keys import job_id, key_of
from ..operations.claims import ClaimResult, GrantedLease, TurnAnswers, claim_of, closed_until
from ..operations.endings import AbortedJob, AttemptEnd, EndingCalls
from ..operations.head_board import JITTER_SHARE, Pace, WorkWaiter
from .call import RemoteFlow, batches, one_for_each
from .content import content, encoded, fields
from .large_contents import LargeContents

POLL_SECONDS_FIRST = 0.1  # between two calls of a claim that waits, doubled up to …
POLL_SECONDS_MAX = 2.0  # so a claim that waits sends 6 calls in the first 3.1 s, then 30 a minute
WORKER_POLL_SECONDS_FIRST = 0.05  # between two claims of a worker, doubled up to its `poll`
DOUBLINGS_MAX = 30
BEAT_SECONDS_MAX = 5.0  # for one try: a call that hangs must not take the leases along


Fetched = tuple[bytes | OsqueueError, str]  # with the name of what serialised it


class RemoteClaims(EndingCalls, LargeContents):
    """The flows of workers."""

    def claim(
        self,
        limit: int = 1,
        worker: str | None = None,
        wait: float = 0,
        lease: float = limits.LEASE_MS_DEFAULT / 1000,
        kinds: Iterable[str] | None = None,
    ) -> RemoteFlow[ClaimResult]:
        """Lease jobs, waiting up to ``wait`` seconds for the first: by asking again, so that no function sleeps."""
        op = claim_of(limit, self.machine.name() if worker is None else worker, lease, kinds)
        wait_s = validation.milliseconds(wait, "wait", 0, limits.DAY_MS) / 1000
        body = NewClaim(**_claim_fields(op))

        until = self.machine.monotonic() + wait_s
        pause = POLL_SECONDS_FIRST
        while True:
            sent_at = self.machine.monotonic()  # before all tries: a lease ends no earlier than it says
            answer: Leases = yield from self.ask("claim", body=body)
            claimed = yield from self._claimed(answer, op.worker, sent_at)
            left = until - self.machine.monotonic()
            if claimed.leases or left <= 0:
                return claimed
            now = self.machine.monotonic()
            soon = pause if claimed.retry_after is None else max(POLL_SECONDS_FIRST, claimed.retry_after)
            yield Sleep(min(max(min(pause, soon), closed_until(claimed, now) - now), left))
            pause = min(2 * pause, POLL_SECONDS_MAX)

    # ── A worker's turn ──────────────────────────────────────────────────────
    def turn(self, endings: Sequence[AttemptEnd], claims: Sequence[ClaimJobs]) -> RemoteFlow[TurnAnswers]:
        """Say how attempts ended and claim jobs, in one call, or in as few as hold them. Raises no OsqueueError.

        Where a call's answer is lost, its endings are said again without its claims, until they are heard. So no
        ending is lost, and of leases those at most that this one call was granted: they run out by themselves.
        """
        done: list[Done | Exception] = []
        found: list[ClaimResult | Exception] = []
        said: list[bytes] = []
        beside: list[int] = []
        unsaid: dict[int, OsqueueError] = {}  # whose results could not be uploaded
        for at, item in enumerate(endings):
            try:
                ending, large = yield from self._ending(item)
            except OsqueueError as error:
                unsaid[at] = error
                continue
            said.append(ending)
            beside.append(large)
        ended = [each for _, each in batches(said, beside)]
        wanted = [
            each
            for _, each in batches([msgspec.json.encode(TurnClaim(**_claim_fields(op))) for op in claims])
        ]
        completions: list[Raw]
        wishes: list[Raw]
        for completions, wishes in zip_longest(ended, wanted, fillvalue=[]):
            ops = claims[len(found) : len(found) + len(wishes)]
            try:
                told, claimed = yield from self._turn(completions, wishes, ops)
            except OsqueueError as error:
                told, claimed = [error] * len(completions), [error] * len(wishes)
            done += told
            found += claimed
        rest = iter(done)
        return [unsaid.get(at) or next(rest) for at in range(len(endings))], found

    def _turn(
        self, completions: list[Raw], wishes: list[Raw], claims: Sequence[ClaimJobs]
    ) -> RemoteFlow[TurnAnswers]:
        """One call; and where its answer was lost another, of the endings alone."""
        sent_at = self.machine.monotonic()
        claimed: list[ClaimResult | Exception] = []
        answer: CompletionResults | None = None
        if wishes:
            body = NewTurn(completions=completions, claims=wishes, codec=self.codec.results.name)
            try:
                answer = turn = yield from self.ask("turn", body=body)
            except (Timeout, Unavailable) as error:
                if error.permanent or not completions:
                    raise
                claimed = [error] * len(wishes)
            else:
                for op, each in zip(claims, one_for_each(turn.claims, wishes), strict=True):
                    if each.error is not None:
                        claimed.append(error_of(each.error))
                    else:
                        claimed.append((yield from self._claimed(each, op.worker, sent_at)))
        if answer is None:
            left = self.timeout - (self.machine.monotonic() - sent_at)
            answer = yield from self._complete(completions, max(0.0, left))
        done = map(_done, one_for_each(answer.completions, completions))
        return [each if each.error is None else each.error for each in done], claimed

    def work_waiter(self, kinds: Sequence[str] | None = None, poll: float = POLL_SECONDS_MAX) -> WorkWaiter:
        """One who claims jobs of these kinds, again and again."""
        return WorkWaiter(Pace(min(WORKER_POLL_SECONDS_FIRST, poll), poll), kinds)

    def rest(self, waiter: WorkWaiter) -> RemoteFlow[None]:
        """After an empty claim: wait for as long as it is the custom, since a look is a call as well."""
        waiter.news = False
        doublings = min(waiter.empty - 1, DOUBLINGS_MAX)
        pause = min(waiter.pace.quick * 2**doublings, waiter.pace.slow)
        closed = waiter.closed_until - self.machine.monotonic()
        if closed > 0:  # nothing starts sooner, and something may then
            pause = max(closed, waiter.pace.quick)
        if not waiter.stopped:
            yield AwaitNews(waiter, pause * (1 + JITTER_SHARE * self.machine.uniform()))

    def _claimed(self, answer: Leases, worker: str, sent_at: float) -> RemoteFlow[ClaimResult]:
        if not answer.jobs:
            return ClaimResult((), answer.reason, answer.retry_after, answer.scope)
        leases: list[GrantedLease] = []
        for leased in answer.jobs:
            large: dict[str, Fetched] = {}
            for name, told in leased.downloads.items():
                try:
                    large[name] = (yield from self.fetched(told)), told.codec
                except OsqueueError as error:
                    large[name] = error, told.codec
            leases.append(_granted(leased, worker, sent_at, large))
        return ClaimResult(tuple(leases))

    # ── What a worker says ───────────────────────────────────────────────────
    def complete(self, key: bytes, token: str, value: Any) -> RemoteFlow[bool]:
        """One job; answers whether its lease was still the newest."""
        (done,) = yield from self.end([self.completion(key, token, self.encode_result(value))])
        if done.error is not None:
            raise done.error
        return done.ok

    def encode_result(self, value: Any) -> bytes | None:
        return None if value is None else encoded(self.codec.results, value, "result")

    def end(self, items: Sequence[AttemptEnd]) -> RemoteFlow[list[Done]]:
        """Endings, a call's worth at a time: one commit for each shard of theirs."""
        found: list[Done] = []
        said: list[bytes] = []
        beside: list[int] = []
        for each in items:
            ending, large = yield from self._ending(each)
            said.append(ending)
            beside.append(large)
        for _, batch in batches(said, beside):
            answer = yield from self._complete(batch)
            found.extend(map(_done, one_for_each(answer.completions, batch)))
        return found

    def _complete(self, batch: list[Raw], seconds: float | None = None) -> RemoteFlow[CompletionResults]:
        body = Endings(completions=batch, codec=self.codec.results.name)
        answer: CompletionResults = yield from self.ask("complete", body=body, seconds=seconds)
        return answer

    def _ending(self, item: AttemptEnd) -> RemoteFlow[tuple[bytes, int]]:
        """An ending as it travels; with how many bytes of it were uploaded."""
        how: dict[str, Any] = {}
        large = 0
        if isinstance(item, Completion):
            data = item.result
            if item.codec and isinstance(data, bytes):
                if len(data) > PAYLOAD_BYTES_MAX:
                    how, large = (yield from self.uploaded(data)), len(data)
                else:
                    how = fields(self.codec.results, data, "result")
        elif isinstance(item, FailedAttempt):
            wait = None if item.retry_ms < 0 else item.retry_ms / 1000
            how = {"error": _error_details(item), "retry_in": wait, "retry": not item.final}
        elif isinstance(item, AbortedJob):
            how = {"cancel": item.why}
        elif item.pause_ms:
            scope = "queue" if item.whole else "kind"
            how = {"throttle": item.pause_ms / 1000, "scope": scope, "why": item.why}
        else:
            how = {"release": moment(item.at_ms) if item.at_ms else item.delay_ms / 1000 or True}
        return msgspec.json.encode(Ending(job_id=job_id(item.key), token=item.token, **how)), large

    def heartbeat_many(
        self, items: Sequence[LeaseBeat], lease: float | None = None
    ) -> RemoteFlow[list[Done]]:
        """Leases are extended by their own length, or by ``lease`` seconds."""
        length = None if lease is None else validation.lease_ms(lease) / 1000
        held: list[Struct] = [
            Held(
                job_id=job_id(each.key),
                token=each.token,
                progress=None if each.progress < 0 else each.progress / 1000,
                note=each.note,
            )
            for each in items
        ]
        found: list[Done] = []
        for _, batch in batches([msgspec.json.encode(each) for each in held]):
            body = HeartbeatRequest(leases=batch, lease=length)
            answer: HeartbeatResults = yield from self.ask("heartbeat", body=body, patience=BEAT_SECONDS_MAX)
            found.extend(map(_done, one_for_each(answer.leases, batch)))
        return found


def _claim_fields(op: ClaimJobs) -> dict[str, Any]:
    return {
        "worker": op.worker,
        "limit": op.limit,
        "lease": op.lease_ms / 1000,
        "kinds": None if op.kinds is None else list(op.kinds),
    }


def _granted(leased: Leased, worker: str, sent_at: float, large: dict[str, Fetched]) -> GrantedLease:
    """A lease as the library holds it; ``large`` has what its answer did not."""
    payload: bytes | OsqueueError
    found = large.get("payload") or content(leased.payload, leased.data, leased.codec)
    if leased.error is not None:
        payload, codec = error_of(leased.error), ""
    elif found is not None:
        payload, codec = found
    else:
        payload, codec = Damaged(f"job {leased.job_id}: the API gave no payload with the lease."), ""
    beside = leased.encoded.get("input")
    given: Fetched | None = None if beside is None else (beside.data, beside.codec)
    given = large.get("input") or given or content(leased.input, UNSET, None)
    columns = columns_viewed(leased)
    if leased.parent is not None:
        links = columns.get("links") or Links()
        columns["links"] = replace(
            links, parent=key_of(leased.parent), input_codec="" if given is None else given[1]
        )
    job = JobRecord(
        key_of(leased.job_id),
        b"",
        _ms(leased.enqueued_at),
        codec=codec,
        attempt=leased.attempt,
        run=leased.run,
        scheduled_ms=0 if leased.scheduled_at is None else _ms(leased.scheduled_at),
        schedule=leased.schedule or "",
        **columns,
    )
    lease = LeaseRecord(
        job,
        leased.token,
        worker,
        _ms(leased.started_at),
        _ms(leased.started_at),
        _ms(leased.expires_at),
        round(leased.lease * 1000),
        leased.cancel_requested,
    )
    return GrantedLease(lease, payload, sent_at, None if given is None else given[0])


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _error_details(item: FailedAttempt) -> str | ErrorDetails:
    if not item.error_type and not item.trace:
        return item.error
    return ErrorDetails(
        message=item.error.removeprefix(f"{item.error_type}: "),
        type=item.error_type or None,
        traceback=item.trace or None,
    )


def _done(result: ItemResult) -> Done:
    error = None if result.error is None else error_of(result.error)
    return Done(result.job_id, result.ok, result.code, result.cancel_requested, error)
