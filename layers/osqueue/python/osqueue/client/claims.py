"""Claims over an API, and what workers say of the jobs they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from .. import limits
from ..commit.effects import AwaitNews, Sleep
from ..contract.error_codes import error_of
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
    NewClaim,
)
from ..contract.schemas import Leases as Answered
from ..core.job_ops import LeaseBeat
from ..core.state import JobRecord, LeaseRecord, Links
from ..errors import Damaged, OsqueueError
from ..model import validation
from ..model.fields import moment
from ..model.job import Done
from ..model.job_options import columns_viewed
from ..model.keys import job_id, key_of
from ..operations.claims import ClaimResult, GrantedLease, closed_until, release_times, throttle_of
from ..operations.head_board import JITTER_SHARE, Pace, WorkWaiter
from .call import ApiClient, RemoteFlow, batches, one_for_each
from .content import content, encoded, fields

POLL_SECONDS_FIRST = 0.1  # between two calls of a claim that waits, doubled up to …
POLL_SECONDS_MAX = 2.0  # so a claim that waits sends 6 calls in the first 3.1 s, then 30 a minute
WORKER_POLL_SECONDS_FIRST = 0.05  # between two claims of a worker, doubled up to its `poll`
DOUBLINGS_MAX = 30
BEAT_SECONDS_MAX = 5.0  # for one try: a call that hangs must not take the leases along

Holding = Sequence[tuple[bytes, str]]


class RemoteClaims(ApiClient):
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
        wanted = validation.kinds(kinds)
        body = NewClaim(
            worker=validation.text(
                self.machine.name() if worker is None else worker, "worker", limits.WORKER_CHARS_MAX, 1
            ),
            limit=validation.whole_number(limit, "limit", 1, limits.CLAIM_LIMIT_MAX),
            lease=validation.lease_ms(lease) / 1000,
            kinds=None if wanted is None else list(wanted),
        )
        wait_s = validation.milliseconds(wait, "wait", 0, limits.DAY_MS) / 1000

        until = self.machine.monotonic() + wait_s
        pause = POLL_SECONDS_FIRST
        while True:
            sent_at = self.machine.monotonic()  # before all tries: a lease ends no earlier than it says
            answer: Answered = yield from self.ask("claim", body=body)
            claimed = ClaimResult((), answer.reason, answer.retry_after, answer.scope)
            left = until - self.machine.monotonic()
            if answer.jobs or left <= 0:
                granted = tuple(_granted(each, body.worker, sent_at) for each in answer.jobs)
                return ClaimResult(granted) if granted else claimed
            now = self.machine.monotonic()
            soon = pause if claimed.retry_after is None else max(POLL_SECONDS_FIRST, claimed.retry_after)
            yield Sleep(min(max(min(pause, soon), closed_until(claimed, now) - now), left))
            pause = min(2 * pause, POLL_SECONDS_MAX)

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

    # ── What a worker says ───────────────────────────────────────────────────
    def complete(self, key: bytes, token: str, value: Any) -> RemoteFlow[bool]:
        """One job; answers whether its lease was still the newest."""
        (done,) = yield from self.complete_encoded([(key, token, self.encode_result(value))])
        if done.error is not None:
            raise done.error
        return done.ok

    def complete_many(self, items: Sequence[tuple[bytes, str, Any]]) -> RemoteFlow[list[Done]]:
        """(key, token, result) each. Raises Rejected for a result that cannot be serialised or is too large."""
        return self.complete_encoded([(key, token, self.encode_result(value)) for key, token, value in items])

    def encode_result(self, value: Any) -> bytes | None:
        """A result as it travels: None stays None."""
        return None if value is None else encoded(self.codec.results, value, "result")

    def complete_encoded(self, items: Sequence[tuple[bytes, str, bytes | None]]) -> RemoteFlow[list[Done]]:
        """The same with results already serialised."""
        return self._end(
            Ending(
                job_id=job_id(key),
                token=token,
                **({} if data is None else fields(self.codec.results, data, "result")),
            )
            for key, token, data in items
        )

    def fail_many(
        self, items: Sequence[tuple[bytes, str, Any]], retry_in: float | None = None, retry: bool = True
    ) -> RemoteFlow[list[Done]]:
        """(key, token, error) each."""
        wait = None
        if retry_in is not None:
            wait = validation.milliseconds(retry_in, "retry_in", 0, limits.DELAY_MS_MAX) / 1000
        return self._end(
            Ending(
                job_id=job_id(key), token=token, error=_error_details(error), retry_in=wait, retry=bool(retry)
            )
            for key, token, error in items
        )

    def release_many(
        self, items: Holding, delay: float = 0, until: datetime | float | None = None
    ) -> RemoteFlow[list[Done]]:
        """(key, token) each."""
        wait, at_ms = release_times(delay, until)
        when = moment(at_ms) if at_ms else wait / 1000 or True
        return self._end(Ending(job_id=job_id(key), token=token, release=when) for key, token in items)

    def throttle_many(
        self, items: Holding, seconds: float, scope: str = "kind", why: str = ""
    ) -> RemoteFlow[list[Done]]:
        """(key, token) each."""
        pause, _, reason = throttle_of(seconds, scope, why)
        return self._end(
            Ending(job_id=job_id(key), token=token, throttle=pause / 1000, scope=scope, why=reason)
            for key, token in items
        )

    def abort_many(self, items: Holding, why: str = "") -> RemoteFlow[list[Done]]:
        """(key, token) each."""
        reason = validation.error_text(why)
        return self._end(Ending(job_id=job_id(key), token=token, cancel=reason) for key, token in items)

    def _end(self, endings: Iterable[Ending]) -> RemoteFlow[list[Done]]:
        """Endings, a call's worth at a time: one commit for each shard of theirs."""
        found: list[Done] = []
        for _, batch in batches([msgspec.json.encode(each) for each in endings]):
            body = Endings(completions=batch, codec=self.codec.results.name)
            answer: CompletionResults = yield from self.ask("complete", body=body)
            found.extend(map(_done, one_for_each(answer.completions, batch)))
        return found

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


def _granted(leased: Leased, worker: str, sent_at: float) -> GrantedLease:
    """A lease as the library holds it."""
    payload: bytes | OsqueueError
    found = content(leased.payload, leased.data, leased.codec)
    if leased.error is not None:
        payload, codec = error_of(leased.error), ""
    elif found is not None:
        payload, codec = found
    else:
        payload, codec = Damaged(f"job {leased.job_id}: the API gave no payload with the lease."), ""
    beside = leased.encoded.get("input")
    given = content(leased.input, UNSET, None) if beside is None else (beside.data, beside.codec)
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


def _error_details(error: Any) -> str | ErrorDetails:
    details = validation.error_details(error)
    if not details.type and not details.trace:
        return details.text
    return ErrorDetails(
        message=details.text.removeprefix(f"{details.type}: "),
        type=details.type or None,
        traceback=details.trace or None,
    )


def _done(result: ItemResult) -> Done:
    error = None if result.error is None else error_of(result.error)
    return Done(result.job_id, result.ok, result.code, result.cancel_requested, error)
