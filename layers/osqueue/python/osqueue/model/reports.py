"""What is reported to operators: a pass of the reaper, a purge, many jobs cancelled, the use of a queue's limits."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Purged(Struct, frozen=True):
    """What a purge found and erased. Zero: there was nothing of it (any more)."""

    jobs: tuple[str, ...]  # their job ids
    cancelled: int = 0  # jobs that waited, and were cancelled first
    state: int = 0  # places in heads, dead letters included
    tables: int = 0  # rows in tables of finished jobs
    contents: int = 0  # payloads and results kept beside the head
    ids: int = 0  # clients' ids that stood for them
    objects: int = 0  # segments and tables in which they were blanked
    backups: int = 0  # copies of heads in which they were blanked
    archive: int = 0  # records in archive parts
    left: tuple[str, ...] = ()  # objects that hold something of them and could not be changed

    def __add__(self, other: Purged) -> Purged:
        return Purged(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class CancelledMany(Struct, frozen=True):
    """What became of the jobs that one call cancels, over all shards."""

    cancelled: int = 0  # at once
    asked: int = 0  # that run: their workers are told
    waiting: int = (
        0  # at most so many lie deeper, and are cancelled when they are met; no worker gets any of them
    )

    def __add__(self, other: CancelledMany) -> CancelledMany:
        return CancelledMany(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class ReapReport(Struct, frozen=True):
    """What a pass did, over all shards."""

    expired: int = 0  # leases that had ended
    promoted: int = 0  # delayed jobs that had become due
    combined: int = 0  # announced requests whose writers were gone
    archived: int = 0  # records written to the archive
    merged: int = 0  # tables of finished jobs that became part of another
    forgotten: int = 0  # finished jobs that are not remembered any more
    freed: int = 0  # clients' ids that stand for nothing any more
    saved: int = 0  # heads copied to the backup
    collected: int = 0  # objects nobody referred to

    def __add__(self, other: ReapReport) -> ReapReport:
        return ReapReport(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class RateUse(Struct, frozen=True):
    """A rate, and what is left of it."""

    starts: int  # so many …
    period: float  # … in so many seconds
    burst: int  # of them at once
    left: int  # that may start now, over all shards; 0 while units of jobs that started are owed
    next_at: datetime | None = None  # when the next may; None: now


class LimitUsage(Struct, frozen=True):
    """The limits of one kind, and what is used of them."""

    running: int
    max_running: int | None = None  # None: there is no limit
    rate: RateUse | None = None
    paused: bool = False
    paused_until: datetime | None = None


class ShardUsage(Struct, frozen=True):
    """What one shard has of the queue's own limits, and uses."""

    running: int
    may_run: int | None = None  # its share of max_running
    left: int | None = None  # that may start now by its share of the rate; None: there is no rate
    next_at: datetime | None = None
    lent: int | None = None  # slots of the limiter that it has; None: there is no limiter


class LimiterUse(Struct, frozen=True):
    """The pacer that a queue shares with others, and what it lent to the queue."""

    name: str
    lent: int  # slots that shards of this queue have, for now and for soon
    interval: float | None = None  # seconds between two slots
    burst: int | None = None
    next_at: datetime | None = None  # when it has its next slot; None: now
    paused_at: datetime | None = None
    missing: bool = False  # there is no such pacer: nothing starts


class ConsumerUse(Struct, frozen=True, kw_only=True):
    """A function that is invoked when jobs wait, and how it is at work."""

    target: str  # what is invoked
    held: int  # invocations at work
    fired: int  # that were invoked and have not come yet
    most: int  # that may be at work at once, over all shards
    since: datetime | None = None  # when the first of those was last invoked that have not come
    tries: int = 0  # how often one of them was invoked, at most


class FlowUsage(Struct, frozen=True):
    """All limits of a queue, and what is used of them."""

    queue: str
    running: int
    max_running: int | None
    rate: RateUse | None
    paused: bool
    paused_until: datetime | None
    kinds: dict[str, LimitUsage]  # of those that run or have limits of their own; "" is the nameless one
    groups: dict[str, int]  # how many groups are running, full, held, stopped, paused, rate_limited
    shards: list[ShardUsage]  # none where there is one
    limiter: LimiterUse | None = None
    consumers: dict[str, ConsumerUse] = {}  # by their names


class QueueGroup(Struct, frozen=True):
    """A group that runs, or that something holds."""

    group: str
    state: (
        # running, full (as many run as may), held (waits for a job), stopped (by a dead letter), paused, rate_limited
        str
    )
    running: int
    waiting: int  # jobs of it that wait, as far as the head tells; there may be more
    why: str  # why nothing of it starts, and what lets it go on; "" where something may
    since: datetime | None = (
        None  # the oldest start of those that run, or when the job failed that it waits for
    )
    opens_at: datetime | None = None  # when that job is tried again, or its rate lets the next one start
    waits_for: str | None = None  # that job, or the dead letter
