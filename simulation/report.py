"""What a run of the simulator came to, and how it is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from .conditions import FAULTS


class RunReport(Struct):
    """What a run came to."""

    profile: str
    seed: int
    commits: int = 0
    hours: float = 0.0  # of virtual time
    jobs: int = 0
    calls: int = 0
    unheard: int = 0  # calls that ended in an ambiguous error, or with their client's death
    faults: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)  # what committed operations answered
    errors: Counter[str] = field(default_factory=Counter)  # calls that ended in one, by its name
    events: Counter[str] = field(default_factory=Counter)  # transitions of jobs, by what caused them
    protocol: Counter[str] = field(default_factory=Counter)  # what commits did besides
    records: int = 0  # in the archive
    passes: int = 0  # of reapers, ended well
    ids: int = 0  # jobs accepted under clients' ids
    freed: int = 0  # ids freed
    told: int = 0  # events that listeners were told
    waits: int = 0  # calls that waited for a result
    bulks: int = 0  # loads that came in as a whole
    loads: Counter[str] = field(default_factory=Counter)  # runs of bulks, by what they were told
    terms: int = 0  # of leaders that were elected
    slots: int = 0  # of pacers, that were used
    asked: Counter[str] = field(default_factory=Counter)  # what callers asked, and how they were answered
    violation: str = ""

    def add(self, report: RunReport) -> None:
        """Add what another run came to."""
        for name in report.__struct_fields__:
            value = getattr(report, name)
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            elif isinstance(value, int | float) and name != "seed":
                setattr(self, name, getattr(self, name) + value)
        self.violation = report.violation


def counted(counts: Counter[str], names: Iterable[str] = ()) -> str:
    """How often each thing happened, those that never did as well."""
    all_names = sorted({*counts, *names})
    return ", ".join(f"{counts[name]:,} {name}" for name in all_names) or "none"


def tell(total: RunReport, runs: int, first: int) -> None:
    """Print what a soak came to."""
    print(f"{runs} runs from seed {first}: {total.commits:,} commits, {total.hours:,.1f} virtual hours")
    print(
        f"  {total.jobs:,} jobs accounted for, {total.calls:,} calls, {total.unheard:,} of them without an answer"
    )
    print(
        f"  {total.ids:,} jobs under clients' ids, {total.freed:,} ids freed, {total.asked.total():,} questions of"
        f" callers, {total.waits:,} of them waits"
    )
    print(
        f"  {total.bulks:,} bulks of many tasks came in, each whole and once; their runs: {counted(total.loads)}"
    )
    print(f"  {total.terms:,} leaders were elected, never two at once")
    print(f"  {total.slots:,} slots of pacers were used, none twice, too early or too late")
    print(f"  {total.passes:,} passes of reapers, {total.records:,} records archived")
    print(f"  {total.told:,} events told to those who listened")
    print(f"  injected: {counted(total.faults, FAULTS)}")
    print(f"  commits: {counted(total.protocol)}")
    print(f"  transitions by: {counted(total.events)}")
    print(f"  calls that ended in: {counted(total.errors)}")
    print(f"  violations: {1 if total.violation else 0}")
