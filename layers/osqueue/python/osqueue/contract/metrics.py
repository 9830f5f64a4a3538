"""What the functions count: the one table of CloudWatch metrics, for those who emit them and for alarms.

Each is emitted under ``functions.METRICS_NAMESPACE`` with two sets of dimensions: ``service`` alone, which alarms look
at, and ``service`` with ``queue``, for the dashboard. A service is one deployment.
"""

from __future__ import annotations

from msgspec import Struct

SERVICE = "service"  # the dimension that Powertools sets: functions.SERVICE
QUEUE = "queue"


class Metric(Struct, frozen=True):
    """One metric."""

    name: str
    unit: str  # in CloudWatch's words
    what: str


# Of commits, by every function that commits.
COMMITS = Metric("Commits", "Count", "commits that won")
CONFLICTS = Metric("Conflicts", "Count", "commits that lost their race and were tried again")
COMBINED = Metric("Combined", "Count", "requests of other callers that a commit took along")
COMMIT_MS = Metric("CommitMs", "Milliseconds", "from the first read to the committed head")
EXPIRED = Metric("LeasesExpired", "Count", "leases that ran out")

# Of queues, by the reaper, once in each pass.
DEPTH = Metric("Depth", "Count", "jobs that wait to be claimed")
OLDEST = Metric("OldestAge", "Seconds", "how long the oldest of them has waited; of a paused queue nothing")
DEAD = Metric("DeadLetters", "Count", "dead letters that there are")

# Of queues with push consumers, by the reaper, too.
CONSUMERS = Metric("Consumers", "Count", "invocations of consumers at work")
CONSUMERS_BUSY = Metric("ConsumersBusy", "Percent", "of the invocations that a consumer may have, at work")
WAKE_TRIES = Metric(
    "WakeTries", "Count", "how often a consumer was invoked again that has not come; the most of them"
)

# Of the deployment; with ``service`` alone.
FAULTS = Metric("Faults", "Count", "requests that were answered with 500 or 503")
LOST = Metric("EventsLost", "Count", "events that did not reach the bus")
PASSES = Metric("ReaperPasses", "Count", "passes over all queues that ended without trouble")
FAILED = Metric("Failed", "Count", "jobs that have failed for good so far; after a pass that saw every queue")

METRICS: tuple[Metric, ...] = (
    *(COMMITS, CONFLICTS, COMBINED, COMMIT_MS, EXPIRED),
    *(DEPTH, OLDEST, DEAD, CONSUMERS, CONSUMERS_BUSY, WAKE_TRIES),
    *(FAULTS, LOST, PASSES, FAILED),
)
