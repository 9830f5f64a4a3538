"""Where a new job goes: home with its groups, to the shard of its batch, or to any.

What follows it comes into being in its shard. So the groups of all that follow it have to be at home there, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..core.follow_ups import groups_of
from ..core.groups import home_of
from ..core.job_ops import JobSpec
from ..errors import Rejected


def has_groups(news: Iterable[JobSpec]) -> bool:
    """Has any of these a group, or what follows it?"""
    return any(new.group or (new.then and any(groups_of("", new.then))) for new in news)


def placed_in(new: JobSpec, group_shards: int, shard: int) -> JobSpec:
    """The job under a key of the shard where it has to be, or of the one that is given. Raises Rejected.

    ``group_shards`` is over how many groups are spread, where any of its jobs has one.
    """
    if new.group or new.then:
        shard = _home_of(new, group_shards, shard)
    if new.batch and shard != new.batch[15]:
        if has_groups((new,)):
            raise Rejected(
                "group: all jobs of a batch are in one shard, and this group is at home in another one. Leave the group"
                " out, or use a queue of one shard.",
                field="group",
            )
        shard = new.batch[15]
    return new if new.key[15] == shard else replace(new, key=new.key[:15] + bytes((shard,)))


def _home_of(new: JobSpec, group_shards: int, shard: int) -> int:
    homes = {home_of(group, group_shards): group for group in groups_of(new.group, new.then)}
    if len(homes) > 1:
        one, two = list(homes.values())[:2]
        raise Rejected(
            f"then: a job and all that follow it are in one shard, and the groups {one!r} and {two!r} are at home in"
            " two. Give them one group, or use a queue of one shard.",
            field="then",
        )
    return next(iter(homes), shard)
