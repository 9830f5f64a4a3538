// What the API answers, as far as the page shows it.

export interface Me {
  version: string;
  place: string | null; // only for a caller that manages every queue
  name: string | null;
  queues: string[];
  operations: string[];
  read_only: boolean;
}

export interface Row {
  queue: string;
  shards?: number;
  paused?: boolean;
  paused_until?: string | null;
  queued?: number;
  scheduled?: number;
  failing?: number;
  processing?: number;
  failed?: number;
  finished?: number;
  commits?: number;
  oldest_seconds?: number | null;
  counters: Record<string, number>;
  max_running: number | null;
  fullest: [string, number] | null;
  rates: { in: number; out: number; troubled: number } | null;
  spark: [number, number, number][];
  error: string | null;
  seen: number | null;
}

export interface Bill {
  of: string; // store, or API
  per_minute: Record<string, number>;
  dollars_a_day?: number;
}

export interface RateUse {
  starts: number;
  period: number;
  burst: number;
  left: number;
  next_at: string | null;
}

export interface LimitUse {
  running: number;
  max_running: number | null;
  rate: RateUse | null;
  paused: boolean;
  paused_until: string | null;
}

export interface Flow extends LimitUse {
  kinds: Record<string, LimitUse>;
  groups: Record<string, number>;
  limiter: { name: string; lent: number; interval: number | null; missing: boolean; paused_at: string | null } | null;
}

export interface Group {
  group: string;
  state: string;
  running: number;
  waiting: number;
  why: string;
  since: string | null;
  opens_at: string | null;
  waits_for: string | null;
}

export interface Schedule {
  name: string;
  cron: string | null;
  tz: string;
  every: number | null;
  missed: string;
  overlap: string;
  paused: boolean;
  next_at: string | null;
  living: number;
  options: Record<string, unknown>;
}

export interface Attempt {
  run: number;
  worker: string;
  started_at: string;
  ended_at: string;
  outcome: string;
  error: string | null;
  error_type: string | null;
}

export interface Job {
  job_id: string;
  state: string;
  enqueued_at: string;
  attempt: number;
  payload_bytes: number;
  id?: string | null;
  kind?: string | null;
  group?: string | null;
  priority?: number;
  max_attempts?: number;
  headers?: Record<string, string> | null;
  due_at?: string | null;
  worker?: string | null;
  started_at?: string | null;
  heartbeat_at?: string | null;
  expires_at?: string | null;
  progress?: number | null;
  note?: string | null;
  cancel_requested?: boolean;
  finished_at?: string | null;
  error?: string | null;
  attempts: Attempt[];
  run: number;
  batch?: string | null;
  parent?: string | null;
  follow_ups?: string[];
  replaced_by?: string | null;
  payload?: unknown;
  result?: unknown;
  traceback?: string | null;
  encoded?: Record<string, { data: string; codec: string }>;
  left_out?: Record<string, string>;
}

/** By its own word, and by its leases; of who says nothing of itself there is no more than name, state and holds. */
export interface Worker {
  name: string;
  state: string; // running, draining, lost, unregistered
  holds: number; // of workers of one name, all of theirs
  oldest_start?: string | null;
  id?: string | null;
  host?: string | null;
  version?: string | null;
  concurrency?: number | null;
  kinds?: string[] | null;
  since?: string | null;
  seen?: string | null;
}

export interface Letter {
  job_id: string;
  id?: string | null;
  kind?: string | null;
  error: string;
  error_type: string | null;
  fingerprint: string;
  attempts: number;
  worker: string | null;
  enqueued_at: string;
  failed_at: string;
  kept_until: string;
}

export interface DeadGroup {
  fingerprint: string;
  count: number;
  error: string;
  example: Letter;
  first_at: string;
  last_at: string;
  kinds: Record<string, number>;
}

export interface Stats {
  queue: string;
  shards: number;
  paused: boolean;
  paused_until: string | null;
  queued: number;
  scheduled: number;
  failing: number;
  processing: number;
  failed: number;
  finished: number;
  oldest_seconds: number | null;
  commits: number;
  head_bytes: number;
  budgets: Record<string, number>;
  counters: Record<string, number>;
  settings: Record<string, unknown>;
  groups: Record<string, Record<string, unknown>>; // what single groups have of their own
}

export interface Batch {
  batch_id: string;
  name: string | null;
  state: string; // open, sealed, over
  total: number;
  left: number;
  completed: number;
  failed: number;
  cancelled: number;
  created_at: string;
  ended_at: string | null;
  on_complete: { kind?: string | null } | null;
  on_success: { kind?: string | null } | null;
}

/** Unix seconds, waiting, running, dead, enqueued, completed, troubled. */
export type Sample = [number, number, number, number, number, number, number];

export interface Detail {
  queue: string;
  stats: Stats;
  samples: Sample[];
  flow?: Flow;
  groups?: { groups: Group[] };
  schedules?: { schedules: Schedule[] };
  running?: { jobs: Job[]; cursor?: string | null };
  workers?: { workers: Worker[]; more?: boolean };
}

export interface Story {
  steps: { at: string; what: string }[];
  now: string;
  next: string;
  source: string;
  job: Job;
}
