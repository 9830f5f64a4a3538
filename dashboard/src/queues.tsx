// All queues at a glance.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { duration, plural, rate, short } from "./format";
import { linkTo, useClock, useLive } from "./live";
import type { Row } from "./types";
import { Ago, Empty, Figure, Spark } from "./ui";

const OLD_S = 600; // waiting that long while nothing completes is worth a word
const FULL = 0.8; // of a limit of the head

export const waiting = (row: Row): number => (row.queued ?? 0) + (row.scheduled ?? 0) + (row.failing ?? 0);
const seenAgo = (row: Row, now: number): number => (row.seen ? Math.max(0, now - row.seen) : 0);
export const oldest = (row: Row, now: number): number | null =>
  row.oldest_seconds == null ? null : row.oldest_seconds + seenAgo(row, now);

/** What is not as it should be, in words; the worst first. */
export function worries(row: Row, now: number): string[] {
  const found: string[] = [];
  if (row.error) found.push(row.error);
  if (row.rates && row.rates.troubled > 0) {
    found.push(`${plural(Math.max(1, Math.round(row.rates.troubled * 60)), "attempt")} a minute fail`);
  }
  if (row.paused && (row.queued ?? 0) > 0) found.push(`paused with ${plural(row.queued ?? 0, "job")} waiting`);
  const age = oldest(row, now);
  if (!row.paused && age != null && age > OLD_S && row.rates?.out === 0 && (row.processing ?? 0) === 0) {
    found.push(`nobody works; the oldest job waits for ${duration(age)}`);
  }
  if (row.fullest && row.fullest[1] >= FULL) {
    found.push(`${row.fullest[0].replaceAll("_", " ")} at ${Math.round(row.fullest[1] * 100)}% of its room`);
  }
  return found;
}

type Order = "name" | "waiting" | "oldest" | "running" | "in" | "out" | "dead";

const ORDERS: Record<Order, (row: Row, now: number) => number | string> = {
  name: (row) => row.queue,
  waiting: (row) => -waiting(row),
  oldest: (row, now) => -(oldest(row, now) ?? -1),
  running: (row) => -(row.processing ?? 0),
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
  const alarmed = all.map((row) => ({ row, said: worries(row, now) })).filter((each) => each.said.length);
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
            <li key={row.queue}>
              <a href={linkTo(row.queue)}>{row.queue}</a> <span>{said.join("; ")}</span>
            </li>
          ))}
          {alarmed.length > 6 && <li class="dim">and {plural(alarmed.length - 6, "other queue")}</li>}
        </ul>
      )}
      <table class="queues">
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
            <Head name="dead" order={order} set={setOrder} text="Dead" number />
            <th class="number">Seen</th>
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
  const failing = row.failing ?? 0;
  return (
    <tr>
      <th scope="row">
        <a class="row" href={linkTo(row.queue)}>
          {row.queue}
        </a>
        {row.paused && <span class="mark paused">paused</span>}
        {row.error && <span class="mark failed">unreadable</span>}
      </th>
      <td class="number" data-name="waiting">
        <span class="strong">{short(waiting(row))}</span>
        {failing > 0 && (
          <span class="under warn" title="Failed attempts that are tried again">
            {short(failing)} retrying
          </span>
        )}
      </td>
      <td class="trend">
        <Spark points={row.spark.map((each) => each[1])} />
      </td>
      <td class="number" data-name="oldest">
        {duration(oldest(row, now))}
      </td>
      <td class="number" data-name="running">
        {short(row.processing)}
        {row.max_running ? <span class="dim"> of {short(row.max_running)}</span> : null}
      </td>
      <td class="number" data-name="in">
        {rate(row.rates?.in)}
      </td>
      <td class="number" data-name="completed">
        {rate(row.rates?.out)}
      </td>
      <td class="number" data-name="dead">
        {row.failed ? (
          <a class="bad" href={linkTo(row.queue, "dead")} aria-label={`${row.failed} dead letters of ${row.queue}`}>
            {short(row.failed)}
          </a>
        ) : (
          <span class="dim">0</span>
        )}
      </td>
      <td class="number dim seen" data-name="seen">
        <Ago at={row.seen} />
      </td>
    </tr>
  );
}
