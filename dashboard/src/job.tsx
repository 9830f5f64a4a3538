// One job: its life drawn and told, its contents on demand, and what may be done with it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, jobPath, queuePath } from "./api";
import { bytes, duration, moment, plural, unix } from "./format";
import { linkTo, useAsked, useClock, useLive } from "./live";
import type { Job, Story } from "./types";
import { Ago, done, Empty, Section, StateMark, Trouble, type Ask } from "./ui";

const AGAIN_MS = 20_000; // times the shards
const OVER = ["completed", "cancelled", "failed"];

export function JobPage({ queue, id, ask }: { queue: string; id: string; ask: Ask }): JSX.Element {
  const live = useLive();
  const [over, setOver] = useState(false);
  const shards = live.rows.get(queue)?.shards ?? 1;
  const asked = useAsked(
    async () => {
      const story = await call<Story>("GET", jobPath(queue, id, "/story"));
      setOver(OVER.includes(story.job.state) || story.source !== "queue");
      return story;
    },
    `${queue}/${id}`,
    over ? 0 : AGAIN_MS * shards,
    live.rows.get(queue)?.commits ?? 0,
  );
  const story = asked.value;
  if (!story) {
    return asked.error ? <Trouble text={asked.error.message} /> : <p class="empty">Reading…</p>;
  }
  const { job } = story;
  const act = async (doing: Promise<unknown>, said: string): Promise<void> => {
    await done(doing, said);
    asked.again();
  };
  const alive = story.source === "queue";
  return (
    <article>
      <header class="job">
        <h2 class="mono break">{job.id ?? job.job_id}</h2>
        <StateMark name={job.state} />
        <div class="buttons">
          {alive && live.may("run_now") && (job.state === "scheduled" || job.state === "failing") && (
            <button type="button" onClick={() => void act(call("POST", jobPath(queue, job.job_id, "/run")), "It may run now.")}>
              Run now
            </button>
          )}
          {alive && live.may("redrive") && job.state === "failed" && (
            <button
              type="button"
              class="primary"
              onClick={() =>
                ask({
                  title: "Queue this job again?",
                  text: <p>1 dead letter goes back to the queue, with all its attempts.</p>,
                  verb: "Redrive 1 job",
                  act: async () => {
                    await call("POST", queuePath(queue, "/redrive"), { body: { jobs: [job.job_id] } });
                    asked.again();
                    return "1 job is queued again.";
                  },
                })
              }
            >
              Redrive
            </button>
          )}
          {alive && live.may("cancel") && !OVER.includes(job.state) && (
            <button
              type="button"
              onClick={() =>
                ask({
                  title: "Cancel this job?",
                  text: (
                    <p>
                      {job.state === "processing" ? "1 running job: its worker is asked to stop." : "1 waiting job will not run."}
                    </p>
                  ),
                  verb: "Cancel 1 job",
                  danger: true,
                  act: async () => {
                    const told = await call<{ status: string }>("DELETE", jobPath(queue, job.job_id));
                    asked.again();
                    return told.status === "cancelled" ? "1 job is cancelled." : `The job is ${told.status}; its worker is told.`;
                  },
                })
              }
            >
              Cancel
            </button>
          )}
          {alive && live.may("purge") && (
            <button
              type="button"
              class="danger"
              onClick={() =>
                ask({
                  title: "Erase this job for good?",
                  text: <p>1 job with its contents disappears from the queue, its archive and its backups. Nothing brings it back.</p>,
                  verb: "Erase 1 job",
                  danger: true,
                  act: async () => {
                    await call("POST", queuePath(queue, "/purge"), { body: { jobs: [job.job_id] } });
                    location.hash = linkTo(queue, "jobs");
                    return "1 job is erased.";
                  },
                })
              }
            >
              Erase
            </button>
          )}
        </div>
      </header>
      {asked.error && <Trouble text={asked.error.message} />}
      <dl class="now">
        <dt>Now</dt>
        <dd>{story.now}</dd>
        <dt>Next</dt>
        <dd>{story.next}</dd>
      </dl>
      <Timeline job={job} />
      <div class="halves">
        <div>
          <Section title="Why">
            <ol class="story">
              {story.steps.map((step, at) => (
                <li key={at}>
                  <time dateTime={step.at} title={moment(step.at)}>
                    {moment(step.at).replace(" UTC", "")}
                  </time>
                  <span class="break">{step.what}</span>
                </li>
              ))}
            </ol>
          </Section>
          <Contents queue={queue} job={job} />
        </div>
        <div>
          <Facts queue={queue} job={job} />
        </div>
      </div>
    </article>
  );
}

