// Dead letters by the error they died of, and what to do with them.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call, Failure, queuePath } from "./api";
import { count, plural } from "./format";
import { linkTo, state, useAsked, useLive } from "./live";
import type { DeadGroup, Letter } from "./types";
import { Ago, Empty, Trouble, type Ask, type Question } from "./ui";

const PAGE = 50;
const PURGE_MAX = 500; // in one request
const AGAIN_MS = 60_000; // times the shards, and longer with more letters: all of them are read
const FEW = 4_000;

interface Which {
  fingerprint?: string;
}

interface Letters {
  jobs: Letter[];
  cursor?: string | null;
}

const redrive = (queue: string, which: Which, dry: boolean): Promise<{ jobs: number; more?: boolean }> =>
  call("POST", queuePath(queue, "/redrive"), { body: { ...which, dry_run: dry } });

async function redriveAll(queue: string, which: Which, progress: (text: string) => void): Promise<string> {
  let moved = 0;
  for (;;) {
    const told = await redrive(queue, which, false);
    moved += told.jobs;
    if (!told.more || told.jobs === 0) return `${plural(moved, "job")} queued again.`;
    progress(`${plural(moved, "job")} queued again so far…`);
  }
}

async function purgeAll(queue: string, which: Which, progress: (text: string) => void): Promise<string> {
  let erased = 0;
  for (;;) {
    const page = await call<Letters>("GET", queuePath(queue, "/dead"), { query: { ...which, limit: PURGE_MAX } });
    if (page.jobs.length === 0 && !page.cursor) return `${plural(erased, "job")} erased.`;
    let jobs = page.jobs;
    let cursor = page.cursor;
    while (jobs.length === 0 && cursor) {
      const next: Letters = await call("GET", queuePath(queue, "/dead"), { query: { ...which, limit: PURGE_MAX, cursor } });
      jobs = next.jobs;
      cursor = next.cursor;
    }
    if (jobs.length === 0) return `${plural(erased, "job")} erased.`;
    const told = await call<{ jobs: string[] }>("POST", queuePath(queue, "/purge"), {
      body: { jobs: jobs.map((each) => each.job_id), dead_only: true },
    });
    if (told.jobs.length === 0) throw new Failure("None of them could be erased just now. Try again in a while.", 0, "");
    erased += told.jobs.length;
    progress(`${plural(erased, "job")} erased so far…`);
  }
}

export function Dead({ queue, ask }: { queue: string; ask: Ask }): JSX.Element {
  const live = useLive();
  const { shards = 1, failed = 0 } = live.rows.get(queue) ?? {};
  const asked = useAsked(
    () => call<{ groups: DeadGroup[]; more?: boolean }>("GET", queuePath(queue, "/dead/groups")),
    queue,
    AGAIN_MS * shards * Math.max(1, Math.ceil(failed / FEW)),
    failed,
  );
  const groups = asked.value?.groups ?? [];
  const all = groups.reduce((n, each) => n + each.count, 0);

  /** Count once more, so that the number is the one that is meant. */
  const counted = async (which: Which, question: (n: number) => Question): Promise<void> => {
    try {
      const { jobs } = await redrive(queue, which, true);
      if (jobs === 0) {
        state.toast("There are none any more.");
        asked.again();
      } else ask(question(jobs));
    } catch (error) {
      state.toast(error instanceof Error ? error.message : String(error), true);
    }
  };
  const askRedrive = (which: Which, of: string): void => {
    void counted(which, (n) => ({
      title: `Queue ${of} again?`,
      text: <p>{plural(n, "dead letter")} of {queue} will be queued again, each with all its attempts.</p>,
      verb: `Redrive ${plural(n, "job")}`,
      act: async (progress) => {
        const said = await redriveAll(queue, which, progress);
        asked.again();
        return said;
      },
    }));
  };
  const askPurge = (which: Which, n: number, of: string): void => {
    ask({
      title: `Erase ${of} for good?`,
      text: (
        <p>
          {plural(n, "dead letter")} of {queue} will be erased, from the queue, its archive and its backups. Nothing brings
          them back.
        </p>
      ),
      verb: `Erase ${plural(n, "job")}`,
      danger: true,
      act: async (progress) => {
        const said = await purgeAll(queue, which, progress);
        asked.again();
        return said;
      },
    });
  };
  if (!asked.value) {
    return asked.error ? <Trouble text={asked.error.message} /> : <p class="empty">Reading…</p>;
  }
  if (groups.length === 0) return <Empty>No dead letters. Jobs that fail for good end up here.</Empty>;
  return (
    <>
      {asked.error && <Trouble text={asked.error.message} />}
      <div class="summary">
        <p>
          <strong>{plural(all, "dead letter")}</strong> of {plural(groups.length, "error")}
          {asked.value.more ? ", and others of rarer ones" : ""}{" "}
          {failed !== all && (
            <button type="button" class="quiet dim" onClick={asked.again}>
              {failed > all ? `${count(failed - all)} more since, read again` : "Fewer by now, read again"}
            </button>
          )}
        </p>
        <div class="buttons">
          {live.may("redrive") && (
            <button type="button" class="primary" onClick={() => askRedrive({}, "all dead letters")}>
              Redrive all
            </button>
          )}
          {live.may("purge") && (
            <button type="button" class="danger" onClick={() => askPurge({}, all, "all dead letters")}>
              Erase all
            </button>
          )}
        </div>
      </div>
      <ul class="cards">
        {groups.map((each) => (
          <Death
            key={each.fingerprint}
            queue={queue}
            group={each}
            redrive={() => askRedrive({ fingerprint: each.fingerprint }, "those of this error")}
            purge={() => askPurge({ fingerprint: each.fingerprint }, each.count, "those of this error")}
          />
        ))}
      </ul>
    </>
  );
}

