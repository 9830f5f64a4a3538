// Who works on a queue: by what workers say of themselves, and by the jobs that they hold.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { count, duration, plural, unix } from "./format";
import { linkTo, useClock } from "./live";
import type { Detail, Job, Row, Worker } from "./types";
import { Ago, Bar, Empty, Num, Section } from "./ui";

const SHOWN = 20;
const KINDS = 4; // named of each
const ORDER = ["lost", "running", "draining", "unregistered"];

/** Do jobs wait that nobody takes? Null where it is not known who is there. */
export function deserted(row: Row, detail: Detail | null): boolean | null {
  if (!detail?.workers) return null;
  const pushed = Object.keys(detail.stats.settings["consumers"] ?? {}).length > 0; // functions, invoked when jobs wait
  const there = detail.workers.workers.some((each) => each.state === "running");
  return (row.queued ?? 0) > 0 && !row.paused && !row.processing && !row.rates?.out && !there && !pushed;
}

export const lost = (detail: Detail | null): number => detail?.workers?.workers.filter((each) => each.state === "lost").length ?? 0;

/** A worker, and what is in its hands now. */
interface Line {
  worker: Worker;
  holds: number;
  shared: boolean; // with others of its name
  longest: string | null;
  seen: string | null;
}

const least = (found: (string | null | undefined)[]): string | null => found.filter((each) => !!each).sort()[0] ?? null;
const most = (found: (string | null | undefined)[]): string | null => found.filter((each) => !!each).sort().at(-1) ?? null;

/** The registry is looked at now and then, jobs as they run: who holds some and is not in it is there, too. */
function linesOf(registered: Worker[], running: { jobs: Job[]; cursor?: string | null }): Line[] {
  const held = new Map<string, Job[]>();
  for (const job of running.jobs) held.set(job.worker ?? "?", [...(held.get(job.worker ?? "?") ?? []), job]);
  const known = registered.filter((each) => each.state !== "unregistered" || held.has(each.name) || running.cursor);
  const names = known.map((each) => each.name);
  const strangers = [...held.keys()]
    .filter((name) => !names.includes(name))
    .map((name): Worker => ({ name, state: "unregistered", holds: 0 }));
  return [...known, ...strangers]
    .map((worker) => {
      const jobs = held.get(worker.name) ?? [];
      return {
        worker,
        holds: running.cursor ? Math.max(worker.holds, jobs.length) : jobs.length,
        shared: names.indexOf(worker.name) !== names.lastIndexOf(worker.name),
        longest: least(jobs.map((job) => job.started_at)) ?? (running.cursor ? (worker.oldest_start ?? null) : null),
        seen: worker.seen ?? most(jobs.map((job) => job.heartbeat_at ?? job.started_at)),
      };
    })
    .sort((a, b) => ORDER.indexOf(a.worker.state) - ORDER.indexOf(b.worker.state));
}

export function Workers({ queue, row, detail }: { queue: string; row: Row; detail: Detail | null }): JSX.Element {
  const [all, setAll] = useState(false);
  if (!detail?.workers || !detail.running) {
    return (
      <Section title="Workers">
        <Empty>Reading…</Empty>
      </Section>
    );
  }
  const lines = linesOf(detail.workers.workers, detail.running);
  const states = ORDER.map((state) => [state, lines.filter((each) => each.worker.state === state).length] as const);
  const told = states.filter(([, n]) => n > 0).map(([state, n]) => `${count(n)} ${state}`);
  return (
    <Section title="Workers" aside={told.join(", ")}>
      {deserted(row, detail) ? (
        <p class="deserted">Nobody works on it, and {plural(row.queued ?? 0, "job")} {row.queued === 1 ? "waits" : "wait"}.</p>
      ) : (
        lines.length === 0 && <Empty>Nobody is there. “osqueue worker” starts one.</Empty>
      )}
      {lines.length > 0 && (
        <table class="plain stack workers">
          <thead>
            <tr>
              <th>Worker</th>
              <th class="number">Holds</th>
              <th class="meter">
                <span class="hidden">Used</span>
              </th>
              <th class="number">Longest</th>
              <th class="number">Since</th>
              <th class="number">Last seen</th>
            </tr>
          </thead>
          <tbody>
            {lines.slice(0, all ? lines.length : SHOWN).map((line) => (
              <WorkerLine key={line.worker.id ?? line.worker.name} queue={queue} line={line} />
            ))}
          </tbody>
        </table>
      )}
      {lines.length > SHOWN && !all && (
        <div class="more">
          <button type="button" class="small" onClick={() => setAll(true)}>
            Show all {plural(lines.length, "worker")}
          </button>
        </div>
      )}
      {detail.workers.more && <p class="dim">The first {plural(detail.workers.workers.length, "worker")}; there are more.</p>}
    </Section>
  );
}

function WorkerLine({ queue, line: { worker, holds, shared, longest, seen } }: { queue: string; line: Line }): JSX.Element {
  const now = useClock();
  const { name, state, concurrency, host, version } = worker;
  return (
    <tr class={state}>
      <th scope="row" class="break">
        <a href={`${linkTo(queue, "jobs")}?state=processing&worker=${encodeURIComponent(name)}`}>{name}</a>
        <span class={`mark ${state}`}>{state}</span>
        {worker.id && <span class="under">{[kindsOf(worker), host && `on ${host}`, version].filter(Boolean).join(" · ")}</span>}
      </th>
      <td class="number" data-name="holds">
        <Num of={holds} text={count(holds)} />
        {shared ? <span class="dim"> together</span> : concurrency ? <span class="dim"> of {count(concurrency)}</span> : null}
      </td>
      <td class="meter">{concurrency && !shared ? <Bar used={holds} of={concurrency} label={`Held by ${name}`} endless /> : null}</td>
      <td class="number" data-name="longest">
        <Num of={longest ? Math.max(1, now - unix(longest)) : 0} text={longest ? duration(now - unix(longest)) : "–"} />
      </td>
      <td class="number" data-name="since">
        <Ago at={worker.since} />
      </td>
      <td class="number" data-name="seen">
        <Ago at={seen} />
      </td>
    </tr>
  );
}

function kindsOf({ kinds }: Worker): string {
  if (!kinds) return "any kind";
  const named = kinds.slice(0, KINDS).map((kind) => kind || "without a kind");
  return named.join(", ") + (kinds.length > KINDS ? `, ${count(kinds.length - KINDS)} more` : "");
}