// ── The timeline ─────────────────────────────────────────────────────────────
interface Span {
  kind: string;
  from: number;
  to: number;
  text: string;
  short: string; // where there is room for it
}

const LABELLED = 0.09; // of the whole: what is shorter has no room for words

export function spansOf(job: Job, now: number): Span[] {
  const spans: Span[] = [];
  let at = unix(job.enqueued_at);
  const add = (kind: string, to: number, word: string, who = ""): void => {
    const text = `${word} ${duration(to - at)}`;
    if (to > at || kind !== "wait") spans.push({ kind, from: at, to: Math.max(to, at), text: who ? `${who}: ${text}` : text, short: text });
    at = Math.max(to, at);
  };
  for (const each of job.attempts) {
    add("wait", unix(each.started_at), "waited");
    add(each.outcome, unix(each.ended_at), `${each.outcome} after`, each.worker);
  }
  if (job.state === "processing" && job.started_at) {
    add("wait", unix(job.started_at), "waited");
    add("running", now, "runs for", job.worker ?? "");
  } else if (!OVER.includes(job.state)) {
    add("wait", now, "waits for");
    if (job.due_at && unix(job.due_at) > now) add("ahead", unix(job.due_at), "due in");
  }
  return spans;
}

function Timeline({ job }: { job: Job }): JSX.Element {
  const now = useClock();
  const spans = spansOf(job, now);
  if (spans.length === 0) return <Empty>Nothing is known of its attempts.</Empty>;
  const from = spans[0]!.from;
  const last = spans.at(-1)!;
  const whole = Math.max(last.to - from, 0.001);
  const missed = job.run - job.attempts.length - (job.state === "processing" ? 1 : 0);
  const over = OVER.includes(job.state);
  return (
    <figure class="timeline">
      <figcaption>
        <span class="title">Timeline</span>
        <span class="dim">
          {over ? `${duration(last.to - from)} from its enqueue to its end` : `enqueued ${duration(now - from)} ago`}
          {missed > 0 ? `; ${plural(missed, "earlier run")} not shown` : ""}
        </span>
      </figcaption>
      <ol>
        {spans.map((each, at) => {
          const share = (each.to - each.from) / whole;
          return (
            // what is short is seen, too
            <li key={at} class={each.kind} style={{ flexGrow: Math.max(share, 0.012) }} title={each.text}>
              <span class={share < LABELLED ? "hidden" : ""}>{share < LABELLED ? each.text : each.short}</span>
            </li>
          );
        })}
      </ol>
      <div class="ends">
        <span>{moment(from)}</span>
        <span>{over || last.kind === "ahead" ? moment(last.to) : "now"}</span>
      </div>
    </figure>
  );
}

