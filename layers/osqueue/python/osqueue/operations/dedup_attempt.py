"""One job on its way into the queue under a client's id: what is known of the id, and what became of the job."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ..core.job_ops import JobSpec
from ..core.state import State
from ..errors import Damaged, NewerFormat, OsqueueError
from ..model.job import Enqueued
from ..objects.id_index import IdEntry
from ..objects.lookup import JobLocation


class DedupAttempt:
    """One item of a call, on its way into the queue."""

    __slots__ = (
        "answer",
        "closing",
        "entry",
        "failure",
        "first",
        "missed",
        "new",
        "old",
        "original",
        "ready",
        "retired_key",
    )

    def __init__(self, new: JobSpec) -> None:
        self.new = new  # as it will be submitted
        self.original = new  # as its caller gave it
        self.first = False  # this very call wrote the entry, so it does not repeat another
        self.entry: IdEntry | None = None  # what its id stands for
        self.ready = new.client_id is None  # may be submitted as it is
        self.answer: Enqueued | None = None
        self.failure: OsqueueError | None = None  # of the store, not of this item
        self.closing = False  # its id's entry is about to be removed
        self.retired_key: bytes | None = None  # the key of such an entry: nobody can enqueue it any more
        self.old: JobLocation | None = None  # the job that waits, whose place it is about to take
        self.missed: bytes | None = None  # a state that names an object which was not there

    def fail(self, error: OsqueueError) -> None:
        """The item is not enqueued."""
        self.answer = Enqueued("rejected", None, error=error)
        if not isinstance(error, Damaged | NewerFormat):
            self.failure = error

    def own(self, entry: IdEntry, seen: int, old: JobLocation | None = None) -> None:
        """The entry names a key that nobody had enqueued at the head of ``seen``.

        ``old``: the job that makes room for it, where that is under way.
        """
        self.entry = entry
        restarts = None if old is None else old.evidence
        self.new = replace(self.new, key=entry.key, seen=seen, restarts=restarts)
        self.ready = True


class Takeover:
    """What a new job needs under an id whose job is over."""

    def __init__(self, draw: Callable[[], bytes], state: State) -> None:
        self.key = draw  # a key that nobody has used
        self.state = state  # of its shard, from before any of those keys stands in an entry

    def unused(self) -> tuple[bytes, int]:
        """A new key, and the seq of a head in which it was nowhere."""
        return self.key(), self.state.seq
