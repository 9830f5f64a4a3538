"""What becomes of a job whose attempt has failed: it waits for the next one, or it is a dead letter."""

from __future__ import annotations

from msgspec.structs import replace

from . import groups
from .draft import Draft
from .state import FAILED, FAILING, PROCESSING, JobRecord

TIMED_OUT = "TimedOut"  # the type of the error of an attempt that ran for too long


def timed_out_error(seconds: float) -> str:
    """What such an attempt leaves in the job's history."""
    return f"{TIMED_OUT}: ran longer than its limit of {seconds:g} s"


def settle_failure(
    draft: Draft,
    job: JobRecord,
    cause: str,
    worker: str,
    *,
    share: float,
    wait_ms: int = -1,
    final: bool = False,
) -> str:
    """Put a job whose attempt has just ended where it belongs; answers its state.

    It waits ``wait_ms``, or (-1) a ``share`` of its back-off. After a ``final`` failure there is no other attempt.
    """
    if final or job.attempt >= job.max_attempts:
        draft.bury(job)
        draft.event(job, PROCESSING, FAILED, cause, worker)
        return FAILED
    if wait_ms < 0:
        its = draft.settings.of_kind(job.kind)
        wait_ms = int(backoff_ms(its.backoff_base_ms, its.backoff_cap_ms, job.attempt) * share)
    draft.delay(replace(job, due_ms=draft.after(wait_ms)))
    draft.holds = groups.waiting_for(draft.holds, draft.settings, job, FAILING)
    draft.count("retried")
    draft.event(job, PROCESSING, FAILING, cause, worker)
    return FAILING


def backoff_ms(base_ms: int, cap_ms: int, attempt: int) -> int:
    """The longest wait after the ``attempt``-th failure: base · 2^(attempt-1), capped.

    The actual wait is a random share of it ("full jitter", M. Brooker, AWS Architecture Blog, 2015).
    """
    return min(cap_ms, base_ms << min(attempt - 1, 40))


def chance_of(draft: Draft, job: JobRecord) -> float:
    """A number in [0, 1) for a job, where no caller has drawn one."""
    return ((draft.context.chance ^ int.from_bytes(job.key[8:], "big")) & 0xFFFF) / 0x10000
