// All queues at a glance.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { duration, plural, rate, short } from "./format";
import { linkTo, useClock, useLive } from "./live";
import type { Detail, Row } from "./types";
import { Ago, Empty, Figure, Num, Spark } from "./ui";
import { deserted, lost } from "./workers";

const OLD_S = 600; // waiting that long while nothing completes is worth a word
const FULL = 0.8; // of a limit of the head
const FAILING = 0.05; // of the attempts: fewer failures are everyday life
const HALF = 0.5;
const ALONE_S = 20; // how old the oldest job is before it counts that nobody is there: who claims now and then registers nowhere
const STALE_S = 60; // how long ago a queue was looked at is told from then on

export const waiting = (row: Row): number => (row.queued ?? 0) + (row.scheduled ?? 0) + (row.failing ?? 0);
const seenAgo = (row: Row, now: number): number => (row.seen ? Math.max(0, now - row.seen) : 0);
export const oldest = (row: Row, now: number): number | null =>
  row.oldest_seconds == null ? null : row.oldest_seconds + seenAgo(row, now);

export interface Worry {
  text: string;
  grave: boolean;
}

/** What is not as it should be, in words; the worst first. Who works on a queue, its own page knows alone. */
export function worries(row: Row, now: number, detail: Detail | null = null): Worry[] {
  const found: Worry[] = [];
  const add = (text: string, grave = false): void => void found.push({ text, grave });
  const { rates } = row;
  if (row.error) add(row.error, true);
  const age = oldest(row, now);
  const stuck = !row.paused && age != null && age > OLD_S && rates?.out === 0 && (row.processing ?? 0) === 0;
  const alone = deserted(row, detail);
  if (alone == null ? stuck : alone && age != null && age > ALONE_S) add(`nobody works on it; the oldest job waits for ${duration(age)}`, true);
  else if (stuck) add(`no job runs; the oldest one waits for ${duration(age)}`, true);
  const gone = lost(detail);
  if (gone > 0) add(`${plural(gone, "worker is", "workers are")} lost`, true);
  if (rates && rates.troubled > 0) {
    const share = rates.troubled / (rates.troubled + rates.out);
    const many = plural(Math.max(1, Math.round(rates.troubled * 60)), "attempt");
    if (share >= FAILING) add(`${Math.round(share * 100)}% of the attempts fail (${many} a minute)`, share >= HALF);
  }
  if (row.fullest && row.fullest[1] >= FULL) {
    add(`${row.fullest[0].replaceAll("_", " ")} at ${Math.round(row.fullest[1] * 100)}% of its room`, true);
  }
  if (row.paused && (row.queued ?? 0) > 0) add(`paused with ${plural(row.queued ?? 0, "job")} waiting`);
  return found;
}

type Order = "name" | "waiting" | "oldest" | "running" | "failing" | "in" | "out" | "dead";

const ORDERS: Record<Order, (row: Row, now: number) => number | string> = {
  name: (row) => row.queue,
  waiting: (row) => -waiting(row),
  oldest: (row, now) => -(oldest(row, now) ?? -1),
  running: (row) => -(row.processing ?? 0),
  failing: (row) => -(row.failing ?? 0),
  in: (row) => -(row.rates?.in ?? 0),
  out: (row) => -(row.rates?.out ?? 0),
  dead: (row) => -(row.failed ?? 0),
};

