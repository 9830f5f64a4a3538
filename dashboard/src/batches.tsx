// The batches of a queue: how far each is, and what comes of its end.

import type { JSX } from "preact";
import { call, queuePath, segment } from "./api";
import { cancelMany } from "./cancel";
import { count, plural } from "./format";
import { linkTo, useAsked, useLive } from "./live";
import type { Batch } from "./types";
import { Ago, Empty, Trouble, type Ask } from "./ui";

const AGAIN_MS = 10_000; // times the shards

export function Batches({ queue, ask }: { queue: string; ask: Ask }): JSX.Element {
  const live = useLive();
  const { shards = 1, commits = 0 } = live.rows.get(queue) ?? {};
  const asked = useAsked(
    () => call<{ batches: Batch[] }>("GET", queuePath(queue, "/batches")),
    queue,
    AGAIN_MS * shards,
    commits,
  );
  if (!asked.value) {
    return asked.error ? <Trouble text={asked.error.message} /> : <p class="empty">Reading…</p>;
  }
  const { batches } = asked.value;
  if (batches.length === 0) return <Empty>No batches. q.batch() opens one: jobs whose common end makes another job.</Empty>;
  const order = (each: Batch): number => (each.state === "over" ? 1 : 0);
  const newest = [...batches].reverse().sort((a, b) => order(a) - order(b));
  const open = batches.filter((each) => each.state !== "over").length;
  return (
    <>
      {asked.error && <Trouble text={asked.error.message} />}
      <p class="summary">
        <span>
          <strong>{count(open)}</strong> of {plural(batches.length, "batch", "batches")} not over yet
        </span>
      </p>
      <ul class="cards">
        {newest.map((each) => (
          <BatchCard key={each.batch_id} queue={queue} batch={each} ask={ask} again={asked.again} />
        ))}
      </ul>
    </>
  );
}

function BatchCard({ queue, batch, ask, again }: { queue: string; batch: Batch; ask: Ask; again: () => void }): JSX.Element {
  const live = useLive();
  const { total, left, completed, failed, cancelled } = batch;
  const name = batch.name ?? batch.batch_id;
  const done = total - left;
  const jobs = (state = ""): string => `${linkTo(queue, "jobs")}?batch=${batch.batch_id}${state && `&state=${state}`}`;
  const seal = (): void =>
    ask({
      title: `Seal ${name}?`,
      text: <p>No more jobs join it from outside, for good. {left ? `It is over when none of its ${plural(left, "job")} is left.` : "It is over at once."}</p>,
      verb: "Seal 1 batch",
      act: async () => {
        await call("PATCH", queuePath(queue, `/batches/${segment(batch.batch_id)}`), { body: { sealed: true } });
        again();
        return `${name} is sealed.`;
      },
    });
  return (
    <li class="card batch">
      <div class="head">
        <h2 class="break">
          <a class="row" href={jobs()}>
            {name}
          </a>
          <span class={`mark ${batch.state}`}>{batch.state}</span>
        </h2>
        <div class="buttons">
          {batch.state === "open" && live.may("change_batch") && (
            <button type="button" class="small" onClick={seal}>
              Seal…
            </button>
          )}
          {left > 0 && live.may("cancel_many") && (
            <button
              type="button"
              class="small danger"
              onClick={() => void cancelMany(queue, { batch: batch.batch_id }, name, ask).then(again)}
            >
              Cancel…
            </button>
          )}
        </div>
      </div>
      <div
        class="parts"
        role="meter"
        aria-label={`How far ${name} is`}
        aria-valuenow={done}
        aria-valuemin={0}
        aria-valuemax={Math.max(total, 1)}
        aria-valuetext={`${count(done)} of ${plural(total, "job")} have ended`}
      >
        {(
          [
            ["completed", completed],
            ["failed", failed],
            ["cancelled", cancelled],
            ["", left],
          ] as const
        ).map(([part, n]) => n > 0 && <i key={part} class={part} style={{ flexGrow: n }} />)}
      </div>
      <ul class="told">
        <li>
          <b>{count(done)}</b> of <b>{count(total)}</b> ended
        </li>
        <li>
          <b>{count(left)}</b> left
        </li>
        <li>
          <b>{count(completed)}</b> completed
        </li>
        <li class={failed ? "bad" : ""}>{failed ? <a href={jobs("failed")}>{count(failed)} dead</a> : <><b>0</b> dead</>}</li>
        <li>
          <b>{count(cancelled)}</b> cancelled
        </li>
        <li class="dim">
          opened <Ago at={batch.created_at} />
          {batch.ended_at && (
            <>
              , over <Ago at={batch.ended_at} />
            </>
          )}
        </li>
      </ul>
      {(batch.on_complete || batch.on_success) && (
        <p class="dim break">
          {batch.on_complete && `When all have ended comes a job of kind ${batch.on_complete.kind || "“”"}. `}
          {batch.on_success && `When all are completed comes one of kind ${batch.on_success.kind || "“”"}.`}
        </p>
      )}
    </li>
  );
}
