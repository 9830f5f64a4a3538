"""Groups, with one check removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

from osqueue.core import encoding, groups
from osqueue.core.draft import Draft
from osqueue.core.group_rates import GroupAllowance
from osqueue.core.groups import Groups
from osqueue.core.labels import group_digest, labels_of
from osqueue.core.settings import QueueSettings
from osqueue.core.state import FAILED, Hold, JobRecord, Labels, Starts

from .control import Control, in_interleavings, in_runs, patched


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


def _not_taken(rates: GroupAllowance, group: bytes, units: int = 1) -> bool:
    return True


def no_debts() -> AbstractContextManager[None]:
    """What starts is not taken from its group's rate."""
    return patched((GroupAllowance, "take", _not_taken))


def _others_forgotten(rates: GroupAllowance, before: Starts) -> Starts:
    return before


def debts_forgotten() -> AbstractContextManager[None]:
    """The next claim knows nothing of what groups have started."""
    return patched((GroupAllowance, "starts", _others_forgotten))


def _none_spent(rates: GroupAllowance) -> set[bytes]:
    return set()


def none_spent() -> AbstractContextManager[None]:
    """Groups whose rate is spent are not closed."""
    return patched((GroupAllowance, "spent", _none_spent))


def _at_the_back(draft: Draft, job: JobRecord) -> None:
    draft.queue(job)


def back_in_line() -> AbstractContextManager[None]:
    """A job that stalls, or is given back, joins the others that wait."""
    return patched((Draft, "queue_front", _at_the_back))


def _not_awaited(draft: Draft, job: JobRecord) -> None:
    draft.holds = groups.not_for(draft.holds, job)
    draft.queue(job)


def not_awaited() -> AbstractContextManager[None]:
    """So does one that its group has waited for."""
    return patched((Draft, "requeue", _not_awaited))


_waiting_for = groups.waiting_for


def _for_the_living(
    holds: dict[str, Hold], settings: QueueSettings, job: JobRecord, why: str
) -> dict[str, Hold]:
    return holds if why == FAILED else _waiting_for(holds, settings, job, why)


def never_stopped() -> AbstractContextManager[None]:
    """A group goes on after a dead letter, whatever the queue says."""
    return patched((groups, "waiting_for", _for_the_living))


def _kept_holds(holds: Mapping[str, Hold], settings: QueueSettings) -> dict[str, Hold]:
    return dict(holds)


def kept_waiting() -> AbstractContextManager[None]:
    """A change of what groups wait for leaves those alone that wait already."""
    return patched((groups, "of_new_settings", _kept_holds))


def _by_jobs(holds: Mapping[str, Hold]) -> set[bytes]:
    return {group_digest(group) for group, row in holds.items() if row.key}


def never_paused() -> AbstractContextManager[None]:
    """Only a job holds a group, and no operator."""
    return patched((groups, "_held", _by_jobs))


HELD = "groups held"
RATED = "jobs of group .* started in"
CONTROLS: tuple[Control, ...] = (
    Control("a claim counts what it starts of a group", not_charged, (in_runs("groups", "of group .* run"),)),
    Control(
        "a group has its limit",
        none_closed,
        (
            in_runs("groups", "of group .* run"),
            in_interleavings("two groups and a freeze", "of group .* run|before an older one"),
        ),
    ),
    Control("a group waits for its job", waits_for_nobody, (in_runs("groups", "waits for another"),)),
    Control("and goes on after it", waits_for_ever, (in_runs("groups", "waits for a job that may start"),)),
    Control("who has begun comes first", back_in_line, (in_runs("groups", "that had begun"),)),
    Control("so does who was waited for", not_awaited, (in_runs("groups", "that had begun", seed=2),)),
    Control("a dead letter stops its group", never_stopped, (in_runs(HELD, "waits for another"),)),
    Control(
        "changed settings let groups go on",
        kept_waiting,
        (in_runs(HELD, "the settings let it go on", seed=2),),
    ),
    Control("a paused group starts nothing", never_paused, (in_runs(HELD, "which is paused"),)),
    Control("a start is taken from its group's rate", no_debts, (in_runs("groups", RATED, seed=1),)),
    Control("heads keep what groups owe", debts_forgotten, (in_runs("groups", RATED, seed=3),)),
    Control("a group whose rate is spent is closed", none_spent, (in_runs("groups", RATED),)),
    Control(
        "labels tell of groups",
        labels_without_groups,
        (in_runs("groups", "no head says so|drained|before an older one"),),
    ),
)
