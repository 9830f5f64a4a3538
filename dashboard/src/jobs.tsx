// The jobs of a queue, page by page, with filters.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, queuePath } from "./api";
import { duration, plural } from "./format";
import { linkTo, useAsked, useLive, type Place } from "./live";
import type { Job } from "./types";
import { Ago, Empty, StateMark, stateWord, Trouble } from "./ui";

const PAGE = 50;
const AGAIN_MS = 20_000; // the first page, times the shards
const STATES = ["processing", "queued", "failing", "scheduled", "completed", "cancelled", "failed"];
const FIELDS = ["state", "kind", "id", "worker", "older_than"] as const;

type Filter = Record<(typeof FIELDS)[number] | "has", string>;

interface Page {
  jobs: Job[];
  cursor?: string | null;
}

const filterOf = (query: URLSearchParams): Filter => {
  const found = { has: query.get("has") ?? "" } as Filter;
  for (const name of FIELDS) found[name] = query.get(name) ?? "";
  return found;
};

/** What the API has no filter for is looked for in the jobs that were loaded: groups, headers, any id. */
function matches(job: Job, text: string): boolean {
  const wanted = text.toLowerCase();
  const words = [job.job_id, job.id, job.group, job.kind, job.error, ...Object.entries(job.headers ?? {}).map(([name, value]) => `${name}=${value}`)];
  return words.some((each) => each?.toLowerCase().includes(wanted));
}

export function Jobs({ queue, place }: { queue: string; place: Place }): JSX.Element {
  const live = useLive();
  const filter = filterOf(place.query);
  const key = JSON.stringify([queue, FIELDS.map((name) => filter[name])]);
  const [older, setOlder] = useState<{ key: string; pages: Page[] }>({ key, pages: [] });
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const ask = (cursor?: string): Promise<Page> =>
    call<Page>("GET", queuePath(queue, "/jobs"), {
      query: { ...Object.fromEntries(FIELDS.map((name) => [name, filter[name]])), limit: PAGE, cursor },
    });
  const shards = live.rows.get(queue)?.shards ?? 1;
  const pages = older.key === key ? older.pages : [];
  const commits = live.rows.get(queue)?.commits ?? 0;
  const asked = useAsked(() => ask(), key, pages.length ? 0 : AGAIN_MS * shards, commits);
  useEffect(() => setError(""), [key]);

  const set = (name: string, value: string): void => {
    const query = new URLSearchParams(place.query);
    if (value) query.set(name, value);
    else query.delete(name);
    const text = query.toString();
    location.replace(`${linkTo(queue, "jobs")}${text ? `?${text}` : ""}`);
  };
  const all = [...(asked.value ? [asked.value] : []), ...pages];
  const cursor = all.at(-1)?.cursor;
  const more = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      const page = await ask(cursor ?? undefined);
      setOlder({ key, pages: [...pages, page] });
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
    setBusy(false);
  };
  const seen = new Set<string>();
  const loaded = all.flatMap((page) => page.jobs).filter((job) => !seen.has(job.job_id) && seen.add(job.job_id));
  const jobs = filter.has ? loaded.filter((job) => matches(job, filter.has)) : loaded;
  const kinds = Object.keys(live.detail?.queue === queue ? (live.detail.flow?.kinds ?? {}) : {}).filter(Boolean);
  return (
    <>
      <form class="filters" role="search" aria-label="Filter jobs" onSubmit={(event) => event.preventDefault()}>
        <label>
          State
          <select value={filter.state} onChange={(event) => set("state", event.currentTarget.value)}>
            <option value="">any</option>
            {STATES.map((name) => (
              <option key={name} value={name}>
                {stateWord(name)}
              </option>
            ))}
          </select>
        </label>
        <Field name="kind" text="Kind" value={filter.kind} set={set} options={kinds} />
        <Field name="id" text="Client’s id" value={filter.id} set={set} />
        <Field name="worker" text="Worker" value={filter.worker} set={set} />
        <label>
          Enqueued
          <select value={filter.older_than} onChange={(event) => set("older_than", event.currentTarget.value)}>
            <option value="">any time</option>
            {[60, 600, 3600, 86400].map((seconds) => (
              <option key={seconds} value={String(seconds)}>
                {duration(seconds)} ago or earlier
              </option>
            ))}
          </select>
        </label>
        <Field name="has" text="Group, header, text" value={filter.has} set={set} />
      </form>
      {asked.error && <Trouble text={asked.error.message} />}
      {asked.value === null && !asked.error ? (
        <p class="empty">Reading…</p>
      ) : jobs.length === 0 ? (
        <Empty>
          {filter.has && loaded.length
            ? `None of the ${plural(loaded.length, "job")} loaded so far matches.`
            : cursor
              ? "None on this page; there are more."
              : "No jobs like that."}
        </Empty>
      ) : (
        <JobTable queue={queue} jobs={jobs} />
      )}
      {error && <Trouble text={error} />}
      {cursor && (
        <div class="more">
          <button type="button" disabled={busy} onClick={() => void more()}>
            {busy ? "Reading…" : "More jobs"}
          </button>
          <span class="dim">{plural(loaded.length, "job")} loaded</span>
        </div>
      )}
    </>
  );
}

function Field({
  name,
  text,
  value,
  set,
  options,
}: {
  name: string;
  text: string;
  value: string;
  set: (name: string, value: string) => void;
  options?: string[];
}): JSX.Element {
  return (
    <label>
      {text}
      <input
        type="text"
        value={value}
        list={options?.length ? `options-${name}` : undefined}
        autocomplete="off"
        spellcheck={false}
        onChange={(event) => set(name, event.currentTarget.value.trim())}
      />
      {options?.length ? (
        <datalist id={`options-${name}`}>
          {options.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      ) : null}
    </label>
  );
}

export function JobTable({ queue, jobs }: { queue: string; jobs: Job[] }): JSX.Element {
  return (
    <table class="jobs">
      <thead>
        <tr>
          <th>Job</th>
          <th>State</th>
          <th>Kind</th>
          <th class="number">Attempt</th>
          <th class="number">Enqueued</th>
          <th>Now</th>
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <tr key={job.job_id}>
            <th scope="row" class="break">
              <a class="row mono" href={linkTo(queue, "job", job.job_id)}>
                {job.id ?? job.job_id}
              </a>
            </th>
            <td>
              <StateMark name={job.state} />
            </td>
            <td class="break">
              {job.kind || <span class="dim">–</span>}
              {job.group && <span class="under break">{job.group}</span>}
            </td>
            <td class="number" data-name="attempt">
              {job.attempt}
              {job.max_attempts ? <span class="dim"> of {job.max_attempts}</span> : null}
            </td>
            <td class="number" data-name="enqueued">
              <Ago at={job.enqueued_at} />
            </td>
            <td class="break">
              <Doing job={job} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Doing({ job }: { job: Job }): JSX.Element {
  if (job.state === "processing") {
    return (
      <>
        {job.worker}, since <Ago at={job.started_at} />
        {job.progress != null && ` · ${Math.round(job.progress * 100)}%`}
        {job.note && <span class="under break">{job.note}</span>}
      </>
    );
  }
  if ((job.state === "failing" || job.state === "scheduled") && job.due_at) {
    return (
      <>
        <Ago at={job.due_at} />
        {job.error && <span class="under break">{job.error}</span>}
      </>
    );
  }
  if (job.finished_at) {
    return (
      <>
        <Ago at={job.finished_at} />
        {job.error && job.state !== "completed" && <span class="under break">{job.error}</span>}
      </>
    );
  }
  return job.error ? <span class="under break">{job.error}</span> : <span class="dim">–</span>;
}
