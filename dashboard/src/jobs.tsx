// The jobs of a queue, page by page, with filters.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, queuePath } from "./api";
import { cancelMany } from "./cancel";
import { count, duration, plural, short } from "./format";
import { goTo, linkTo, useAsked, useLive, type Place } from "./live";
import type { Job } from "./types";
import { Ago, Bar, Empty, showCurrent, StateMark, stateWord, Trouble, type Ask } from "./ui";

const PAGE = 50;
const AGAIN_MS = 20_000; // the first page, times the shards, and longer the further it has to look
const CHEAP = 2_000; // jobs that cost few requests to look at
const STATES = ["processing", "queued", "failing", "scheduled", "failed", "completed", "cancelled"];
const FIELDS = ["state", "kind", "group", "header", "id", "worker", "older_than", "batch"] as const;
const COUNTED = ["processing", "queued", "failing", "scheduled", "failed"] as const;
const OF_MANY = ["kind", "group", "batch", "older_than"]; // by which many jobs are cancelled at once
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

type Name = (typeof FIELDS)[number];
type Filter = Record<Name, string>;

interface Page {
  jobs: Job[];
  cursor?: string | null;
  looked_at: number;
}

const filterOf = (query: URLSearchParams): Filter =>
  Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? ""])) as Filter;

export function Jobs({ queue, place, ask: askFirst }: { queue: string; place: Place; ask: Ask }): JSX.Element {
  const live = useLive();
  const row = live.rows.get(queue);
  const filter = filterOf(place.query);
  const key = JSON.stringify([queue, filter]);
  const [older, setOlder] = useState<{ key: string; pages: Page[] }>({ key, pages: [] });
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const [first, setFirst] = useState(0); // jobs that the first page looked at
  const stopping = useRef(false);
  const states = useRef<HTMLElement>(null);
  useEffect(() => showCurrent(states.current), [filter.state]);
  const ask = (cursor?: string | null): Promise<Page> =>
    call<Page>("GET", queuePath(queue, "/jobs"), { query: { ...filter, limit: PAGE, cursor } });
  const pages = older.key === key ? older.pages : [];
  const asked = useAsked(
    async () => {
      const page = await ask();
      setFirst(page.looked_at);
      return page;
    },
    key,
    pages.length ? 0 : AGAIN_MS * (row?.shards ?? 1) * Math.max(1, Math.ceil(first / CHEAP)),
    row?.commits ?? 0,
  );
  useEffect(() => {
    setError("");
    return () => {
      stopping.current = true; // nobody waits for it any more
    };
  }, [key]);

  const at = (name: string, value: string): string => {
    const query = new URLSearchParams(place.query);
    if (value) query.set(name, value);
    else query.delete(name);
    const text = query.toString();
    return `${linkTo(queue, "jobs")}${text ? `?${text}` : ""}`;
  };
  const set = (name: string, value: string): void => {
    if (name === "id" && UUID.test(value)) location.hash = linkTo(queue, "job", value);
    else goTo(at(name, value));
  };
  const all = [...(asked.value ? [asked.value] : []), ...pages];
  const cursor = all.at(-1)?.cursor;
  const picky = FIELDS.some((name) => name !== "state" && filter[name]);

  /** The next page; where few jobs match, further ones until a page is full, or somebody stops it. */
  const more = async (): Promise<void> => {
    setBusy(true);
    setError("");
    stopping.current = false;
    const added = [...pages];
    let found = 0;
    try {
      for (let next = cursor; next && found < PAGE && !stopping.current; found += added.at(-1)!.jobs.length) {
        const page = await ask(next);
        added.push(page);
        next = page.cursor;
        setOlder({ key, pages: [...added] });
      }
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
    setBusy(false);
  };
  const seen = new Set<string>();
  const jobs = all.flatMap((page) => page.jobs).filter((job) => !seen.has(job.job_id) && seen.add(job.job_id));
  const looked = all.reduce((n, page) => n + page.looked_at, 0);
  const counts = Object.fromEntries(COUNTED.map((name) => [name, row?.[name] ?? 0]));
  const there = filter.state ? counts[filter.state] : COUNTED.reduce((n, name) => n + (counts[name] ?? 0), 0);
  const far = `${count(looked)} of ${there && there > looked ? `about ${count(there)}` : "the"} jobs`;
  const kinds = Object.keys(live.detail?.queue === queue ? (live.detail.flow?.kinds ?? {}) : {}).filter(Boolean);
  const many = OF_MANY.some((name) => filter[name as Name]) && FIELDS.every((name) => !filter[name] || OF_MANY.includes(name));
  return (
    <>
      <nav class="states" aria-label="States" ref={states}>
        {["", ...STATES].map((name) => (
          <a key={name} href={at("state", name)} class={name || "any"} aria-current={filter.state === name ? "page" : undefined}>
            {name ? stateWord(name) : "all"}
            {counts[name] ? <b>{short(counts[name])}</b> : null}
          </a>
        ))}
      </nav>
      <form class="filters" role="search" aria-label="Filter jobs" onSubmit={(event) => event.preventDefault()}>
        <Filtered name="kind" text="Kind" value={filter.kind} set={set} options={kinds} />
        <Filtered name="group" text="Group" value={filter.group} set={set} />
        <Filtered name="header" text="Header" value={filter.header} set={set} hint="tenant=acme" />
        <Filtered name="id" text="Id" value={filter.id} set={set} hint="yours, or a job id" />
        <Filtered name="worker" text="Worker" value={filter.worker} set={set} />
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
        {filter.batch && <Filtered name="batch" text="Batch" value={filter.batch} set={set} />}
      </form>
      {picky && (
        <div class="chosen">
          <a href={`${linkTo(queue, "jobs")}${filter.state ? `?state=${filter.state}` : ""}`}>Show all jobs again</a>
          {many && live.may("cancel_many") && (
            <button
              type="button"
              class="small danger"
              onClick={() =>
                void cancelMany(
                  queue,
                  {
                    ...(filter.kind ? { kinds: [filter.kind] } : {}),
                    ...(filter.group ? { group: filter.group } : {}),
                    ...(filter.batch ? { batch: filter.batch } : {}),
                    ...(filter.older_than ? { older_than: Number(filter.older_than) } : {}),
                  },
                  `${queue} like these`,
                  askFirst,
                ).then(asked.again)
              }
            >
              Cancel all like these…
            </button>
          )}
        </div>
      )}
      {asked.error && <Trouble text={asked.error.message} />}
      {asked.value === null && !asked.error ? (
        <p class="empty">Reading…</p>
      ) : jobs.length === 0 ? (
        <Empty>{cursor ? "None found so far." : "No jobs like that."}</Empty>
      ) : (
        <JobTable queue={queue} jobs={jobs} />
      )}
      {error && <Trouble text={error} />}
      {cursor && (
        <div class="more">
          {busy && picky ? (
            <button
              type="button"
              onClick={() => {
                stopping.current = true;
              }}
            >
              Stop
            </button>
          ) : (
            <button type="button" disabled={busy} onClick={() => void more()}>
              {busy ? "Reading…" : picky ? "Look further" : "More jobs"}
            </button>
          )}
          <span class="dim" role="status">
            {picky ? `${plural(jobs.length, "job")} found; looked at ${far}` : `${plural(jobs.length, "job")} loaded`}
          </span>
        </div>
      )}
    </>
  );
}

function Filtered({
  name,
  text,
  value,
  set,
  hint,
  options,
}: {
  name: Name;
  text: string;
  value: string;
  set: (name: string, value: string) => void;
  hint?: string;
  options?: string[];
}): JSX.Element {
  const [typed, type] = useState<string | null>(null); // not looked for yet; until then it stays, whatever is told
  const look = (): void => {
    if (typed === null) return;
    type(null);
    if (typed.trim() !== value) set(name, typed.trim());
  };
  return (
    <label class={value ? "on" : ""}>
      {text}
      <input
        type="text"
        value={typed ?? value}
        placeholder={hint ?? ""}
        list={options?.length ? `options-${name}` : undefined}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => type(event.currentTarget.value)}
        onChange={look}
        onBlur={look}
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
    <table class="jobs stack">
      <thead>
        <tr>
          <th>Job</th>
          <th>State</th>
          <th>Kind and group</th>
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
              {job.group && <span class="dim"> {job.group}</span>}
            </td>
            <td class="number" data-name="attempt">
              {job.attempt || <span class="dim">0</span>}
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
        {job.cancel_requested && <span class="mark failing">asked to stop</span>}
        {job.progress != null && (
          <span class="progress">
            <Bar used={Math.round(job.progress * 100)} of={100} label="Progress" endless />
            <span class="dim break">
              {Math.round(job.progress * 100)}% {job.note}
            </span>
          </span>
        )}
        {job.progress == null && job.note && <span class="under break">{job.note}</span>}
      </>
    );
  }
  if ((job.state === "failing" || job.state === "scheduled") && job.due_at) {
    return (
      <>
        {job.state === "failing" ? "again " : "due "}
        <Ago at={job.due_at} />
        {job.error && <span class="under break">{job.error}</span>}
      </>
    );
  }
  if (job.finished_at) {
    return (
      <>
        {stateWord(job.state)} <Ago at={job.finished_at} />
        {job.error && job.state !== "completed" && <span class="under break">{job.error}</span>}
      </>
    );
  }
  return job.error ? <span class="under break">{job.error}</span> : <span class="dim">–</span>;
}
