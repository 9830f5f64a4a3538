// The limits of a queue and of its kinds, what is used of them, and what holds for a kind alone.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { changedOf, Fields, OF_KINDS, shown, useTexts, wishOf, type Field, type Values } from "./fields";
import { count, duration, plural, starts, unix } from "./format";
import { linkTo, state, useClock, useLive } from "./live";
import type { Detail, LimitUse } from "./types";
import { Ago, Bar, Dialog, done, Empty, Section } from "./ui";

const LIMITS = ["max_running", "rate", "burst"]; // beside those of the queue

const named = (kind: string): string => kind || "without a kind";

/** What each kind has of its own. */
const ownOf = (detail: Detail): Record<string, Values> => detail.stats.settings["kinds"] as Record<string, Values>;

function ownWords(own: Values): string {
  return OF_KINDS.filter((field) => own[field.name] != null && !["max_running", "rate"].includes(field.name)) // they have columns
    .map((field) => `${field.text.toLowerCase()} ${shown(field, own[field.name])}`)
    .join(", ");
}

export function Kinds({ queue, detail }: { queue: string; detail: Detail | null }): JSX.Element {
  const live = useLive();
  const [editing, edit] = useState<string | null>(null);
  const [adding, add] = useState(false);
  const flow = detail?.flow;
  if (!detail || !flow) {
    return (
      <Section title="Limits and kinds">
        <Empty>Reading…</Empty>
      </Section>
    );
  }
  const own = ownOf(detail);
  const kinds = [...new Set([...Object.keys(flow.kinds), ...Object.keys(own)])].sort();
  const may = live.may("configure");
  const idle: LimitUse = { running: 0, max_running: null, rate: null, paused: false, paused_until: null };
  const steer = (kind: string, paused: boolean): void => {
    void done(state.change(queue, { kinds: { [kind]: { paused } } }), `${named(kind)} ${paused ? "waits" : "goes on"}.`);
  };
  return (
    <Section
      title="Limits and kinds"
      aside={
        may && (
          <button type="button" class="small" onClick={() => add(true)}>
            Set up a kind…
          </button>
        )
      }
    >
      <table class="plain stack">
        <thead>
          <tr>
            <th>Kind</th>
            <th class="number">Running</th>
            <th class="meter">
              <span class="hidden">Used</span>
            </th>
            <th class="number">Rate</th>
            {may && (
              <th>
                <span class="hidden">Change</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">all of the queue</th>
            <Use name="the queue" use={flow} />
            {may && (
              <td class="acts">
                <a class="button small" href={linkTo(queue, "settings")}>
                  Settings
                </a>
              </td>
            )}
          </tr>
          {kinds.map((kind) => {
            const use = flow.kinds[kind] ?? idle;
            const words = ownWords(own[kind] ?? {});
            return (
              <tr key={kind}>
                <th scope="row" class="break">
                  {kind ? <a href={`${linkTo(queue, "jobs")}?kind=${encodeURIComponent(kind)}`}>{kind}</a> : named(kind)}
                  {use.paused && (
                    <span class="mark paused">
                      paused
                      {use.paused_until && (
                        <>
                          , goes on <Ago at={use.paused_until} />
                        </>
                      )}
                    </span>
                  )}
                  {words && <span class="under">{words}</span>}
                </th>
                <Use name={named(kind)} use={use} />
                {may && (
                  <td class="acts">
                    <div class="buttons">
                      <button type="button" class="small" onClick={() => steer(kind, !use.paused)}>
                        {use.paused ? "Resume" : "Pause"}
                      </button>
                      <button type="button" class="small" onClick={() => edit(kind)}>
                        Settings…
                      </button>
                    </div>
                  </td>
                )}
              </tr>
            );
          })}
        </tbody>
      </table>
      {flow.limiter && (
        <p class="dim">
          Shares the pacer {flow.limiter.name}
          {flow.limiter.missing ? ", which is not there: nothing starts." : `; ${plural(flow.limiter.lent, "slot")} lent.`}
        </p>
      )}
      {editing !== null && <KindSettings key={editing} queue={queue} kind={editing} detail={detail} close={() => edit(null)} />}
      {adding && <KindSettings queue={queue} kind={null} detail={detail} close={() => add(false)} />}
    </Section>
  );
}

function Use({ name, use }: { name: string; use: LimitUse }): JSX.Element {
  const now = useClock();
  const { rate } = use;
  return (
    <>
      <td class="number" data-name="running">
        {use.running ? count(use.running) : <span class="dim">0</span>}
        {use.max_running ? <span class="dim"> of {count(use.max_running)}</span> : null}
      </td>
      <td class="meter">
        {use.max_running ? <Bar used={use.running} of={use.max_running} label={`Running of ${name}`} /> : null}
      </td>
      <td class="number" data-name="rate">
        {rate ? (
          <>
            {starts([rate.starts, rate.period])}
            <span class={`under ${rate.left ? "" : "warn"}`}>
              {rate.left || !rate.next_at ? `${count(rate.left)} may start now` : `next in ${duration(Math.max(0, unix(rate.next_at) - now))}`}
            </span>
          </>
        ) : (
          <span class="dim">any</span>
        )}
      </td>
    </>
  );
}

function KindSettings({
  queue,
  kind,
  detail,
  close,
}: {
  queue: string;
  kind: string | null; // null: whose name is asked for
  detail: Detail;
  close: () => void;
}): JSX.Element {
  const { texts, type } = useTexts();
  const [name, setName] = useState(kind ?? "");
  const now = ownOf(detail)[name] ?? {};
  const { settings } = detail.stats;
  const hint = (field: Field): string => (LIMITS.includes(field.name) ? "none of its own" : `queue: ${shown(field, settings[field.name])}`);
  const drop = async (): Promise<void> => {
    if (await done(state.change(queue, { kinds: { [name]: null } }), `${named(name)} is as the queue says.`)) close();
  };
  return (
    <Dialog
      title={kind === null ? "Set up a kind" : `Settings of ${kind ? `kind ${kind}` : "jobs without a kind"}`}
      verb="Save"
      ready={changedOf(OF_KINDS, now, texts).length > 0 && (kind !== null || name.trim() !== "")}
      close={close}
      act={async () => {
        await state.change(queue, { kinds: { [name.trim()]: wishOf(OF_KINDS, now, texts, true) } });
        return `The settings of ${named(name)} are changed.`;
      }}
      more={
        kind !== null &&
        Object.keys(now).length > 0 && (
          <button type="button" class="apart" onClick={() => void drop()}>
            Drop its settings
          </button>
        )
      }
    >
      <p class="dim">What is left empty is as the queue says. It holds for jobs enqueued from now on; limits, at once.</p>
      {kind === null && (
        <label class="kind">
          <span>Kind</span>
          <input type="text" value={name} autocomplete="off" spellcheck={false} required onInput={(event) => setName(event.currentTarget.value)} />
        </label>
      )}
      <Fields fields={OF_KINDS} now={now} texts={texts} type={type} may hint={hint} />
    </Dialog>
  );
}
