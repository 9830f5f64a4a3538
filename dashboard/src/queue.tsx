// One queue: how it goes, and its tabs.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { call, queuePath } from "./api";
import { Batches } from "./batches";
import { cancelMany } from "./cancel";
import { Chart } from "./chart";
import { Dead } from "./dead";
import { count, duration, percentile, plural, rate, short, unix } from "./format";
import { Groups, HeldGroups } from "./groups";
import { JobPage } from "./job";
import { Jobs } from "./jobs";
import { Kinds } from "./kinds";
import { linkTo, state, useAsked, useClock, useLive, type Place } from "./live";
import { oldest, waiting, worries } from "./queues";
import { Schedules } from "./schedules";
import { Settings } from "./settings";
import type { Detail, Job, Sample } from "./types";
import { Ago, done, Empty, Figure, Section, showCurrent, useQuestion } from "./ui";
import { Workers } from "./workers";

const RECENT_S = 3_600;
const RECENT_JOBS = 1_000;
const RECENT_MS = 300_000; // between two looks into the archive

/** The pages of a queue, by their names in the address. */
export const TABS: [string, string][] = [
  ["now", "Now"],
  ["jobs", "Jobs"],
  ["dead", "Dead letters"],
  ["batches", "Batches"],
  ["groups", "Groups"],
  ["schedules", "Schedules"],
  ["settings", "Settings"],
];

export function QueuePage({ queue, place }: { queue: string; place: Place }): JSX.Element {
  const live = useLive();
  const row = live.rows.get(queue);
  const detail = live.detail?.queue === queue ? live.detail : null;
  const missing = live.listed && live.names !== null && !live.names.includes(queue);
  const { paused = false, paused_until = null } = detail?.stats ?? row ?? {};
  const failed = detail?.stats.failed ?? row?.failed ?? 0;

  const steer = (wish: Record<string, unknown>, said: string): void => {
    void done(state.change(queue, wish), said);
  };
  const tab = place.job ? "jobs" : place.tab;
  const [dialog, ask] = useQuestion(place.job ?? tab); // outside of the tabs: lists that become empty leave it alone
  const tabs = useRef<HTMLElement>(null);
  useEffect(() => showCurrent(tabs.current), [tab]);
  return (
    <main>
      <header class="queue">
        <h1>
          {queue}
          {paused && (
            <span class="mark paused">
              paused
              {paused_until && (
                <>
                  , goes on <Ago at={paused_until} />
                </>
              )}
            </span>
          )}
        </h1>
        <div class="buttons">
          {live.may("configure") &&
            (paused ? (
              <button type="button" class="primary" onClick={() => steer({ paused: false }, `${queue} goes on.`)}>
                Resume
              </button>
            ) : (
              <button type="button" onClick={() => steer({ paused: true }, `${queue} is paused. Running jobs finish.`)}>
                Pause
              </button>
            ))}
          {live.may("cancel_many") && (
            <button type="button" onClick={() => void cancelMany(queue, {}, queue, ask)}>
              Cancel all…
            </button>
          )}
        </div>
      </header>
      <nav class="tabs" aria-label={`Pages of ${queue}`} ref={tabs}>
        {TABS.map(([name, text]) => (
          <a key={name} href={linkTo(queue, name === "now" ? "" : name)} aria-current={tab === name ? "page" : undefined}>
            {text}
            {name === "dead" && failed > 0 && <span class="badge">{short(failed)}</span>}
          </a>
        ))}
      </nav>
      {missing ? (
        <Empty>There is no queue {queue} here.</Empty>
      ) : place.job !== null ? (
        <JobPage key={place.job} queue={queue} id={place.job} ask={ask} />
      ) : tab === "jobs" ? (
        <Jobs queue={queue} place={place} ask={ask} />
      ) : tab === "dead" ? (
        <Dead queue={queue} ask={ask} />
      ) : tab === "batches" ? (
        <Batches queue={queue} ask={ask} />
      ) : tab === "groups" ? (
        <Groups queue={queue} detail={detail} ask={ask} />
      ) : tab === "schedules" ? (
        <Schedules queue={queue} detail={detail} ask={ask} />
      ) : tab === "settings" ? (
        <Settings queue={queue} detail={detail} />
      ) : (
        <Now queue={queue} detail={detail} />
      )}
      {dialog}
    </main>
  );
}

// ── Now ──────────────────────────────────────────────────────────────────────
function perSecond(samples: Sample[], at: number): (number | null)[] {
  return samples.map((each, i) => {
    const before = samples[i - 1];
    return before ? Math.max(0, (each[at]! - before[at]!) / Math.max(each[0] - before[0], 0.5)) : null;
  });
}

