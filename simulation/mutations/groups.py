"""Groups, with one check removed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from osqueue.core import encoding, groups
from osqueue.core.groups import Groups
from osqueue.core.labels import labels_of
from osqueue.core.state import Hold, JobRecord, Labels, QueueSettings

from .control import Control, in_runs, patched


def _not_charged(closed: Groups, job: JobRecord) -> None:
    return None


def not_charged() -> AbstractContextManager[None]:
    """What a claim has started does not count for what it starts next."""
    return patched((Groups, "charge", _not_charged))


def _none_closed(closed: Groups, group: bytes) -> bool:
    return not closed.are_shut


def none_closed() -> AbstractContextManager[None]:
    """What runs does not count at all."""
    return patched((Groups, "opens", _none_closed))


def _waits_for_nobody(
    holds: dict[str, Hold], settings: QueueSettings, job: JobRecord, why: str
) -> dict[str, Hold]:
    return holds


def waits_for_nobody() -> AbstractContextManager[None]:
    """A group goes on while its job that failed waits."""
    return patched((groups, "waiting_for", _waits_for_nobody))


def _waits_for_ever(holds: dict[str, Hold], job: JobRecord) -> dict[str, Hold]:
    return holds


def waits_for_ever() -> AbstractContextManager[None]:
    """A group waits for a job that is there again, or over."""
    return patched((groups, "not_for", _waits_for_ever))


def _without_groups(jobs: Iterable[JobRecord]) -> Labels:
    return Labels(labels_of(jobs).kinds)


def labels_without_groups() -> AbstractContextManager[None]:
    """Labels tell of jobs without a group only."""
    return patched((encoding, "labels_of", _without_groups))


CONTROLS: tuple[Control, ...] = (
    Control("a claim counts what it starts of a group", not_charged, (in_runs("groups", "of group .* run"),)),
    Control("a group has its limit", none_closed, (in_runs("groups", "of group .* run"),)),
    Control("a group waits for its job", waits_for_nobody, (in_runs("groups", "waits for another"),)),
    Control("and goes on after it", waits_for_ever, (in_runs("groups", "could not be drained"),)),
    Control(
        "labels tell of groups",
        labels_without_groups,
        (in_runs("groups", "no head says so|drained|before an older one"),),
    ),
)
