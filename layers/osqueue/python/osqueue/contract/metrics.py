"""What functions and consumers count: the one table of CloudWatch metrics, for those who emit them and for alarms.

Each is emitted under ``functions.METRICS_NAMESPACE``. A metric of the deployment has the dimension ``service``, one of
its queues ``service`` and ``queue``. A service is one deployment. CloudWatch asks $0.30 a month for each metric with
its dimensions, so what nobody looks at queue by queue is told of the deployment alone.
"""

from __future__ import annotations

from msgspec import Struct

SERVICE = "service"  # the dimension of a deployment; its value is functions.SERVICE
QUEUE = "queue"


class Metric(Struct, frozen=True):
    """One metric."""

    name: str
    unit: str  # in CloudWatch's words
    what: str


# Of commits, by every function that commits, and by consumers that a deployment knows.
COMMITS = Metric("Commits", "Count", "commits that won")
CONFLICTS = Metric("Conflicts", "Count", "commits that lost their race and were tried again")
COMBINED = Metric("Combined", "Count", "requests of other callers that a commit took along")
COMMIT_MS = Metric("CommitMs", "Milliseconds", "from the latest read to the committed head")
EXPIRED = Metric("LeasesExpired", "Count", "leases that ran out")

# Of jobs, by the same: what their commits did, whoever asked for it. What producers and workers commit that talk to the
# bucket themselves is not among it.
ENQUEUED = Metric("Enqueued", "Count", "jobs that came")
COMPLETED = Metric("Completed", "Count", "jobs that completed")
FAILED = Metric("Failed", "Count", "jobs that failed for good")
WAIT_MS = Metric("WaitMs", "Milliseconds", "from when a job could start to its first start")

# Of consumers that commits wake, by the same.
WAKES = Metric("Wakes", "Count", "invocations of consumers")
WAKES_AGAIN = Metric("WakesAgain", "Count", "of these, those for a ticket that nobody had come for")
WAKES_FAILED = Metric("WakesFailed", "Count", "of these, those that Lambda did not accept")

# By the reaper, once in each pass.
DEPTH = Metric("Depth", "Count", "jobs that wait to be claimed")
OLDEST = Metric("OldestAge", "Seconds", "how long the oldest of them has waited; of a paused queue nothing")
DEAD = Metric("DeadLetters", "Count", "dead letters that there are")
PASSES = Metric("ReaperPasses", "Count", "passes over all queues that ended without trouble")
FAILED_SO_FAR = Metric(
    "FailedSoFar", "Count", "jobs that have failed for good so far; after a pass that saw every queue"
)

# Of queues with push consumers, by the reaper, too.
CONSUMERS = Metric("Consumers", "Count", "invocations of consumers at work")
CONSUMERS_BUSY = Metric("ConsumersBusy", "Percent", "of the invocations that a consumer may have, at work")
WAKE_TRIES = Metric(
    "WakeTries", "Count", "how often a consumer was invoked again that has not come; the most of them"
)

# By every function; consumers lose events, too.
FAULTS = Metric("Faults", "Count", "requests that were answered with 500 or 503")
LOST = Metric("EventsLost", "Count", "events that did not reach the bus")

OF_DEPLOYMENT: tuple[Metric, ...] = (
    *(COMMITS, CONFLICTS, COMBINED, COMMIT_MS, EXPIRED),
    *(OLDEST, PASSES, FAILED_SO_FAR, CONSUMERS_BUSY, WAKE_TRIES),
    *(FAULTS, LOST),
)
OF_QUEUES: tuple[Metric, ...] = (
    *(ENQUEUED, COMPLETED, FAILED, WAIT_MS),
    *(WAKES, WAKES_AGAIN, WAKES_FAILED),
    *(DEPTH, OLDEST, DEAD, CONSUMERS),
)