function Now({ queue, detail }: { queue: string; detail: Detail | null }): JSX.Element {
  const live = useLive();
  const now = useClock();
  const row = live.rows.get(queue);
  const samples = detail?.samples ?? [];
  const times = samples.map((each) => each[0]);
  const flow = useMemo(
    () => [times, perSecond(samples, 6), perSecond(samples, 4), perSecond(samples, 5)],
    [detail],
  );
  const depth = useMemo(() => [times, samples.map((each) => each[2]), samples.map((each) => each[1])], [detail]);
  if (!row) return <p class="empty">Reading {queue}…</p>;
  const said = worries(row, now, detail);
  const dead = row.failed ?? 0;
  return (
    <>
      {said.length > 0 && (
        <ul class="worries" aria-label="What needs attention">
          {said.map((each) => (
            <li key={each.text} class={each.grave ? "grave" : ""}>
              {each.text}
            </li>
          ))}
        </ul>
      )}
      <dl class="figures">
        <Figure
          name="Waiting"
          value={short(waiting(row))}
          note={waiting(row) !== (row.queued ?? 0) ? `${short(row.queued)} claimable` : null}
        />
        <Figure name="Oldest" value={duration(oldest(row, now))} />
        <Figure name="Running" value={short(row.processing)} note={row.max_running ? `of ${short(row.max_running)}` : null} />
        <Figure name="Completed" value={rate(row.rates?.out)} note={row.rates ? `${rate(row.rates.in)} in` : null} />
        <Figure
          name="Failing"
          value={rate(row.rates?.troubled)}
          note={row.failing ? `${short(row.failing)} to be retried` : null}
        />
        <Figure name="Dead letters" value={short(dead)} bad={dead > 0} />
      </dl>
      <div class="charts">
        <Chart
          label="Throughput"
          lines={[
            { name: "failed", colour: "--bad" },
            { name: "in", colour: "--second" },
            { name: "completed", colour: "--accent", fill: true },
          ]}
          data={flow}
          format={(n) => (n >= 10 ? short(Math.round(n)) : n.toFixed(n % 1 ? 1 : 0)) + "/s"}
        />
        <Chart
          label="Depth"
          lines={[
            { name: "running", colour: "--second" },
            { name: "waiting", colour: "--accent", fill: true },
          ]}
          data={depth}
          format={(n) => short(Math.round(n))}
        />
      </div>
      <div class="halves">
        <div>
          <Kinds queue={queue} detail={detail} />
          <Workers queue={queue} row={row} detail={detail} />
        </div>
        <div>
          <Times queue={queue} />
          <HeldGroups queue={queue} detail={detail} />
          <Insides detail={detail} />
        </div>
      </div>
    </>
  );
}

/** How long jobs waited and ran that finished within the last hour, by the archive and what the queue still knows. */
function Times({ queue }: { queue: string }): JSX.Element {
  const asked = useAsked(
    async () => {
      const since = Math.floor(Date.now() / 1000 - RECENT_S);
      const page = await call<{ jobs: Job[] }>("GET", queuePath(queue, "/history"), {
        query: { since, limit: RECENT_JOBS },
      });
      if (page.jobs.length) return page.jobs;
      const known = await call<{ jobs: Job[] }>("GET", queuePath(queue, "/jobs"), {
        query: { state: "completed", limit: 200 },
      });
      return known.jobs.filter((job) => job.finished_at && unix(job.finished_at) >= since);
    },
    queue,
    RECENT_MS,
  );
  const waits: number[] = [];
  const runs: number[] = [];
  for (const job of asked.value ?? []) {
    const first = job.attempts[0];
    const last = job.attempts.at(-1);
    if (!first || !last) continue;
    const ready = Math.max(unix(job.enqueued_at), job.due_at ? unix(job.due_at) : 0);
    if (first.run === 1) waits.push(Math.max(0, unix(first.started_at) - ready));
    runs.push(Math.max(0, unix(last.ended_at) - unix(last.started_at)));
  }
  waits.sort((a, b) => a - b);
  runs.sort((a, b) => a - b);
  return (
    <Section title="How long" aside={runs.length ? `last hour, ${plural(runs.length, "job")}` : "last hour"}>
      {runs.length === 0 ? (
        <Empty>{asked.error ? asked.error.message : asked.value ? "Nothing finished in the last hour." : "Reading…"}</Empty>
      ) : (
        <table class="plain">
          <thead>
            <tr>
              <td />
              <th class="number">median</th>
              <th class="number">95%</th>
              <th class="number">99%</th>
              <th class="number">max</th>
            </tr>
          </thead>
          <tbody>
            {(
              [
                ["waited", waits],
                ["ran", runs],
              ] as const
            ).map(([name, values]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {[0.5, 0.95, 0.99, 1].map((p) => (
                  <td key={p} class="number">
                    {duration(percentile(values, p))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Section>
  );
}

function Insides({ detail }: { detail: Detail | null }): JSX.Element | null {
  if (!detail) return null;
  const { stats } = detail;
  const full = Object.entries(stats.budgets).filter(([, share]) => share >= 0.25);
  return (
    <Section title="Inside" aside={plural(stats.shards, "shard")}>
      <dl class="facts">
        <dt>Head</dt>
        <dd>{`${(stats.head_bytes / 1000).toFixed(1)} kB`}</dd>
        <dt>Commits</dt>
        <dd>{count(stats.commits)}</dd>
        {(["enqueued", "completed", "retried", "stalled", "cancelled", "redriven", "archived"] as const).map((name) => (
          <FactOf key={name} name={name} value={stats.counters[name]} />
        ))}
        {full.map(([name, share]) => (
          <FactOf key={name} name={`room for ${name.replaceAll("_", " ")}`} text={`${Math.round(share * 100)}% used`} />
        ))}
      </dl>
    </Section>
  );
}

function FactOf({ name, value, text }: { name: string; value?: number | undefined; text?: string }): JSX.Element {
  return (
    <>
      <dt class="capital">{name}</dt>
      <dd>{text ?? count(value ?? 0)}</dd>
    </>
  );
}
