"""Why a queue did not accept a job, in words."""

from __future__ import annotations

from .. import limits
from ..core.ops import Code
from ..errors import OsqueueError, Throttled


def refusal(code: Code) -> OsqueueError | None:
    """The error of a job that there was no room for; None of any other."""
    if code == Code.LANES:
        return Throttled(
            f"kind: jobs of {limits.LANES_MAX} different (priority, kind) pairs are waiting already. Use fewer kinds,"
            " or wait until some of them are empty."
        )
    if code == Code.DELAYED_LIMIT:
        return Throttled(
            "delay: too many delayed jobs are waiting in this shard. Add shards, or repeat later."
        )
    return None
