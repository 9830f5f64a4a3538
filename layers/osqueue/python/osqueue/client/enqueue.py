"""Enqueue over an API: under keys that are drawn here, so that a repeated call is the same jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET

from ..contract.error_codes import error_of
from ..contract.functions import PAYLOAD_BYTES_MAX
from ..contract.schemas import Accepted, AcceptedJobs, NewJob, NewJobs
from ..errors import OsqueueError, Rejected, Throttled
from ..model import validation
from ..model.job import Enqueued
from ..model.job_options import check_item, columns_of, options_of
from ..model.keys import KeySource, job_id
from .call import RemoteFlow, batches, one_for_each
from .content import decoded, encoded, fields
from .large_contents import LargeContents

TURNS = 256  # a key's last byte


class RemoteEnqueue(LargeContents):
    """The flows that bring jobs in."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.keys = KeySource(self.machine)
        # Calls go to the shards in turn: the API takes the last byte of a call's first key, modulo their number.
        self._turns = count(int(self.machine.uniform() * TURNS))

    def enqueue(self, payload: Any, options: Mapping[str, Any]) -> RemoteFlow[Enqueued]:
        """One job; ``options`` holds those that differ from their defaults."""
        (key,) = self._draw(1)
        job, large = yield from self._new({"payload": payload, **options}, key)
        (done,) = yield from self._send([job], [large])
        if done.error is not None:
            raise done.error
        return done

    def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> RemoteFlow[list[Enqueued]]:
        """Many jobs, a call's worth at a time, in order; a bad one fails alone."""
        batch = validation.items(items)
        if not batch:
            return []
        results: list[Enqueued | None] = [None] * len(batch)
        jobs: list[bytes] = []
        beside: list[int] = []
        places: list[int] = []
        for at, (item, key) in enumerate(zip(batch, self._draw(len(batch)), strict=True)):
            try:
                job, large = yield from self._new(item, key)
                jobs.append(job)
                beside.append(large)
                places.append(at)
            except Rejected as error:
                results[at] = Enqueued("rejected", None, error=error)
        answers = yield from self._send(jobs, beside)
        for at, done in zip(places, answers, strict=True):
            results[at] = done
        return [each for each in results if each is not None]

    def _draw(self, count: int) -> list[bytes]:
        """Keys for the jobs of one call."""
        return self.keys.draw(next(self._turns) % TURNS, count)

    def _new(self, item: Any, key: bytes) -> RemoteFlow[tuple[bytes, int]]:
        """Check one item, and write it as it travels; with how many bytes of it were uploaded."""
        found = check_item(item)
        options = options_of(columns_of(found))
        data = encoded(self.codec, found["payload"], "payload")
        large = len(data) > PAYLOAD_BYTES_MAX
        content = (yield from self.uploaded(data)) if large else fields(self.codec, data, "payload")
        job = msgspec.json.encode(NewJob(job_id=job_id(key), **options, **content))
        return job, len(data) if large else 0

    def _send(self, jobs: Sequence[bytes], beside: Sequence[int]) -> RemoteFlow[list[Enqueued]]:
        """Jobs in as many calls as it takes, one commit for each. Later ones wait for earlier ones: order is kept."""
        results: list[Enqueued] = []
        for start, batch in batches(jobs, beside):
            try:
                answer: AcceptedJobs = yield from self.ask(
                    "enqueue", kind=AcceptedJobs, body=NewJobs(jobs=batch, codec=self.codec.name)
                )
                answers = one_for_each(answer.jobs, batch)
            except OsqueueError as error:
                if not start:
                    raise
                # Those before are answered, and stay in the queue.
                missed = Enqueued("rejected", None, error=error)
                unsent = Enqueued(
                    "rejected", None, error=Throttled(f"not sent: of the jobs before, {error.message}")
                )
                left = len(jobs) - start - len(batch)
                return [*results, *[missed] * len(batch), *[unsent] * left]
            results += yield from self._enqueued(answers)
        return results

    def _enqueued(self, answers: Sequence[Accepted]) -> RemoteFlow[list[Enqueued]]:
        found: list[Enqueued] = []
        for each in answers:
            error = None if each.error is None else error_of(each.error)
            result: Any = None
            if error is None:
                try:
                    if each.download is UNSET:
                        result = decoded(self.codec, each.result, each.data, each.codec)
                    else:
                        result = yield from self.fetched_result(each.download)
                except OsqueueError as failure:
                    error = failure
            found.append(Enqueued(each.status, each.job_id, each.state, result, error))
        return found
