"""What a purge reports."""

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