export function Queues({ wanted }: { wanted: string }): JSX.Element {
  const live = useLive();
  const now = useClock();
  const [order, setOrder] = useState<Order>("name");
  const all = [...live.rows.values()];
  const rows = useMemo(() => {
    const text = wanted.trim().toLowerCase();
    const key = ORDERS[order];
    return all
      .filter((row) => !text || row.queue.toLowerCase().includes(text))
      .map((row) => ({ row, by: key(row, now) }))
      .sort((a, b) => (a.by < b.by ? -1 : a.by > b.by ? 1 : a.row.queue < b.row.queue ? -1 : 1))
      .map((each) => each.row);
  }, [all, wanted, order]);

  if (!live.listed) {
    return (
      <main>
        <h1 class="hidden">Queues</h1>
        <p class="empty" role="status">
          {live.trouble ? "Nothing is known of the queues yet." : "Reading the queues…"}
        </p>
      </main>
    );
  }
  if (all.length === 0) {
    return (
      <main>
        <h1 class="hidden">Queues</h1>
        <div class="card welcome">
          <h2>No queues here yet</h2>
          <p>A queue begins with its first job:</p>
          <pre>
            <code>osqueue enqueue {live.me?.place ?? "ADDRESS"} emails --payload '{"{"}"to": "ada@example.com"{"}"}'</code>
          </pre>
          <p class="dim">It shows up here by itself.</p>
        </div>
      </main>
    );
  }
  const sum = (of: (row: Row) => number): number => all.reduce((n, row) => n + of(row), 0);
  const dead = sum((row) => row.failed ?? 0);
  const alarmed = all
    .map((row) => ({ row, said: worries(row, now) }))
    .filter((each) => each.said.length)
    .sort((a, b) => Number(b.said[0]!.grave) - Number(a.said[0]!.grave) || (a.row.queue < b.row.queue ? -1 : 1));
  return (
    <main>
      <h1 class="hidden">Queues</h1>
      <dl class="figures">
        <Figure name="Waiting" value={short(sum(waiting))} />
        <Figure name="Running" value={short(sum((row) => row.processing ?? 0))} />
        <Figure name="In" value={rate(sum((row) => row.rates?.in ?? 0))} />
        <Figure name="Completed" value={rate(sum((row) => row.rates?.out ?? 0))} />
        <Figure name="Failing" value={rate(sum((row) => row.rates?.troubled ?? 0))} />
        <Figure name="Dead letters" value={short(dead)} bad={dead > 0} />
      </dl>
      {alarmed.length > 0 && (
        <ul class="worries" aria-label="What needs attention">
          {alarmed.slice(0, 6).map(({ row, said }) => (
            <li key={row.queue} class={said[0]!.grave ? "grave" : ""}>
              <a href={linkTo(row.queue)}>{row.queue}</a> <span>{said.map((each) => each.text).join("; ")}</span>
            </li>
          ))}
          {alarmed.length > 6 && <li class="dim rest">and {plural(alarmed.length - 6, "other queue")}</li>}
        </ul>
      )}
      <table class="queues stack">
        <thead>
          <tr>
            <Head name="name" order={order} set={setOrder} text="Queue" />
            <Head name="waiting" order={order} set={setOrder} text="Waiting" number />
            <th class="trend">
              <span class="hidden">Trend of what waits</span>
            </th>
            <Head name="oldest" order={order} set={setOrder} text="Oldest" number />
            <Head name="running" order={order} set={setOrder} text="Running" number />
            <Head name="in" order={order} set={setOrder} text="In" number />
            <Head name="out" order={order} set={setOrder} text="Completed" number />
            <th class="trend">
              <span class="hidden">Trend of what completes</span>
            </th>
            <Head name="failing" order={order} set={setOrder} text="Retrying" number />
            <Head name="dead" order={order} set={setOrder} text="Dead" number />
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Line key={row.queue} row={row} now={now} />
          ))}
        </tbody>
      </table>
      {rows.length === 0 && <Empty>No queue has “{wanted}” in its name.</Empty>}
    </main>
  );
}

function Head({
  name,
  order,
  set,
  text,
  number,
}: {
  name: Order;
  order: Order;
  set: (order: Order) => void;
  text: string;
  number?: boolean;
}): JSX.Element {
  const on = order === name;
  return (
    <th class={number ? "number" : ""} aria-sort={on ? (name === "name" ? "ascending" : "descending") : "none"}>
      <button type="button" class="sort" onClick={() => set(name)}>
        {text}
        {on && <span aria-hidden="true"> {name === "name" ? "↑" : "↓"}</span>}
      </button>
    </th>
  );
}

function Line({ row, now }: { row: Row; now: number }): JSX.Element {
  const age = oldest(row, now);
  return (
    <tr>
      <th scope="row">
        <a class="row" href={linkTo(row.queue)}>
          {row.queue}
        </a>
        {row.paused && <span class="mark paused">paused</span>}
        {row.error && <span class="mark failed">unreadable</span>}
        {seenAgo(row, now) > STALE_S && (
          <span class="seen dim">
            seen <Ago at={row.seen} />
          </span>
        )}
      </th>
      <td class="number strong" data-name="waiting">
        <Num of={waiting(row)} />
      </td>
      <td class="trend depth">
        <Spark points={row.spark.map((each) => each[1])} />
      </td>
      <td class="number" data-name="oldest">
        <Num of={age} text={duration(age)} />
      </td>
      <td class="number" data-name="running">
        <Num of={row.processing} />
        {row.max_running ? <span class="dim"> of {short(row.max_running)}</span> : null}
      </td>
      <td class="number" data-name="in">
        <Num of={row.rates?.in} text={rate(row.rates?.in)} />
      </td>
      <td class="number" data-name="completed">
        <Num of={row.rates?.out} text={rate(row.rates?.out)} />
      </td>
      <td class="trend">
        <Spark points={row.spark.map((each) => each[2])} second />
      </td>
      <td class={`number warn ${row.failing ? "" : "none"}`} data-name="retrying">
        <Num of={row.failing} />
      </td>
      <td class={`number ${row.failed ? "" : "none"}`} data-name="dead">
        {row.failed ? (
          <a class="bad" href={linkTo(row.queue, "dead")} aria-label={`${row.failed} dead letters of ${row.queue}`}>
            {short(row.failed)}
          </a>
        ) : (
          <span class="dim">0</span>
        )}
      </td>
    </tr>
  );
}
