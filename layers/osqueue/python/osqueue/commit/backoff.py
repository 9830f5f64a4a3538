"""How long a writer waits: for news of its announced request, for its turn to combine, and after trouble."""

from __future__ import annotations

from .. import limits
from .writer import ShardWriter

# How long an announced request waits before it looks again, as shares of what a combiner's round takes. Chosen in
# the simulator, for throughput with 8 to 256 writers on the latencies of S3 and on equal ones.
WAIT_FIRST = 0.5  # the look itself takes the other half
WAIT_NEXT = 0.1
WAIT_JITTER = 0.1
WAIT_AHEAD = 0.7  # of a look at the head
BACKOFF_SECONDS_MAX = 1.0  # between two tries while the store fails them
DOUBLINGS_MAX = 32  # from the time of a commit, however short; far beyond that maximum


def poll_delay(writer: ShardWriter, rounds: int, mine: bool) -> float:
    """Seconds until another look is worth its request: this is the window of the group commit."""
    jitter = WAIT_JITTER * writer.machine.uniform()
    if rounds > 1:
        return writer.combine_seconds * (WAIT_NEXT + jitter)
    if not mine:
        return writer.combine_seconds * (WAIT_FIRST + jitter)
    # The winner of the last swap is ahead of those it took along by one look at the head.
    return writer.survey_seconds * WAIT_AHEAD if writer.ahead else 0.0


def may_combine(writer: ShardWriter) -> bool:
    """Draw lots: of a crowd of writers only a few should try to combine, or they read the same for nothing."""
    head = writer.head
    crowd = head.state.load if head is not None else 1
    wanted = max(limits.COMBINERS_MIN, min(limits.COMBINERS_MAX, crowd / limits.CROWD_PER_COMBINER))
    return crowd <= wanted or writer.machine.uniform() < wanted / crowd


def backoff(writer: ShardWriter, tries: int) -> float:
    """Seconds until the next try after so many in a row that failed: twice as long each time, with jitter."""
    seconds = min(BACKOFF_SECONDS_MAX, writer.commit_seconds * (1 << min(tries - 1, DOUBLINGS_MAX)))
    return seconds * (0.5 + writer.machine.uniform() / 2)
