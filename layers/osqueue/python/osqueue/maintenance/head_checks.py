"""What a head itself tells of trouble to come: parts that are nearly full, schedules that nobody serves."""

from __future__ import annotations

from collections.abc import Iterator

from .. import limits
from ..core.budgets import budgets
from ..core.state import State
from .store_probes import WARNING

FULL_SHARE = 0.5  # of a budget that turns calls away, from which on somebody should know
LATE_MS = 5 * limits.MINUTE_MS  # after which a tick that nobody served is worth a word
BUDGET_REMEDIES = {
    "leases": "Spread the queue: osqueue queue configure ADDRESS {queue} --shards N, or work on fewer jobs at once.",
    "sessions": "Let fewer processes write, or spread the queue: osqueue queue configure ADDRESS {queue} --shards N.",
    "result_ttls": "Name result_ttl when jobs are enqueued, rather than change it while they wait.",
    "batches": "Let fewer batches be open at once, or spread them: osqueue queue configure ADDRESS {queue} --shards N.",
    "group_debts": "Give group_rate a shorter period, so that fewer groups owe at once: osqueue queue configure ADDRESS"
    " {queue} --group-rate N/PERIOD.",
    "group_settings": "Take back what some have: osqueue group configure ADDRESS {queue} GROUP --no-rate --no-burst"
    " --no-running.",
    "schedules": "Remove some: osqueue cron rm ADDRESS {queue} NAME, or put others into another queue.",
}

Told = tuple[str, str, str, str]  # level, check, what was found, the remedy


def full_parts(queue: str, state: State) -> Iterator[Told]:
    """Parts of a head that turn calls away when they are full, and may soon be."""
    for each in budgets(state):
        if each.refuses and each.share >= FULL_SHARE:
            found = (
                f"{each.name}: {each.share:.0%} of what a head holds ({each.used:,} of {each.most:,}). When it is full,"
                " calls are turned away as throttled"
            )
            yield WARNING, "budget", found, BUDGET_REMEDIES[each.name].format(queue=queue)


def late_schedules(state: State, now_ms: int) -> Iterator[Told]:
    """Schedules whose tick is long over: nobody commits, or none of those who do knows the time zone."""
    late = [row.name for row in state.schedules if not row.paused and 0 < row.next_ms < now_ms - LATE_MS]
    if late:
        yield (
            WARNING,
            "schedules",
            f"nobody has served the ticks of {', '.join(late[:5])}{' and others' if len(late) > 5 else ''}",
            (
                "Run 'osqueue reap' by a schedule, every minute, where time zones are known (the package tzdata)."
            ),
        )
