"""What became of a job, over an API: status, result, how long the result lives, and waiting for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from ..commit.effects import Sleep
from ..contract.schemas import JobAnswer, JobAnswers, JobChange, Result, StatusRequest
from ..errors import NotFinished, NotFound, OsqueueError, Throttled, Timeout, Unavailable, WaitTimeout
from ..model import validation
from ..model.included import JobDetails, include_of
from ..model.job_options import OPTIONS
from ..model.keys import job_id
from .call import RemoteFlow, one_for_each
from .content import decoded, details
from .large_contents import LargeContents

LOOK_SECONDS_FIRST = 0.1  # between a waiter's looks, doubled up to …
LOOK_SECONDS_MAX = 2.0  # so who waits sends 5 calls in the first 3.1 s, then 30 a minute
LOOK_PATIENCE_SECONDS = 5.0  # for the answer of a look whose caller's time is up


class RemoteResults(LargeContents):
    """The flows of callers who ask about their jobs, by job id or by their own id."""

    def status(self, text: str, include: str | Iterable[str] = ()) -> RemoteFlow[JobDetails | None]:
        """The job as the committed state shows it; None when there is none, or its result has expired."""
        wanted = include_of(include)
        query = (("include", ",".join(wanted) or None),)
        try:
            found: JobAnswer = yield from self.ask("status", job=validation.job_name(text), query=query)
        except NotFound:
            return None
        return details(JobDetails, self.codec, found)

    def status_many(
        self, texts: Sequence[str], include: str | Iterable[str] = ()
    ) -> RemoteFlow[list[JobDetails | None]]:
        """The same of the first of many, in their order: as many as one answer holds, and at least one."""
        names = [validation.job_name(text) for text in texts]
        body = StatusRequest(jobs=names, include=list(include_of(include)))
        found: JobAnswers = yield from self.ask("status_many", body=body)
        if not 0 < len(found.jobs) <= len(names):
            one_for_each(found.jobs, names)  # raises
        return [None if each is None else details(JobDetails, self.codec, each) for each in found.jobs]

    def result(self, text: str) -> RemoteFlow[Any]:
        """The result, or an error that says why there is none."""
        return (yield from self._result(validation.job_name(text)))

    def _result(self, text: str, **how: Any) -> RemoteFlow[Any]:
        found: Result = yield from self.ask("result", job=text, **how)
        if found.download is not UNSET:
            return (yield from self.fetched_result(found.download))
        return decoded(self.codec, found.result, found.data, found.codec)

    def update_result_ttl(self, text: str, ttl: float) -> RemoteFlow[None]:
        """Let a job's result live for ``ttl`` seconds from now on, or from its end on if it has not finished."""
        change = JobChange(result_ttl=OPTIONS["result_ttl"].read(ttl) / 1000)
        yield from self.ask("change_job", job=validation.job_name(text), body=change)

    def wait(self, key: bytes, timeout: float) -> RemoteFlow[Any]:
        """The result of a job once it is over, or WaitTimeout. Raises at once what waiting does not mend.

        Looks 5 times in the first 3.1 seconds, then every 2 seconds: each look is a call. One that brings no answer is
        followed by the next.
        """
        until = self.machine.monotonic() + timeout
        pause = LOOK_SECONDS_FIRST
        while True:
            left = until - self.machine.monotonic()
            if left > 0:
                yield Sleep(min(pause, left))
            patience = min(self.timeout, max(left, LOOK_PATIENCE_SECONDS))
            silence: OsqueueError | None = None
            try:
                return (yield from self._result(job_id(key), seconds=patience, tries=1))
            except NotFinished:
                pass
            except (Throttled, Timeout, Unavailable) as error:
                if error.permanent:
                    raise
                silence = error
            if left <= 0:
                raise _too_late(job_id(key), silence)
            pause = min(2 * pause, LOOK_SECONDS_MAX)


def _too_late(text: str, silence: OsqueueError | None) -> WaitTimeout:
    why = "" if silence is None else f" The latest look brought no answer: {silence.message}"
    return WaitTimeout(
        f"job {text} was not finished in time. It goes on; read its result later.{why}", job_id=text
    )
