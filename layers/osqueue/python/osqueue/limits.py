"""Every limit by name, with its unit. A test stands at each limit and one past it."""

from __future__ import annotations

KB = 1024
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# ── What a caller may ask for ────────────────────────────────────────────────
INLINE_BYTES_MAX = 1 * KB  # a payload or result up to this size lives in the state itself
PAYLOAD_BYTES_MAX = 5 * 1024 * 1024 * KB  # what a store takes in one PUT
ITEMS_PER_CALL_MAX = 1_000_000  # jobs in one library call
ITEMS_PER_REQUEST_MAX = 1_000  # operations of one commit vector before bulk staging takes over
CLAIM_LIMIT_MAX = 1_000  # jobs in one claim
HANDLER_BATCH_MAX = CLAIM_LIMIT_MAX  # jobs in one call of a handler
HANDLER_WITHIN_MS_MAX = 1 * HOUR_MS  # for which a call waits for more of them
HANDLER_CONCURRENCY_MAX = 1_000  # calls of one handler at once in a process
KIND_CHARS_MAX = 64
WORKER_CHARS_MAX = 128
WORKER_KINDS_TOLD_MAX = 100  # that a worker says it has handlers for
WORKER_EVERY_MS_MAX = 10 * MINUTE_MS  # between two words of a worker
TOKEN_CHARS_MAX = 64
ERROR_CHARS_MAX = 2_000  # an error message kept with a job
ERROR_TYPE_CHARS_MAX = 100
TRACE_CHARS_MAX = 2_000  # the end of a traceback, kept with a job until it finishes
ID_CHARS_MAX = 256  # a client's own id of a job
HEADERS_MAX = 16  # of one job
NOTE_CHARS_MAX = 80  # of a job's progress
HEADER_NAME_CHARS_MAX = 64
HEADER_VALUE_CHARS_MAX = 256
HEADERS_BYTES_MAX = 2 * KB  # names and values together: they live in the state with the job
DELAY_MS_MAX = 10 * 365 * DAY_MS
AT_MS_MAX = 253_402_300_799_000  # the end of the year 9999
RESULT_TTL_MS_MAX = 30 * DAY_MS
UNIQUE_WINDOW_MS_MAX = 30 * DAY_MS  # for which an id is taken, whatever became of its job
RESULT_TTL_MS_DEFAULT = 1 * HOUR_MS
EXPIRED_KNOWN_MS = DAY_MS  # for which "expired" is told from "not found"
LEASE_MS_DEFAULT = 30 * SECOND_MS
LEASE_MS_MIN = 1 * SECOND_MS
LEASE_MS_MAX = 12 * HOUR_MS
ATTEMPTS_DEFAULT = 3
ATTEMPTS_MAX = 1_000
PRIORITY_DEFAULT = 5
PRIORITY_MAX = 9  # 0 runs first
KINDS_MAX = 32  # kinds with settings of their own
RUNNING_MAX = 1_000_000  # the largest limit of jobs that run at once
SCHEDULE_NAME_CHARS_MAX = 64
CRON_CHARS_MAX = 200  # of a crontab line
EVERY_MS_MIN = MINUTE_MS  # between two ticks of a schedule
EVERY_MS_MAX = 365 * DAY_MS
RATE_STARTS_MAX = 1_000_000  # starts in the period of a rate
RATE_MS_MAX = 30 * DAY_MS  # the longest period of a rate
RATE_BURST_MAX = 1_000_000
JOB_UNITS_MAX = 10_000  # starts of a rate that one job counts as
AGEING_MS_MAX = 30 * DAY_MS
GROUP_CHARS_MAX = 128
DROP_RULES_MAX = 16  # of a shard, at work at the same time
DROP_RULE_KINDS_MAX = 16  # that one call cancels
LANES_MAX = 16  # (priority, kind) pairs with a lane of their own; jobs of others share one for each priority
KINDS_PER_CLAIM_MAX = 1_000
SHARDS_MAX = 64
DEAD_TTL_MS_DEFAULT = 14 * DAY_MS
BACKOFF_BASE_MS = 1 * SECOND_MS
BACKOFF_CAP_MS = 1 * HOUR_MS
PACER_INTERVAL_MS_MIN = 1
PACER_INTERVAL_MS_MAX = 30 * DAY_MS
PACER_BURST_MAX = 1_000_000
PACER_AHEAD_MS_DEFAULT = 1 * HOUR_MS  # a slot further ahead is not taken
PACER_AHEAD_MS_MAX = 365 * DAY_MS
PACER_GRACE_MS_MIN = 50  # how late a holder may use its slot, where it does not say so
PACER_NUMBER_MAX = 1_000_000_000_000  # of a slot, or of an epoch, as a request names it
PACER_LEAD_MS_MAX = 2_000  # that a response is expected to take; more would cost others their slots

TICKS_MADE_MAX = 100  # of one schedule: missed ticks that are made up for, the latest ones
TICK_LATE_MS = 2 * MINUTE_MS  # a tick that nobody served for so long was missed: a reaper comes once a minute