function Death({
  queue,
  group,
  redrive,
  purge,
}: {
  queue: string;
  group: DeadGroup;
  redrive: () => void;
  purge: () => void;
}): JSX.Element {
  const live = useLive();
  const [open, setOpen] = useState(false);
  const kinds = Object.entries(group.kinds).sort((a, b) => b[1] - a[1]);
  return (
    <li class="card death">
      <div class="head">
        <strong class="count">{count(group.count)}</strong>
        <div class="what">
          <h2 class="break mono">
            {group.example.error_type ? `${group.example.error_type}: ` : ""}
            {group.error}
          </h2>
          <p class="dim">
            last <Ago at={group.last_at} />, first <Ago at={group.first_at} />
            {kinds.some(([kind]) => kind) &&
              ` · ${kinds
                .slice(0, 4)
                .map(([kind, n]) => `${kind || "no kind"} ${count(n)}`)
                .join(", ")}`}
          </p>
        </div>
        <div class="buttons">
          <button type="button" class="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Hide" : "Show"} jobs
          </button>
          {live.may("redrive") && (
            <button type="button" onClick={redrive}>
              Redrive
            </button>
          )}
          {live.may("purge") && (
            <button type="button" class="danger" onClick={purge}>
              Erase
            </button>
          )}
        </div>
      </div>
      {open && <LetterList queue={queue} fingerprint={group.fingerprint} />}
    </li>
  );
}

function LetterList({ queue, fingerprint }: { queue: string; fingerprint: string }): JSX.Element {
  const [pages, setPages] = useState<Letters[]>([]);
  const ask = (cursor?: string): Promise<Letters> =>
    call<Letters>("GET", queuePath(queue, "/dead"), { query: { fingerprint, limit: PAGE, cursor } });
  const first = useAsked(() => ask(), `${queue}/${fingerprint}`);
  const all = [...(first.value ? [first.value] : []), ...pages];
  const letters = all.flatMap((each) => each.jobs);
  const cursor = all.at(-1)?.cursor;
  if (first.error) return <Trouble text={first.error.message} />;
  if (!first.value) return <p class="empty">Reading…</p>;
  return (
    <>
      <table class="plain">
        <thead>
          <tr>
            <th>Job</th>
            <th>Error</th>
            <th class="number">Attempts</th>
            <th class="number">Failed</th>
          </tr>
        </thead>
        <tbody>
          {letters.map((each) => (
            <tr key={each.job_id}>
              <th scope="row" class="break">
                <a class="mono" href={linkTo(queue, "job", each.job_id)}>
                  {each.id ?? each.job_id}
                </a>
              </th>
              <td class="break">{each.error}</td>
              <td class="number">{each.attempts}</td>
              <td class="number">
                <Ago at={each.failed_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {cursor && (
        <div class="more">
          <button
            type="button"
            class="small"
            onClick={() => void ask(cursor).then((page) => setPages([...pages, page]), (error: unknown) => state.toast(String(error), true))}
          >
            More
          </button>
        </div>
      )}
    </>
  );
}
