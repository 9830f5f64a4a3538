"""A store in two places: what a queue works with in the first, its archive and the copies of its heads in the second.

``archive=ADDRESS`` in an address makes one. A directory bucket of S3 Express One Zone keeps its objects in one zone:
heads are quick there, and what has to outlive the zone lies in a bucket of several.

Each request goes by its key to one of the two.

**Two stores have two clocks.** ``Found.modified_ms`` of an object in the second is by a clock that nobody else goes
by, and it may differ by hours. So such an answer says that it is ``apart``. These places look at it:

* The hour of an archive part is that of its writing, by the first store's clock, as moments of jobs are: else a
  job might be archived in an hour before it finished, where nobody looks for it. ``maintenance.compaction`` asks the
  first store for the time after the part was written.
* A restore believes the archive from when its backup was made. ``maintenance.head_restore`` measures how far the two
  clocks are apart.

All other moments are those of objects in the first store: ids, leases of leaders, workers, receipts, the clock of
heads. Names of parts and of backups tell their hours by the clock of heads as well; what is too old to keep, or was
missed by a reaper, is known by names alone. A version is compared with versions of the same key only, so of the same
store.

**Nothing is written to both at once.** What a commit in the first store relies on is written to the second before it:
a part, a list of purged jobs, the copy of a head that is replaced. Where the commit is lost, that is an orphan there
as it would be here. What a commit makes superfluous is deleted after it, in either store.

**All who look after a queue have to open it the same way.** Without the second store a collection spares nothing for
the backups there, and a purge leaves what is there: ``remarks`` tells of objects that lie in the wrong place.
"""

from __future__ import annotations

from collections.abc import Generator

from msgspec.structs import replace

from .base import (
    ARCHIVE,
    BACKUPS,
    LIST_KEYS_MAX,
    AnnouncedPut,
    Delete,
    Deleted,
    Failed,
    Found,
    Get,
    List,
    Listed,
    PassTurn,
    PresignedRequest,
    Remark,
    Store,
    StoreReply,
    StoreRequest,
    TakeTurn,
)
from .wrapped import PerformingStore

FOLDERS = (ARCHIVE, BACKUPS)
MISPLACED = (
    "Copy them to the archive's store under the same keys, then delete them here: no restore, purge or reader looks for"
    " them in this place."
)

Steps = Generator[tuple[Store, StoreRequest], StoreReply, StoreReply]  # requests to either store → the answer


class SplitStore(PerformingStore):
    """Two stores as one. ``folders``: the beginnings of the keys that belong to the second."""

    def __init__(self, first: Store, second: Store, folders: tuple[str, ...] = FOLDERS) -> None:
        self.first = first
        self.second = second
        self.folders = folders
        self.ordered = first.ordered and second.ordered
        self.remote = first.remote or second.remote
        self.reply_s_max = max(first.reply_s_max, second.reply_s_max)
        self.shared = first.shared and second.shared
        # In the first is whatever is replaced again and again, waited for, or announced in as long a key as there is
        # room for. A key in the second has 200 bytes at most.
        self.key_bytes_max = first.key_bytes_max
        self.name_bytes_max = first.name_bytes_max
        self.look_pace = first.look_pace
        self.clock_tick_ms = first.clock_tick_ms
        self.flushes = first.flushes
        self.turns = first.turns
        self.swap_gap_s = first.swap_gap_s
        self.listen = first.listen  # type: ignore[method-assign]  # so that it tells no more than the first can

    # ── Which of the two ─────────────────────────────────────────────────────
    def _at(self, key: str) -> Store:
        """Where a key belongs."""
        return self.second if key.startswith(self.folders) else self.first

    def _alone(self, request: StoreRequest) -> Store | None:
        """The store that a request is for; None: it is for both."""
        if isinstance(request, List):
            prefix = request.prefix
            if not prefix.startswith(self.folders) and any(each.startswith(prefix) for each in self.folders):
                return None
            return self._at(prefix)
        if isinstance(request, Delete):
            places = {self._at(key) for key in request.keys}
            return None if len(places) > 1 else next(iter(places), self.first)
        return self.first if isinstance(request, TakeTurn | PassTurn) else self._at(request.key)

    def perform(self, request: StoreRequest) -> StoreReply:
        store = self._alone(request)
        if store is not None:
            return self._told(store, store.perform(request))
        steps = self.steps(request)
        try:
            where, part = next(steps)
            while True:
                where, part = steps.send(where.perform(part))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        store = self._alone(request)
        if store is not None:
            return self._told(store, await store.perform_async(request))
        steps = self.steps(request)
        try:
            where, part = next(steps)
            while True:
                where, part = steps.send(await where.perform_async(part))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _told(self, store: Store, reply: StoreReply) -> StoreReply:
        """A reply of one of the two. Of the second, it is by another clock."""
        return replace(reply, apart=True) if store is self.second and isinstance(reply, Found) else reply

    def steps(self, request: StoreRequest) -> Steps:
        """The requests to either store that one takes; for whoever sends them in a way of its own."""
        store = self._alone(request)
        if store is not None:
            return self._told(store, (yield store, request))
        if isinstance(request, Delete):
            return (yield from self._deleted(request))
        assert isinstance(request, List)
        return (yield from self._listed(request))

    # ── Both of them ─────────────────────────────────────────────────────────
    def _deleted(self, request: Delete) -> Steps:
        """Delete in both, also where one fails: the whole request may be repeated, and has less to do then."""
        failed: Failed | None = None
        for store in (self.first, self.second):
            keys = tuple(key for key in request.keys if self._at(key) is store)
            reply = yield store, Delete(keys, request.wait_seconds)
            if isinstance(reply, Failed) and failed is None:
                failed = Failed(reply.error)  # never too soon: the other part may have had its effect
        return Deleted() if failed is None else failed

    def _listed(self, request: List) -> Steps:
        """Of each store its own keys, as many as may be needed: so the merge leaves none out."""
        wanted = LIST_KEYS_MAX if request.limit is None and self.ordered else request.limit
        found: list[str] = []
        for store in (self.first, self.second):
            own: list[str] = []
            page = Listed((request.after,), more=True)
            while page.more and (wanted is None or len(own) <= wanted):
                asked = List(request.prefix, page.keys[-1], None if wanted is None else wanted + 1)
                reply = yield store, asked
                if not isinstance(reply, Listed):
                    return reply
                own += [key for key in reply.keys if self._at(key) is store]
                page = reply
            found += own
        found.sort()
        return Listed(tuple(found[:wanted]), more=wanted is not None and len(found) > wanted)

    # ── What a store offers beside requests ──────────────────────────────────
    @property
    def place(self) -> object:
        return self.first.place  # queues that share heads know one another, wherever their archives are

    def clock_ms(self) -> int | None:
        return self.first.clock_ms()

    def presigned(self, request: Get | AnnouncedPut, seconds: int) -> PresignedRequest | None:
        return self._at(request.key).presigned(request, seconds)

    def remarks(self) -> tuple[Remark, ...]:
        """What both say, and whether something lies in the first that is looked for in the second."""
        told = [*self.first.remarks()]
        told += [replace(each, check=f"archive: {each.check}") for each in self.second.remarks()]
        for folder in self.folders:
            reply = self.first.perform(List(folder, limit=1))
            if isinstance(reply, Listed) and reply.keys:
                text = f"objects of {folder} lie beside the heads, such as {reply.keys[0]}"
                told.append(Remark("archive", text, MISPLACED))
        return tuple(told)

    def close(self) -> None:
        self.first.close()
        self.second.close()
