"""What an operator may change while a queue runs, of it and of its kinds. Each shard keeps a copy in its head."""

from msgspec.structs import asdict, replace

from .. import limits
from .rows import StoredRow


class KindSettings(StoredRow, frozen=True):
    """What is different for jobs of one kind; None: it is as the queue says."""

    kind: str
    priority: int | None = None
    max_attempts: int | None = None
    result_ttl_ms: int | None = None
    backoff_base_ms: int | None = None
    backoff_cap_ms: int | None = None
    run_within_ms: int | None = None
    start_within_ms: int | None = None
    max_running: int | None = None  # None: none but the queue's own
    paused: bool | None = None
    paused_until_ms: int | None = None  # None: until somebody resumes it
    rate: tuple[int, int] | None = None  # so many starts in so many ms; None: none but the queue's own
    burst: int | None = None


class GroupSettings(StoredRow, frozen=True):
    """What is different for one group, in the shard where it is at home; None: it is as the queue says."""

    running: int | None = None
    rate: tuple[int, int] | None = None
    burst: int | None = None


class ConsumerSettings(StoredRow, frozen=True):
    """A function that is invoked when jobs wait. See ``consumers``."""

    name: str
    target: str  # what is invoked: a function's ARN, or its name
    kinds: tuple[str, ...] | None = None  # only jobs of these; None: of all
    batch: int = limits.CONSUMER_BATCH_DEFAULT  # jobs in one claim
    max_concurrency: int = limits.CONSUMER_CONCURRENCY_DEFAULT  # invocations at once, over all shards
    window_ms: int = 0  # for which fewer jobs than a batch may wait for others
    lease_ms: int = limits.LEASE_MS_DEFAULT


class QueueSettings(StoredRow, frozen=True):
    """What an operator may change while the queue runs."""

    paused: bool = False
    backoff_base_ms: int = limits.BACKOFF_BASE_MS
    backoff_cap_ms: int = limits.BACKOFF_CAP_MS
    dead_ttl_ms: int = limits.DEAD_TTL_MS_DEFAULT
    shards: int = 1  # over which the queue is spread
    # What holds for jobs that do not say it themselves, and whose kind does not.
    priority: int = limits.PRIORITY_DEFAULT
    max_attempts: int = limits.ATTEMPTS_DEFAULT
    result_ttl_ms: int = limits.RESULT_TTL_MS_DEFAULT
    run_within_ms: int = 0
    start_within_ms: int = 0
    kinds: tuple[KindSettings, ...] = ()  # sorted by kind
    archive_payloads: bool = False  # the archive gets payloads and results, too
    max_running: int = 0  # jobs that may run at once, over all shards; 0: as many as there is room for
    shard: int = 0  # which of the shards this is
    paused_until_ms: int = 0  # when its pause ends; 0: when somebody resumes it
    rate: tuple[int, int] = (0, 0)  # so many starts in so many ms, over all shards; 0: as fast as they come
    burst: int = 0  # of them that may be at once; 0: those of one second
    ageing_ms: int = 0  # after which a job that waits counts as one priority more urgent; 0: never
    group_running: int = 1  # jobs of one group that may run at once; 1: in order; 0: as many as come
    group_on_failure: str = "hold"  # a group in order waits for its job that failed; or "skip"
    group_on_dead: str = "go_on"  # the same of one that is dead; or "stop"
    group_shards: int = 0  # over which groups are spread; 0: no job had one yet
    group_rate: tuple[int, int] = (0, 0)  # so many starts of each group in so many ms; 0: without limit
    group_burst: int = 0  # of them that may be at once; 0: those of one second
    overrides: dict[str, GroupSettings] = {}  # noqa: RUF012 - of single groups that are at home in this shard
    fair: bool = False  # groups of which the fewest jobs run go first, and take turns
    limiter: str = ""  # the pacer of whose slots each start uses one up; "": none
    consumers: tuple[ConsumerSettings, ...] = ()  # sorted by name

    def group_running_of(self, group: str) -> int:
        """How many jobs of a group may run at once; 0: as many as come."""
        own = self.overrides.get(group) if self.overrides else None
        return self.group_running if own is None or own.running is None else own.running

    def of_kind(self, kind: str) -> "QueueSettings":
        """The settings as they hold for jobs of one kind."""
        for row in self.kinds:
            if row.kind == kind:
                own = {name: value for name, value in asdict(row).items() if value is not None}
                del own["kind"]
                return replace(self, **own)
        return self