# ── How large the head may grow, in encoded bytes ────────────────────────────
READY_BYTES_MAX = 64 * KB  # the next jobs, over all lanes
TAIL_BYTES_MAX = 40 * KB  # the newest jobs, over all lanes
LEASES_BYTES_MAX = 176 * KB  # some hundreds of jobs in flight, fewer with long payloads
SESSIONS_BYTES_KEPT = 64 * KB  # rows of writers; beyond it idle writers are forgotten
SESSIONS_BYTES_MAX = 256 * KB  # rows of writers; beyond it a new writer is refused
TURNED_AWAY_MAX = 1_000  # requests of a crowd that are told so, of 9 bytes each
DELAYED_BYTES_MAX = 8 * KB
FINISHED_BYTES_MAX = 16 * KB
DEAD_BYTES_MAX = 8 * KB
EVENTS_BYTES_MAX = 16 * KB  # the newest transitions, while somebody listens
EVENTS_OF_A_COMMIT_BYTES_MAX = 96 * KB  # beyond it those of one commit are recorded without clients' words
SCHEDULES_BYTES_MAX = 16 * KB  # about a hundred schedules
SCHEDULE_INLINE_BYTES_MAX = 256  # a schedule's payload up to this size lives in its row
GROUPS_SERVED_MAX = 256  # groups of which a fair shard remembers that they had their turn, of 10 bytes each
GROUP_DEBTS_MAX = 1_000  # groups of a shard that owe starts to their rate, of 20 bytes each
GROUP_SETTINGS_MAX = 200  # groups of a shard with settings of their own
CONSUMERS_MAX = 4  # of one queue: functions that are invoked when jobs wait
CONSUMER_NAME_CHARS_MAX = 64
CONSUMER_TARGET_CHARS_MAX = 256  # an ARN with a version or an alias has some 200
CONSUMER_KINDS_MAX = 16  # that one takes
CONSUMER_BATCH_DEFAULT = 10
CONSUMER_CONCURRENCY_DEFAULT = 10
CONSUMER_CONCURRENCY_MAX = 1_000  # invocations at once, over all shards
WINDOW_MS_MAX = 10 * SECOND_MS  # that an operation waits for others, to share a commit
CONSUMER_WINDOW_MS_MAX = 5 * MINUTE_MS
TICKETS_MAX = 64  # of a consumer in one shard, of some 35 bytes each
FOLLOW_UPS_MAX = 8  # of one job
FOLLOW_UPS_DEPTH_MAX = 8  # jobs that follow one another, one declared inside the other
FOLLOW_UPS_BYTES_MAX = 4 * KB  # of all that follow a job, encoded: they are part of it
BATCHES_BYTES_MAX = 16 * KB  # of a shard: about two hundred open batches
BATCH_KEPT_MS = 24 * HOUR_MS  # of a batch that is over, where there is room
BATCH_NAME_CHARS_MAX = 64
GROUP_HOLDS_MAX = 1_000  # groups of a shard that wait for a job, or are paused
LABELS_BYTES_MAX = 48 * KB  # which kinds are in which segments, of one mixed lane
LABELS_OF_A_SPAN_BYTES_MAX = 4 * KB  # beyond it an index does not tell what is below it
TOMBSTONES_MAX = 64  # cancelled jobs still lying in segments
RESULT_TTLS_MAX = 256  # unfinished jobs whose result's life was changed

# ── Objects beside the head ──────────────────────────────────────────────────
BLOCK_BYTES_MAX = 32 * KB  # one range GET's worth of queued jobs
SEGMENT_BYTES_MAX = 8 * 1024 * KB  # one staged segment of a bulk enqueue
BODY_BYTES_MAX = 8 * 1024 * KB  # several payloads share one body object up to this size
FANOUT = 16  # pointers folded into one index object
TABLE_BYTES_MAX = 8 * 1024 * KB  # one table of finished jobs; smaller ones are merged up to this size
EVENTS_KEPT_MS = DAY_MS  # for which transitions are recorded after somebody has listened, and kept
ARCHIVE_PART_BYTES = 8 * 1024 * KB  # payloads and results in one part of the archive, unless one job has more
# Unpacked, a part has records of TABLE_BYTES_MAX of rows, which JSON makes less than ten times as large, and contents
# of at most two ARCHIVED_CONTENT_BYTES_MAX, which escapes double.
ARCHIVE_PART_UNPACKED_BYTES_MAX = 256 * 1024 * KB
ARCHIVED_CONTENT_BYTES_MAX = 16 * 1024 * KB  # a larger payload or result is left out of the archive
BACKUPS_KEPT_MS = 7 * DAY_MS  # hourly copies of heads

# ── Protocol ─────────────────────────────────────────────────────────────────
BORN_AGE_MAX_MS = 60 * SECOND_MS  # a head validated this recently may date an operation
CLOCK_AHEAD_MS_MAX = 60 * SECOND_MS  # a head further ahead of the clock than this is for the doctor
CLOCK_AGE_MS_MAX = 10 * MINUTE_MS  # a clock measurement's life
# No call of the default timeout lasts as long as a writer must have been idle before its row is dropped.
SESSION_IDLE_MS_MIN = 2 * MINUTE_MS
HOT_COMMITS = 8  # commits for which a head counts as contended
FEW_WRITERS_MAX = 16  # that publish; beyond, one listing costs less than a GET of each one's publication
COMBINERS_MIN = 2  # writers of a crowd that should try to combine at once: one of them may die
COMBINERS_MAX = 4  # more would mostly read the same for nothing
CROWD_PER_COMBINER = 8  # writers of a crowd for each of them, in between
INTENTS_PER_COMMIT_MAX = 1_000
INTENT_BYTES_PER_COMMIT_MAX = 1024 * KB
GC_HORIZON_MS = DAY_MS  # what is younger than this is never collected
REQUEST_TIMEOUT_S = 25.0  # how long one operation may try before it answers

# ── Connections ──────────────────────────────────────────────────────────────
# After this idle time a connection is not used again.
STORE_IDLE_MS_MAX = 5 * SECOND_MS  # to S3, Google Cloud Storage, Azure
HTTP_IDLE_MS_MAX = 20 * SECOND_MS  # to an API or a service of AWS
