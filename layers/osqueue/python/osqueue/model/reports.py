"""What calls of operators report: a pass of the reaper, and a purge."""

from __future__ import annotations

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
