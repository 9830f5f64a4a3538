"""No lease ends early, nor is one granted for much longer than asked for: in true time, however wrong clocks are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from osqueue.commit.writer import MEASURING_SECONDS_MAX
from osqueue.core.state import State

from .ledger import RecordedReduction, Violation
from .machine import VirtualMachine

EARLY_MS_MAX = 250  # two clocks, each 200 ppm wrong, over the ten minutes that a measurement is used
LONG_MS_MAX = int(MEASURING_SECONDS_MAX * 1000) + 5_000  # and a second's width, and drift


class LeaseWatch:
    """When each lease was granted or renewed, in true time."""

    def __init__(self, machines: Mapping[str, VirtualMachine], clock_ms: Callable[[], int]) -> None:
        self._machines = machines
        self._clock_ms = clock_ms  # the store's
        self._since: dict[str, float] = {}  # by token: when the reduction was made; no entry: not judged
        self._granted: dict[str, float] = {}  # by token: when it was granted
        self._ahead = False  # has a wrong clock set the head's time, and is it still too late?

    def repaired(self, kind: str) -> None:
        """A head became current that no reduction made. A mended one has the right time, and leases count as before."""
        self._ahead = kind == "poison"

    def commit(self, before: State | None, state: State, batch: RecordedReduction, now: float) -> None:
        """A commit was made. By a time that is too late leases end early, and others are granted for too long."""
        held = before.leases if before is not None else {}
        self._ahead = self._ahead and state.now_ms > self._clock_ms()
        for event in batch.reduction.events:
            lease = held.get(event.key)
            if event.cause in ("stalled", "timed_out") and lease is not None and lease.token in self._since:
                at_limit = 0 < lease.until_ms <= lease.expires_ms
                since = self._granted if at_limit else self._since
                length = lease.job.run_within_ms if at_limit else lease.lease_ms
                early = length - (now - since[lease.token]) * 1000
                if early > EARLY_MS_MAX and not self._ahead:
                    raise Violation(f"a lease of {length} ms ended {early:.0f} ms early")
        for key, lease in state.leases.items():
            known = held.get(key)
            if known is None or (known.token, known.expires_ms) != (lease.token, lease.expires_ms):
                self._begin(lease.token, batch)
                if lease.job.attempt > lease.job.max_attempts:
                    raise Violation(
                        f"attempt {lease.job.attempt} started of a job that may have {lease.job.max_attempts}"
                    )
                long = lease.expires_ms - lease.lease_ms - self._clock_ms()
                if long > LONG_MS_MAX and not self._ahead:
                    raise Violation(f"a lease of {lease.lease_ms} ms was granted for {long} ms more")
        for lease in held.values():
            if lease.job.key not in state.leases:
                self._since.pop(lease.token, None)
                self._granted.pop(lease.token, None)

    def _begin(self, token: str, batch: RecordedReduction) -> None:
        """A writer that cannot know that time has passed grants what is over sooner: that is not judged."""
        machine = self._machines.get(batch.requests[-1].env)
        if machine is not None and machine.blind:
            self._since.pop(token, None)
        else:
            self._since[token] = batch.at
            self._granted.setdefault(token, batch.at)