function Facts({ queue, job }: { queue: string; job: Job }): JSX.Element {
  const like = (name: string, value: string): string => `${linkTo(queue, "jobs")}?${name}=${encodeURIComponent(value)}`;
  const facts: [string, JSX.Element | string | number | null | undefined][] = [
    ["Job id", <span class="mono break">{job.job_id}</span>],
    ["Client’s id", job.id ? <span class="mono break">{job.id}</span> : null],
    ["Kind", job.kind ? <a href={like("kind", job.kind)}>{job.kind}</a> : null],
    ["Group", job.group ? <a href={like("group", job.group)}>{job.group}</a> : null],
    ["Batch", job.batch ? <a class="mono" href={like("batch", job.batch)}>{job.batch}</a> : null],
    ["Priority", job.priority],
    ["Attempt", `${job.attempt}${job.max_attempts ? ` of ${job.max_attempts}` : ""}`],
    ["Enqueued", <Ago at={job.enqueued_at} />],
    ["Due", job.due_at ? <Ago at={job.due_at} /> : null],
    ["Worker", job.state === "processing" ? job.worker : null],
    ["Progress", job.progress != null ? `${Math.round(job.progress * 100)}% ${job.note ?? ""}` : null],
    ["Heartbeat", job.heartbeat_at ? <Ago at={job.heartbeat_at} /> : null],
    ["Lease ends", job.state === "processing" && job.expires_at ? <Ago at={job.expires_at} /> : null],
    ["Finished", job.finished_at ? <Ago at={job.finished_at} /> : null],
    ["Payload", bytes(job.payload_bytes)],
    ["Parent", job.parent ? <a class="mono break" href={linkTo(queue, "job", job.parent)}>{job.parent}</a> : null],
    ["Replaced by", job.replaced_by ? <a class="mono break" href={linkTo(queue, "job", job.replaced_by)}>{job.replaced_by}</a> : null],
  ];
  const headers = Object.entries(job.headers ?? {});
  return (
    <Section title="Facts">
      <dl class="facts">
        {facts
          .filter(([, value]) => value != null && value !== "")
          .map(([name, value]) => (
            <FactRow key={name} name={name} value={value} />
          ))}
        {job.follow_ups?.length ? (
          <FactRow
            name="Follow-ups"
            value={
              <>
                {job.follow_ups.map((each) => (
                  <a key={each} class="mono break block" href={linkTo(queue, "job", each)}>
                    {each}
                  </a>
                ))}
              </>
            }
          />
        ) : null}
      </dl>
      {headers.length > 0 && (
        <>
          <h3>Headers</h3>
          <dl class="facts">
            {headers.map(([name, value]) => (
              <FactRow
                key={name}
                name={name}
                value={
                  <a class="mono" href={like("header", `${name}=${value}`)}>
                    {value || "“”"}
                  </a>
                }
              />
            ))}
          </dl>
        </>
      )}
    </Section>
  );
}

function FactRow({ name, value }: { name: string; value: JSX.Element | string | number | null | undefined }): JSX.Element {
  return (
    <>
      <dt class="break">{name}</dt>
      <dd class="break">{value}</dd>
    </>
  );
}

function Contents({ queue, job }: { queue: string; job: Job }): JSX.Element {
  const [found, setFound] = useState<Job | null>(null);
  const [error, setError] = useState("");
  const show = async (): Promise<void> => {
    setError("");
    try {
      setFound(await call<Job>("GET", jobPath(queue, job.job_id), { query: { include: "payload,result,traceback" } }));
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  const parts: [string, unknown][] = found
    ? [
        ["Payload", found.payload],
        ["Result", found.result],
        ["Traceback", found.traceback],
        ...Object.entries(found.encoded ?? {}).map(([name, each]): [string, unknown] => [`${name}, as ${each.codec}`, each.data]),
      ]
    : [];
  const missing = Object.entries(found?.left_out ?? {});
  const there = parts.filter(([, value]) => value !== undefined && value !== null);
  return (
    <Section title="Contents" aside={bytes(job.payload_bytes)}>
      {error && <Trouble text={error} />}
      {!found ? (
        <button type="button" onClick={() => void show()}>
          Show payload and result
        </button>
      ) : there.length + missing.length === 0 ? (
        <Empty>It has no payload, and no result.</Empty>
      ) : (
        <>
          {there.map(([name, value]) => (
            <Content key={name} name={name} value={value} />
          ))}
          {missing.map(([name, why]) => (
            <p key={name} class="content dim">
              No {name}: {why}
            </p>
          ))}
        </>
      )}
    </Section>
  );
}

function Content({ name, value }: { name: string; value: unknown }): JSX.Element {
  const json = typeof value !== "string";
  const text = json ? JSON.stringify(value, null, 2) : value;
  return (
    <div class="content">
      <header>
        <h3>{name}</h3>
        <button type="button" class="quiet dim" onClick={() => void done(navigator.clipboard.writeText(text), `${name} copied.`)}>
          Copy
        </button>
      </header>
      <pre tabIndex={0} aria-label={name}>
        <code>{json && text.length < COLOURED_MAX ? coloured(text) : text}</code>
      </pre>
    </div>
  );
}

const COLOURED_MAX = 50_000;
const TOKENS = /("(?:\\.|[^"\\])*")(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

/** JSON with its names and values in colours of their own. */
function coloured(text: string): (JSX.Element | string)[] {
  const found: (JSX.Element | string)[] = [];
  let at = 0;
  for (const each of text.matchAll(TOKENS)) {
    const [whole, quoted, colon] = each;
    const token = quoted ?? whole;
    found.push(text.slice(at, each.index), <span class={colon ? "name" : quoted ? "text" : "value"}>{token}</span>);
    at = each.index + token.length;
  }
  return [...found, text.slice(at)];
}
