"""How long one commit waits, and how long it may try.

The pauses: for news of an announced request, for its turn to combine, after trouble. The deadline: what went wrong
so far, and what the caller is told when the commit gives up.
"""

from __future__ import annotations

from .. import limits
from ..errors import OsqueueError, Timeout, Unavailable
from ..stores.base import Failed, StoreReply
from .effects import Flow, Sleep
from .writer import ShardWriter

SLEEP_SECONDS_MIN = 0.0005
IDLE_REFUSALS_MAX = 8  # swaps in a row that a server refuses although nothing changed: some seconds of pauses

# How long an announced request waits before it looks again, as shares of what a combiner's round takes. Chosen in
# the simulator, for throughput with 8 to 256 writers on the latencies of S3 and on equal ones.
WAIT_FIRST = 0.5  # the look itself takes the other half
WAIT_NEXT = 0.1
WAIT_JITTER = 0.1
WAIT_AHEAD = 0.7  # of a look at the head
GAP_JITTER = 0.2  # of the gap between two heads, by which looks after it are spread
BACKOFF_SECONDS_MAX = 1.0  # between two tries while the store fails them
DOUBLINGS_MAX = 32  # from the time of a commit, however short; far beyond that maximum


def poll_delay(writer: ShardWriter, rounds: int, mine: bool) -> float:
    """Seconds until another look is worth its request: this is the window of the group commit."""
    if writer.swap_gap_s:  # there is nothing to see before it is over, and no swap to make
        return _gap_delay(writer, writer.machine.uniform()) + (0.0 if mine else writer.combine_seconds)
    jitter = WAIT_JITTER * writer.machine.uniform()
    if rounds > 1:
        return writer.combine_seconds * (WAIT_NEXT + jitter)
    if not mine:
        return writer.combine_seconds * (WAIT_FIRST + jitter)
    # The winner of the last swap is ahead of those it took along by one look at the head.
    return writer.survey_seconds * WAIT_AHEAD if writer.ahead else 0.0


def _gap_delay(writer: ShardWriter, share: float) -> float:
    """Seconds until the gap is over, and such a share of the time over which looks after it are spread."""
    return writer.gap_left() + GAP_JITTER * writer.swap_gap_s * share


def may_combine(writer: ShardWriter) -> bool:
    """Draw lots: of a crowd of writers only a few should try to combine, or they read the same for nothing."""
    head = writer.head
    crowd = head.state.load if head is not None else 1
    wanted = max(limits.COMBINERS_MIN, min(limits.COMBINERS_MAX, crowd / limits.CROWD_PER_COMBINER))
    return crowd <= wanted or writer.machine.uniform() < wanted / crowd


def backoff(writer: ShardWriter, tries: int) -> float:
    """Seconds until the next try after so many in a row that failed: twice as long each time, with jitter."""
    doubled = writer.commit_seconds * (1 << min(tries - 1, DOUBLINGS_MAX))
    seconds = min(BACKOFF_SECONDS_MAX, max(writer.swap_gap_s, doubled))
    return seconds * (0.5 + writer.machine.uniform() / 2)


UNQUOTED = (
    "A gateway that compares unquoted ETags needs etag=bare in the address; one that knows no conditional writes cannot"
    " hold a queue."
)
WEAKENED = (
    "Its ETags are weak (W/): a proxy in between changes the objects, such as by compression. Switch that off for this"
    " path, or give the address of the server itself; etag=bare does not help."
)


def refuses_everything(times: int, after: str, version: str | None = None) -> Unavailable:
    """Return the error where a server refuses conditional writes whose condition holds.

    ``after`` states what the refusals left behind; ``version`` is that of the object.
    """
    remedy = WEAKENED if (version or "").startswith("W/") else UNQUOTED
    return Unavailable(
        f"the server refuses If-Match or If-None-Match although nothing changed, {times} times in a row. {after}"
        f" {remedy} See docs/stores.md.",
        permanent=True,
    )


class Deadline:
    """The deadline of one commit, in seconds on the machine's monotonic clock."""

    def __init__(self, writer: ShardWriter, deadline: float) -> None:
        self.writer = writer
        self.at = deadline
        self.failure: OsqueueError | None = None  # of this commit's latest request that failed
        self.troubled = False  # did the store fail a request of this round?
        self.sent = False  # has anything been written that could apply the request?
        self.idle_refusals = 0  # in a row: see ``refused``

    def pause(self, seconds: float) -> Flow[None]:
        """Sleep, unless that would pass the deadline."""
        self.in_time(seconds)
        if seconds > 0:
            yield Sleep(max(seconds, SLEEP_SECONDS_MIN))

    def in_time(self, seconds: float = 0.0) -> None:
        """Give up when the deadline is less than this away."""
        failure = self.failure
        if failure is not None and failure.permanent and not self.sent:
            raise failure  # waiting would not help, and nothing has happened
        if self.now() + seconds >= self.at:
            self.writer.shared = True
            if failure is not None:
                raise Unavailable(
                    f"the store gave no answer to this operation in time. {self._after()} {failure.message}"
                )
            raise Timeout(f"the queue was too busy to answer this operation in time. {self._after()}")

    def refused(self, idle: bool, version: str | None = None) -> None:
        """A swap was refused. ``idle``: nothing has changed. Gives up when that happens again and again.

        It may happen: two writes at once may both be refused. A server that does it every time will not do otherwise.
        """
        self.idle_refusals = self.idle_refusals + 1 if idle else 0
        if self.idle_refusals >= IDLE_REFUSALS_MAX:
            raise refuses_everything(self.idle_refusals, self._after(), version)

    def complain(self, reply: StoreReply) -> None:
        """Remember why a request brought no definite success."""
        if isinstance(reply, Failed):
            if self.failure is None or not reply.late:  # else an earlier one names the cause
                self.failure = reply.error
            awaited = reply.too_soon and self.writer.swap_gap_s > 0  # what follows waits for the gap
            self.troubled = self.troubled or not awaited

    def back_off(self, tries: int, reply: StoreReply | None = None) -> Flow[None]:
        """Pause after ``tries`` failures in a row, at most for half of the time left. ``reply`` is the latest one."""
        if reply is not None:
            self.complain(reply)
        longest = max(self.left() / 2, SLEEP_SECONDS_MIN)
        yield from self.pause(min(backoff(self.writer, tries), longest))

    def send(self) -> None:
        """From here on the commit may be applied. Gives up before, where a gap puts off the first look for too long."""
        if self.writer.gap_left():
            self.in_time(_gap_delay(self.writer, 1.0) + self.writer.combine_seconds)
        self.sent = True

    def tell_time(self) -> Flow[None]:
        """Measure the store's clock, if it is time for that, until it answers."""
        tries = 0
        while self.writer.clock_is_due():
            if tries:
                yield from self.back_off(tries)
            tries += 1
            self.complain((yield from self.writer.measure_clock()))

    def check_queue(self) -> Flow[None]:
        """Check that the queue of a new shard still exists, until the store returns its head."""
        tries = 0
        while (reply := (yield from self.writer.check_queue())) is not None:
            tries += 1
            yield from self.back_off(tries, reply)

    def await_gap(self) -> Flow[bool]:
        """Wait until the store takes another head; answers whether that took any time."""
        seconds = self.writer.gap_left()
        if seconds > 0:
            yield from self.pause(seconds)
        return seconds > 0

    def left(self) -> float:
        """Seconds until then."""
        return self.at - self.now()

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return self.writer.machine.monotonic()

    def _after(self) -> str:
        return "It may still be applied." if self.sent else "It was not sent, so nothing happened."
